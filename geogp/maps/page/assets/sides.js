const HALF = 0.5;

/** Return the least and the largest value in the cells of the region. */
function rangeOf({width, height}, inside, value) {
  let [low, high] = [Infinity, -Infinity];
  for (let cell = 0; cell < width * height; cell += 1) {
    if (inside(cell)) {
      low = Math.min(low, value(cell));
      high = Math.max(high, value(cell));
    }
  }
  return [low, high];
}

/** Return a note that all tiles are on one side, with the nearest of those that divide the region. */
function sideNote(same, dividing, kind) {
  const [nearest] = dividing.sort((one, other) => one.far - other.far);
  return `${same} ${nearest ? `The nearest ${kind} that divides the region is ${nearest.words}.`
    : `No ${kind} divides the region.`}`;
}

const everywhere = (above) => `In every tile, the probability is ${above ? 'above' : 'below'} 50 %.`;

/** Return a note if all tiles are on the same side of a threshold, otherwise ''. */
function thresholdSide(data, law, inside, threshold) {
  const {values, at_most: atMost} = data.threshold;
  const [low, high] = rangeOf(data.frame, inside, (cell) => law.quantile(cell, HALF));
  const wish = modelledOf(data, threshold);
  const found = values.map((value) => ({
    at: modelledOf(data, value), words: `${formatNumber(value)} ${data.unit}`,
  })).filter(({at}) => low < at && at <= high).map(({at, words}) => ({words, far: Math.abs(at - wish)}));
  return low < wish && wish <= high ? ''
    : sideNote(everywhere((low >= wish) !== atMost), found, 'threshold');
}

/** Return a note if all tiles have one class, or are on the same side of a class, otherwise ''. */
async function classSide({classes, frame, subject}, {source, scale}, inside, arrayOf) {
  const step = classes.findIndex(({least}) => least === source.array);
  if (step < 0 && !scale.names.length) {
    return '';
  }
  const range = async (name) => {
    const array = await arrayOf(name);
    return rangeOf(frame, inside, (cell) => array.at(cell));
  };
  const [low, high] = await range(source.array);
  if (step < 0 ? low < high : low < HALF && high >= HALF) {
    return '';
  }
  const found = [];
  for (const [place, {name, least}] of classes.entries()) {
    const [first, last] = least ? await range(least) : [1, 1];
    if (first < HALF && last >= HALF) {
      found.push({words: name, far: Math.abs(place - (step < 0 ? low : step))});
    }
  }
  return sideNote(step < 0 ? `Every tile has the ${subject} ${scale.names[low]}.` : everywhere(low >= HALF),
    found, `probability of at least a ${subject}`);
}
