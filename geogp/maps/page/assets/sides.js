const HALF = 0.5;
const NEARLY = 0.02;
const MOST_SORTED = 20000;
const SOME_CELLS = 2000;
const MIXING = 0x9E3779B1;

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

/** Return a note that tiers are of the shown quarter, if a state has another one, otherwise null. */
function tierQuarter({quarters, shown}, quarter) {
  return quarter === shown ? null : {
    text: `Tiers are those of ${quarters[shown]} only.`,
    offer: {words: `Show ${quarters[shown]}`, changes: {quarter: shown}},
  };
}

/** Return a note if nearly all tiles are on the same side of 50 % of a tier, otherwise null. */
function tierSide({frame, tiers}, joint, inside, thresholds, shares) {
  const {least, low, high, most} = endsOf(frame, inside, (cell) => shares[cell]);
  if (low < HALF && high >= HALF) {
    return null;
  }
  // Other tiers are computed for some cells only, whose numbers are mixed so that they fill the region.
  const apart = Math.ceil(shares.length / SOME_CELLS);
  const some = (cell) => inside(cell) && (Math.imul(cell, MIXING) >>> 0) % apart === 0;
  const far = (values) => values.reduce((sum, value, place) => {
    const [one, other] = [value, thresholds[place]].map(
      (end) => (end === null ? null : modelledOf(tiers.targets[place], end)));
    return sum + (one === null || other === null ? Number(one !== other) : Math.abs(one - other));
  }, 0);
  const found = tiers.choices.filter(({values}) => {
    const ends = endsOf(frame, some, joint.meeting(values));
    return ends.low < HALF && ends.high >= HALF;
  }).map(({name, values}) => ({words: name, far: far(values), changes: {tier: values}}));
  return sideNote(everywhere(low >= HALF, least < HALF && most >= HALF), found, 'tier of the run');
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
