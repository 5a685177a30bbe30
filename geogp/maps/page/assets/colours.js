/**
 * A map from values to colours; see geogp.maps.scales.Scale.
 * @typedef {{low: number, high: number, logarithmic: boolean, shift: number, ticks: number[],
 *   names: string[], colours: string[]}} Scale
 */

/** Return the position of a value on a scale; the ends of the scale are 0 and 1. */
function fractionOf(scale, value) {
  if (!scale.logarithmic) {
    return (value - scale.low) / (scale.high - scale.low);
  }
  const low = scale.low + scale.shift;
  return Math.log((value + scale.shift) / low) / Math.log((scale.high + scale.shift) / low);
}

/** Return the number of the colour at a position: 0 for no colour, 1 for the first colour. */
function colourAt(fraction, count) {
  if (Number.isNaN(fraction)) {
    return 0;
  }
  return Math.min(Math.floor(Math.max(0, fraction) * count), count - 1) + 1;
}

/** Return a colour of the style sheet, such as `urban`. */
function styleColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Return the colours of a scale as pixels of a canvas; the first colour is transparent. */
function pixelsOf(scale) {
  return new Uint32Array([0, ...scale.colours.map((colour) => pixelOf(colour, 255))]);
}

/** Return one colour as a pixel of a canvas. */
function pixelOf(colour, alpha) {
  const number = parseInt(colour.slice(1), 16);
  const bytes = new Uint8ClampedArray([number >> 16, number >> 8 & 255, number & 255, alpha]);
  return new Uint32Array(bytes.buffer)[0];
}

/** Return a number as text for readers, such as 0.3, 1,200 or −0.5. */
function formatNumber(value, digits = 6) {
  if (!Number.isFinite(value)) {
    return '–';
  }
  const rounded = Number(value.toPrecision(digits));
  return rounded.toLocaleString('en-US', {maximumSignificantDigits: digits})
    .replace('-', '\u2212');
}

/** Return a probability in percent; values near 0 or 1 are not rounded to 0 % or 100 %. */
function formatShare(share) {
  if (!Number.isFinite(share)) {
    return '–';
  }
  if (share < 0.005) {
    return 'less than 1 %';
  }
  return share > 0.995 ? 'more than 99 %' : `${Math.round(100 * share)} %`;
}

/** Return an element with a class and a text, which the browser does not parse as HTML. */
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

/** Fill a legend with the name of the layer, a bar with round numbers, and a hint. */
function fillLegend(box, {side, label, hint, scale}) {
  box.replaceChildren();
  if (side) {
    box.append(element('span', 'geogp-side', side));
  }
  box.append(element('h2', '', label.charAt(0).toUpperCase() + label.slice(1)));
  const bar = element('div', 'geogp-bar');
  bar.style.background = `linear-gradient(to right, ${scale.colours.join(', ')})`;
  const named = scale.names.length > 0;
  const ticks = element('div', named ? 'geogp-ticks geogp-names' : 'geogp-ticks');
  scale.ticks.forEach((tick, place) => {
    const mark = element('span', '', named ? scale.names[place] : formatNumber(tick));
    mark.style.left = `${100 * fractionOf(scale, tick)}%`;
    ticks.append(mark);
  });
  box.append(bar, ticks);
  if (hint) {
    box.append(element('p', 'geogp-hint', hint));
  }
}
