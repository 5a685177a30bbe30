/** Return the names and values that the card of a place shows, as texts. */
function placeWords(found, data, state) {
  const {unit} = data;
  const amount = (value) => formatNumber(value, 3);
  const words = [];
  if (found.law) {
    const {law} = found;
    words.push(
      {name: `Median ${data.subject}`, value: `${amount(law.median)} ${unit}`, main: true});
    for (const {name, low, high} of law.intervals) {
      words.push({name: `${name} interval`, value: `${amount(low)} to ${amount(high)} ${unit}`});
    }
    const side = data.bound === 'upper' ? 'at most' : 'at least';
    words.push({name: `In 19 of 20 measurements, ${side}`, value: `${amount(law.bound)} ${unit}`});
    if (law.probability !== null) {
      const met = thresholdWords(data, state.threshold);
      words.push({name: `Probability of ${met}`, value: formatShare(law.probability)});
    }
    if (found.level !== null) {
      words.push({
        name: 'The place itself: level without noise', value: `${amount(found.level)} ${unit}`, main: true,
      });
    }
  }
  if (found.tier) {
    words.push(...tierFacts(found.tier));
  }
  for (const layer of data.layers) {
    const name = layer.source.array;
    if (!found.law && name && name !== 'tests' && name in found.arrays) {
      words.push({
        name: layer.title, value: layerWords(layer, found.arrays[name]), main: words.length === 0,
      });
      if (words.length === 1) {
        words.push(...classWords(found.arrays, data.classes));
      }
    }
  }
  if (found.tests !== null) {
    words.push({name: 'Tests in this tile, all quarters', value: formatNumber(found.tests)});
    const {total, cells} = found.near;
    words.push({
      name: `Tests within ${REACH_KM} km, all quarters`,
      value: total
        ? `${formatNumber(total)} in ${cells} ${cells === 1 ? 'tile' : 'tiles'}` : 'none',
    });
  }
  return words;
}

/** Return a value of a layer as text: a class, a share, or a number. */
function layerWords({scale, share}, value) {
  if (scale.names.length) {
    return scale.names[value] || '–';
  }
  return share ? formatShare(value) : formatNumber(value, 3);
}

/** Return the probability of each class, from those of each class or a higher one. */
function classWords(arrays, classes) {
  const reached = classes.map(({least}) => (least ? arrays[least] : 1));
  return classes.map(({name}, code) => ({
    name: `Probability of ${name}`,
    value: formatShare(Math.max(0, reached[code] - (code + 1 < reached.length ? reached[code + 1] : 0))),
  }));
}

/** Return the coordinates of a place as text, such as 18.2000° N, 66.4000° W. */
function coordinates(place) {
  const {lat, lng} = place.wrap();
  return `${Math.abs(lat).toFixed(4)}° ${lat < 0 ? 'S' : 'N'}, `
    + `${Math.abs(lng).toFixed(4)}° ${lng < 0 ? 'W' : 'E'}`;
}

/** Return a threshold as text, such as at least 7 Mbps. */
function thresholdWords(data, value) {
  const side = data.threshold.at_most ? 'at most' : 'at least';
  return `${side} ${formatNumber(value)} ${data.unit}`;
}

/** Return a sentence on the sizes of squares if these differ between quarters, otherwise ''. */
function sizeWords({frame, past, quarters, shown}) {
  const size = (one) => `${formatNumber(tileKm(one), 2)} km`;
  return past && past.frame.zoom < frame.zoom
    ? `Values of other quarters than ${quarters[shown]} are those in the middle of squares of ${
      size(past.frame)}; values of ${quarters[shown]} are those of tiles of ${size(frame)}.` : '';
}

/** Return a sentence on the largest error of the reduced kernel. */
function kernelErrorWords({error}) {
  return `Computed from a reduced kernel, with errors of up to ${formatNumber(100 * error, 2)} % of the `
    + 'largest value.';
}
