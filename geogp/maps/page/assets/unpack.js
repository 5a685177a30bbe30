/**
 * A packed array, as geogp.maps.packing writes it.
 * @typedef {{shape: number[], step: number, offset: number, none: boolean, bits: 8|16|32,
 *   along: boolean, data: string}} Packed
 */

/** The whole numbers of a packed array, with the rule that converts them to values. */
class Unpacked {
  /** @param {Packed} packed @param {Uint8Array|Uint16Array|Uint32Array} numbers */
  constructor(packed, numbers) {
    this.packed = packed;
    this.numbers = numbers;
    this.shape = packed.shape;
    this.step = packed.step;
    this.none = packed.none;
    /** The value of number 0; if 0 means no data, no cell has this value. */
    this.zero = packed.offset - (packed.none ? packed.step : 0);
    this.places = null;
  }

  /**
   * Return one plane of several.
   * @param {?Uint32Array} places The place in the plane of each cell, if these differ.
   */
  plane(number, places = null) {
    const [height, width] = this.shape.slice(-2);
    const start = number * height * width;
    const found = new Unpacked(this.packed, this.numbers.subarray(start, start + height * width));
    found.places = places;
    return found;
  }

  /** Return the value of a cell; NaN for no data. */
  at(cell) {
    const number = this.numbers[this.places === null ? cell : this.places[cell]];
    return this.none && number === 0 ? NaN : this.zero + this.step * number;
  }

  /** Return whether a cell has data. */
  holds(cell) {
    return !this.none || this.numbers[this.places === null ? cell : this.places[cell]] !== 0;
  }
}

const unpackedArrays = new WeakMap();

/**
 * Decode a packed array; later calls return the first result.
 * @param {Packed} packed
 * @returns {Promise<Unpacked>}
 */
function unpack(packed) {
  if (!unpackedArrays.has(packed)) {
    unpackedArrays.set(packed, decode(packed));
  }
  return unpackedArrays.get(packed);
}

async function decode(packed) {
  const raw = await inflate(bytesOf(packed.data));
  const size = packed.shape.reduce((product, length) => product * length, 1);
  if (raw.length !== size * packed.bits / 8) {
    throw new Error(`expected ${size} numbers of ${packed.bits} bits, found ${raw.length} bytes`);
  }
  const numbers = packed.bits === 8 ? raw : joined(raw, size, packed.bits);
  const [height, width] = packed.shape.slice(-2);
  for (let start = 0; start < size; start += height * width) {
    undifference(numbers.subarray(start, start + height * width), height, width);
  }
  for (let place = height * width; packed.along && place < size; place += 1) {
    numbers[place] += numbers[place - height * width];
  }
  return new Unpacked(packed, numbers);
}

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place += 1) {
    bytes[place] = text.charCodeAt(place);
  }
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Join planes of bytes to numbers; the lowest bytes come first. */
function joined(raw, size, bits) {
  const numbers = bits === 16 ? new Uint16Array(size) : new Uint32Array(size);
  for (let plane = 0; plane < bits / 8; plane += 1) {
    for (let place = 0; place < size; place += 1) {
      numbers[place] |= raw[plane * size + place] << 8 * plane;
    }
  }
  return numbers;
}

/** Add up differences from the left, in the first column from above, modulo the type's range. */
function undifference(numbers, height, width) {
  for (let row = 0; row < height; row += 1) {
    const first = row * width;
    if (row > 0) {
      numbers[first] += numbers[first - width];
    }
    for (let place = first + 1; place < first + width; place += 1) {
      numbers[place] += numbers[place - 1];
    }
  }
}
