/**
 * How values become colours; see geogp.maps.scales.Scale.
 * @typedef {{low: number, high: number, logarithmic: boolean, shift: number, ticks: number[],
 *   colours: string[]}} Scale
 */

/** Return the place of a value on a scale, from 0 to 1 within it. */
function fractionOf(scale, value) {
  if (!scale.logarithmic) {
    return (value - scale.low) / (scale.high - scale.low);
  }
  const low = scale.low + scale.shift;
  return Math.log((value + scale.shift) / low) / Math.log((scale.high + scale.shift) / low);
}

/** Return the number of a fraction's colour: 0 is none, 1 the first. */
function colourAt(fraction, count) {
  if (Number.isNaN(fraction)) {
    return 0;
  }
  return Math.min(Math.floor(Math.max(0, fraction) * count), count - 1) + 1;
}

/** Return the colours of a scale as pixels of a canvas; the first is transparent. */
function pixelsOf(scale) {
  return new Uint32Array([0, ...scale.colours.map((colour) => pixelOf(colour, 255))]);
}

/** Return one colour as a pixel of a canvas. */
function pixelOf(colour, alpha) {
  const number = parseInt(colour.slice(1), 16);
  const bytes = new Uint8ClampedArray([number >> 16, number >> 8 & 255, number & 255, alpha]);
  return new Uint32Array(bytes.buffer)[0];
}

/** Return a number as people write it: 0.3, 1,200, −0.5. */
function formatNumber(value, digits = 6) {
  if (!Number.isFinite(value)) {
    return '–';
  }
  const rounded = Number(value.toPrecision(digits));
  return rounded.toLocaleString('en-US', {maximumSignificantDigits: digits})
    .replace('-', '\u2212');
}

/** Return a probability in per cent, never 0 % or 100 % where it is not. */
function formatShare(share) {
  if (share < 0.005) {
    return 'less than 1 %';
  }
  return share > 0.995 ? 'more than 99 %' : `${Math.round(100 * share)} %`;
}

/** Return an element with a class and text, which is never read as HTML. */
function element(tag, className = '', text = '') {
  const made = document.createElement(tag);
  if (className) {
    made.className = className;
  }
  if (text) {
    made.textContent = text;
  }
  return made;
}

/** Fill a legend: what is shown, a bar with round numbers, how to read it. */
function fillLegend(box, {side, label, hint, scale}) {
  box.replaceChildren();
  if (side) {
    box.append(element('span', 'geogp-side', side));
  }
  box.append(element('h2', '', label.charAt(0).toUpperCase() + label.slice(1)));
  const bar = element('div', 'geogp-bar');
  bar.style.background = `linear-gradient(to right, ${scale.colours.join(', ')})`;
  const ticks = element('div', 'geogp-ticks');
  for (const tick of scale.ticks) {
    const mark = element('span', '', formatNumber(tick));
    mark.style.left = `${100 * fractionOf(scale, tick)}%`;
    ticks.append(mark);
  }
  box.append(bar, ticks);
  if (hint) {
    box.append(element('p', 'geogp-hint', hint));
  }
}
