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
    words.push({name: `In 19 of 20, ${side}`, value: `${amount(law.bound)} ${unit}`});
    if (law.probability !== null) {
      const met = thresholdWords(data, state.threshold);
      words.push({name: `Probability of ${met}`, value: formatShare(law.probability)});
    }
  }
  for (const layer of data.layers) {
    const name = layer.source.array;
    if (!found.law && name && name !== 'tests' && name in found.arrays) {
      const value = found.arrays[name];
      words.push({
        name: layer.title,
        value: name === 'none' ? formatShare(value) : formatNumber(value, 3),
        main: words.length === 0,
      });
    }
  }
  if (found.tests !== null) {
    words.push({name: 'Tests in this tile', value: formatNumber(found.tests)});
    const {total, cells} = found.near;
    words.push({
      name: `Tests within ${REACH_KM} km`,
      value: total
        ? `${formatNumber(total)} in ${cells} ${cells === 1 ? 'tile' : 'tiles'}` : 'none',
    });
  }
  return words;
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

/** Return a sentence on the largest error of the reduced kernel. */
function kernelErrorWords({error}) {
  return `Computed from a reduced kernel, with errors of up to ${formatNumber(100 * error, 2)} % of the `
    + 'largest value.';
}
