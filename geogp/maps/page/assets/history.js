const CHART = {width: 276, height: 132, left: 40, right: 8, top: 8, bottom: 20};
const ALONE = 4;

/** Return an element of a drawing, with attributes and a text. */
function svgElement(tag, attributes, text = '') {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, value);
  }
  made.textContent = text;
  return made;
}

/** Return 2 to 6 round numbers between the ends of a logarithmic axis. */
function logarithmicTicks(low, high) {
  const powers = Array.from({length: 13}, (_, place) => 10 ** (place - 6));
  const ladders = [[1, 1.5, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]];
  const choices = ladders.map((ladder) => powers.flatMap((power) => ladder.map((one) => one * power))
    .filter((value) => value >= low && value <= high));
  return choices.find((found) => found.length <= 6) || choices[choices.length - 1];
}

/**
 * Draw a history: a value with its 95 % interval by quarter, and of a cell also measured averages as
 * dots. The axis is logarithmic, or linear: from 0 for numbers of tests, and around the values for
 * decibels. `parts` are the first and the
 * last quarter of each line; the values of several parts have different resolutions, as `note` says.
 */
function drawHistory(
  box, {bands, measured = [], quarters, shown, words, parts = [[0, bands.length - 1]], note}, data) {
  const {width, height, left, right, top, bottom} = CHART;
  const values = [...bands.flat(), ...measured].filter(Number.isFinite);
  const logarithmic = Boolean(data.levels) && !data.linear;
  const bend = logarithmic ? Math.log : (value) => value;
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const margin = (most - least) / 20 || 1;
  const low = data.linear ? valueOf(data, least - margin) : logarithmic ? least / 1.05 : 0;
  const high = data.linear ? valueOf(data, most + margin) : most * 1.05 || 1;
  // Quarters can be missing, such as 2022Q3.
  const numbers = quarters.map((text) => 4 * text.slice(0, 4) + Number(text.slice(5)));
  const when = numbers.every(Number.isFinite) ? numbers : [...quarters.keys()];
  const last = quarters.length - 1;
  const x = (quarter) => left
    + (when[quarter] - when[0] + 0.5) / (when[last] - when[0] + 1) * (width - left - right);
  const y = (value) => height - bottom
    - (bend(value) - bend(low)) / (bend(high) - bend(low)) * (height - top - bottom);
  const line = (end, [first, last]) => (first === last
    ? [-ALONE, ALONE].map((aside) => `${x(first) + aside},${y(bands[first][end])}`)
    : bands.slice(first, last + 1).map((band, at) => `${x(first + at)},${y(band[end])}`));
  const picture = svgElement('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img'});
  const ticks = logarithmic ? logarithmicTicks(low, high)
    : roundTicks(low, high).filter((value) => value >= low && value <= high);
  for (const tick of ticks) {
    picture.append(
      svgElement('line', {x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: 'geogp-rule'}),
      svgElement('text', {x: left - 5, y: y(tick) + 4, 'text-anchor': 'end'}, formatNumber(tick)));
  }
  picture.append(
    svgElement('line', {x1: x(shown), x2: x(shown), y1: top, y2: height - bottom, class: 'geogp-now'}),
    ...parts.flatMap((part) => [
      svgElement('polygon', {
        points: [...line(0, part), ...line(2, part).reverse()].join(' '), class: 'geogp-band'}),
      svgElement('polyline', {points: line(1, part).join(' '), class: 'geogp-median'})]));
  for (const [quarter, value] of measured.entries()) {
    if (Number.isFinite(value)) {
      const dot = svgElement('circle', {cx: x(quarter), cy: y(value), r: 3, class: 'geogp-dot'});
      dot.append(svgElement('title', {}, `${quarters[quarter]}: ${formatNumber(value, 3)}`));
      picture.append(dot);
    }
  }
  for (const [quarter, place, anchor] of [[0, left, 'start'], [last, width - right, 'end']]) {
    const text = {x: place, y: height - 5, 'text-anchor': anchor};
    picture.append(svgElement('text', text, quarters[quarter]));
  }
  const seen = measured.filter(Number.isFinite).length;
  const at = (quarter) => `${formatNumber(bands[quarter][1], 3)} in ${quarters[quarter]}`;
  const lines = parts.map(
    ([from, to]) => (from === to ? at(from) : `from ${at(from)} to ${at(to)}`)).join('; ');
  const middle = data.levels ? 'Median' : 'Expected';
  picture.setAttribute('aria-label', `${words || middle} ${lines}, ${data.unit}${
    words ? '' : `; measured in ${seen} of ${bands.length} quarters`}.`);
  box.append(element('figcaption', '', `${
    words || `${middle} with 95 % interval, and measured values (dots)`}, ${data.unit}`), picture);
  if (note) {
    box.append(element('p', 'geogp-hint', note));
  }
}
