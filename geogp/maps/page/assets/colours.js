/**
 * A map from values to colours; see geogp.maps.scales.Scale.
 * @typedef {{low: number, high: number, logarithmic: boolean, shift: number, ticks: number[],
 *   labels: string[], names: string[], colours: string[]}} Scale
 */

/** Return round numbers from at most `low` to at least `high`, with about four steps. */
function roundTicks(low, high) {
  const rough = (high - low) / 4 || Math.abs(high) / 4 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((one) => one * power >= rough * (1 - 1e-9));
  const first = Math.floor(low / step + 1e-9);
  const count = Math.ceil(high / step - 1e-9) - first + 1;
  return Array.from({length: Math.max(count, 2)},
    (_, place) => Number(((first + place) * step).toPrecision(9)));
}

/**
 * Return a scale from the 1st to the 99th percentile of a kernel's values: symmetric about 0 if some
 * are clearly negative, and from 0 unless most are near the largest.
 */
function kernelScale(values, palettes) {
  const sorted = values.filter(Number.isFinite).sort();
  const [low, high] = [0.01, 0.99].map((share) => sorted[Math.round(share * (sorted.length - 1))]);
  const reach = Math.max(high, -low);
  const negative = low < -0.02 * reach;
  const least = low > high / 2 ? low : 0;
  const ticks = negative ? roundTicks(-reach, reach) : roundTicks(least, high);
  return {
    low: ticks[0], high: ticks[ticks.length - 1], logarithmic: false, shift: 0, ticks,
    labels: ticks.map((tick) => formatNumber(tick)), names: [],
    colours: negative ? palettes.diverging : palettes.sequential,
  };
}

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
  return new Uint32Array([0, ...(scale ? scale.colours : []).map((colour) => pixelOf(colour, 255))]);
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
