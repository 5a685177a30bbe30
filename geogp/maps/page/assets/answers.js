/** Put the layers of later answers into the data, each after the last layer of its question. */
function addAnswers(layers) {
  const box = document.getElementById('geogp-answers');
  for (const layer of box ? JSON.parse(box.textContent) : []) {
    const last = layers.findLastIndex(({group}) => group === layer.group);
    const kernel = layers.findIndex(({source}) => 'slice' in source);
    layers.splice(last >= 0 ? last + 1 : kernel >= 0 ? kernel : layers.length, 0, layer);
  }
}

/** Return the position of the time that a layer of areas shows: the shown quarter, else the last. */
function timeOf({times}, quarter) {
  return times.includes(quarter) ? times.indexOf(quarter) : times.length - 1;
}

/** Return a value with its 95 % interval as text; changes are `signed`. */
function bandWords([low, middle, high], unit, signed) {
  const [one, ...ends] = [middle, low, high].map((value) => (
    (signed && value > 0 ? '+' : '') + formatNumber(value ?? NaN, 3)));
  return `${one} ${unit} (${ends.join(' to ')})`;
}

/** Return what the answers say about a tile: facts as texts, and histories of its areas. */
async function answersAt({cell: {number}, far}, data, quarter) {
  const [facts, histories] = [[], []];
  const rise = (value) => ({name: 'Probability that it rose', value: formatShare(value)});
  for (const {unit, source: {areas, tiles}} of data.layers) {
    const at = areas && (await unpack(areas.numbers)).at(number);
    if (at >= 0) {
      const {names, bands, medians, rose, called, what} = areas;
      const time = timeOf(areas, quarter);
      const [whole, when] = [`${names[at]} as a whole`, areas.times[time]];
      const name = `${whole}: ${what}, ${when}`;
      facts.push({
        name: called && !called[at] ? `${name}, no clear direction` : name,
        value: bandWords(bands[time][at], unit, Boolean(rose)),
      });
      if (rose) {
        facts.push(rise(rose[at]));
      }
      const median = medians[time][at];
      if (median !== null) {
        facts.push({
          name: `${whole}: ${rose ? 'change' : 'mean'} of the map's medians, ${when}`,
          value: `${rose && median > 0 ? '+' : ''}${formatNumber(median, 3)} ${unit}`,
        });
      }
      if (areas.times.length > 1 && bands[0][at][1] !== null) {
        histories.push({
          bands: bands.map((one) => one[at].map((end) => end ?? NaN)),
          quarters: areas.times, shown: time, words: `${names[at]}: ${what} with 95 % interval`,
        });
      }
    } else if (tiles) {
      const [mean, sd] = await Promise.all([tiles.mean, tiles.sd].map(
        async (one) => (await unpack(one)).at(number)));
      const band = [-1, 0, 1].map((side) => changeOf(data, mean + side * normalScore(0.975) * sd));
      facts.push(
        {name: `This tile: change of the level, ${tiles.times[0]}`, value: bandWords(band, unit, true)});
      if (!far) {
        facts.push(rise(normalShare(mean / sd)));
      }
    }
  }
  return {facts, histories};
}
