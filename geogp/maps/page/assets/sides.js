const HALF = 0.5;
const NEARLY = 0.02;
const MOST_SORTED = 20000;

/** Return the least and the largest value of a region's cells, and of those without 2 % on each side. */
function endsOf({width, height}, inside, value) {
  const values = [];
  let [least, most] = [Infinity, -Infinity];
  for (let cell = 0; cell < width * height; cell += 1) {
    if (inside(cell)) {
      const one = value(cell);
      values.push(one);
      [least, most] = [Math.min(least, one), Math.max(most, one)];
    }
  }
  const stride = Math.ceil(values.length / MOST_SORTED);
  const sorted = Float64Array.from(values.filter((_, place) => place % stride === 0)).sort();
  const left = Math.floor(NEARLY * sorted.length);
  return {least, low: sorted[left], high: sorted[sorted.length - 1 - left], most};
}

/** Return a note that tiles are on one side, and the nearest of those that divide the region. */
function sideNote(same, dividing, kind) {
  const [nearest] = dividing.sort((one, other) => one.far - other.far);
  return {
    text: `${same} ${nearest ? `The nearest ${kind} that divides the region is ${nearest.words}.`
      : `No ${kind} divides the region.`}`,
    offer: nearest && {words: `Show ${nearest.words}`, changes: nearest.changes},
  };
}

const everyTile = (nearly) => (nearly ? 'nearly every tile' : 'every tile');
const everywhere = (above, nearly) =>
  `In ${everyTile(nearly)}, the probability is ${above ? 'above' : 'below'} 50 %.`;

/** Return a note if nearly all tiles are on the same side of a threshold, otherwise null. */
function thresholdSide(data, law, inside, threshold) {
  const {values, at_most: atMost} = data.threshold;
  const {least, low, high, most} = endsOf(data.frame, inside, (cell) => law.quantile(cell, HALF));
  const wish = modelledOf(data, threshold);
  if (low < wish && wish <= high) {
    return null;
  }
  const found = values.map((value) => ({
    at: modelledOf(data, value), words: `${formatNumber(value)} ${data.unit}`, changes: {threshold: value},
  })).filter(({at}) => low < at && at <= high).map((one) => ({...one, far: Math.abs(one.at - wish)}));
  return sideNote(everywhere((low >= wish) !== atMost, least < wish && wish <= most), found, 'threshold');
}

/** Return a note if nearly all tiles have one class, or are on the same side of a class, otherwise null. */
async function classSide({classes, frame, subject, layers}, {source, scale}, inside, arrayOf) {
  const step = classes.findIndex(({least}) => least === source.array);
  if (step < 0 && !scale.names.length) {
    return null;
  }
  const ends = async (name) => {
    const array = await arrayOf(name);
    return endsOf(frame, inside, (cell) => array.at(cell));
  };
  const {least, low, high, most} = await ends(source.array);
  if (step < 0 ? low < high : low < HALF && high >= HALF) {
    return null;
  }
  const found = [];
  for (const [place, {name, least: reached}] of classes.entries()) {
    const one = reached ? await ends(reached) : {low: 1, high: 1};
    if (one.low < HALF && one.high >= HALF) {
      const {id} = layers.find((layer) => layer.source.array === reached);
      found.push({words: name, far: Math.abs(place - (step < 0 ? low : step)), changes: {layer: id}});
    }
  }
  const nearly = step < 0 ? least < most : least < HALF && most >= HALF;
  const all = everyTile(nearly);
  const same = step < 0
    ? `${all.charAt(0).toUpperCase() + all.slice(1)} has the ${subject} ${scale.names[low]}.`
    : everywhere(low >= HALF, nearly);
  return sideNote(same, found, `probability of at least a ${subject}`);
}
