const SCORE_BINS = 4096;

/** Makes the picture of a layer, in which each cell has the colour of its value. */
class Painter {
  /** @param {object} data The page's data. */
  constructor(data) {
    this.data = data;
    this.laws = new Map();
  }

  /** Return the predictive distributions of a quarter. */
  law(quarter) {
    if (!this.laws.has(quarter)) {
      this.laws.set(quarter, Law.load(this.data.levels, this.data.quarters[quarter]));
    }
    return this.laws.get(quarter);
  }

  /** Return a text that identifies the picture of a layer in a state. */
  key(layer, state) {
    const {source} = layer;
    const parts = [layer.id];
    if (this.inTime(layer)) {
      parts.push(state.quarter);
    }
    if (source.probability) {
      parts.push(state.threshold);
    }
    if (source.live) {
      parts.push(state.point && state.point.join(','));
    }
    return parts.join(' ');
  }

  /** Return whether a layer differs between quarters. */
  inTime(layer) {
    const {source} = layer;
    return 'quantile' in source || 'width' in source || Boolean(source.probability)
      || this.data.quarters.some(({arrays}) => arrays && source.array in arrays);
  }

  /**
   * Return the frame of a layer and the number of each cell's colour.
   * @returns {Promise<{frame: Frame, indices: Uint8Array}>}
   */
  async paint(layer, state) {
    const {source, scale} = layer;
    if (source.live) {
      return this.live(scale, state.point);
    }
    if ('array' in source) {
      const {frame, packed} = this.arrayOf(source.array, state.quarter);
      const array = await unpack(packed);
      return this.painted(frame, scale, (cell) => array.at(cell));
    }
    if ('slice' in source) {
      const array = await unpack(this.data.slices[source.slice]);
      return this.painted(this.data.frame, scale, (cell) => array.at(cell));
    }
    const law = await this.law(state.quarter);
    const {frame} = this.data.quarters[state.quarter];
    if (source.probability) {
      return this.probabilities(law, frame, scale, state.threshold);
    }
    if ('width' in source) {
      const [low, high] = source.width;
      return this.painted(frame, scale,
        (cell) => (law.holds(cell) ? law.quantile(cell, high) - law.quantile(cell, low) : NaN));
    }
    return this.quantiles(law, frame, scale, source.quantile);
  }

  /** Return a packed array and its frame, from the quarter if the quarter has the array. */
  arrayOf(name, quarter) {
    const {arrays, frame} = this.data.quarters[quarter];
    return arrays && name in arrays ? {frame, packed: arrays[name]}
      : {frame: this.data.frame, packed: this.data.arrays[name]};
  }

  /** Return an array of the full frame. */
  array(name) {
    return unpack(this.data.arrays[name]);
  }

  /** Return a function that tests whether a cell of the full frame lies in the region. */
  async mask() {
    const array = await this.array('far');
    return (cell) => array.holds(cell);
  }

  painted(frame, scale, value) {
    const indices = new Uint8Array(frame.width * frame.height);
    const count = scale.colours.length;
    for (let cell = 0; cell < indices.length; cell += 1) {
      indices[cell] = colourAt(fractionOf(scale, value(cell)), count);
    }
    return {frame, indices};
  }

  quantiles(law, frame, scale, share) {
    if (!scale.logarithmic || scale.shift) {
      return this.painted(frame, scale,
        (cell) => (law.holds(cell) ? 10 ** law.quantile(cell, share) : NaN));
    }
    // Positions on a logarithmic scale are linear in log10, and the quantiles are in log10.
    const low = Math.log10(scale.low);
    const flat = {logarithmic: false, low, high: Math.log10(scale.high), colours: scale.colours};
    return this.painted(frame, flat,
      (cell) => (law.holds(cell) ? law.quantile(cell, share) : NaN));
  }

  /** Colour by probability: compare normal scores with the scores at the edges of colours. */
  probabilities(law, frame, scale, threshold) {
    const atMost = this.data.threshold.at_most;
    const count = scale.colours.length;
    const edges = scale.colours.slice(1).map((_, place) => normalScore(
      Math.min(1, Math.max(0, scale.low + (scale.high - scale.low) * (place + 1) / count))));
    const width = 2 * NORMAL_ENDS / SCORE_BINS;
    const first = new Uint8Array(SCORE_BINS);
    for (let bin = 0, passed = 0; bin < SCORE_BINS; bin += 1) {
      while (passed < edges.length && edges[passed] <= -NORMAL_ENDS + bin * width) {
        passed += 1;
      }
      first[bin] = passed;
    }
    const log10 = Math.log10(threshold);
    const indices = new Uint8Array(frame.width * frame.height);
    for (let cell = 0; cell < indices.length; cell += 1) {
      if (law.holds(cell)) {
        const below = law.score(cell, log10);
        const score = atMost ? below : -below;
        const bin = Math.floor((score + NORMAL_ENDS) / width);
        let passed = bin < 0 ? 0 : first[Math.min(bin, SCORE_BINS - 1)];
        while (passed < edges.length && edges[passed] <= score) {
          passed += 1;
        }
        indices[cell] = passed + 1;
      }
    }
    return {frame, indices};
  }

  /** Colour by k(., x_ref) from the reduced basis; colour nothing if there is no x_ref. */
  async live(scale, point) {
    const {frame} = this.data;
    const values = point && await this.kernelAt(point);
    if (!values) {
      return {frame, indices: new Uint8Array(frame.width * frame.height)};
    }
    return this.painted(frame, scale, (cell) => values[cell]);
  }

  /**
   * Return k(x, x_ref) = sum of c_j(x) c_j(x_ref) for the centres x of all tiles, NaN outside the
   * region; null if x_ref lies outside.
   * @param {number[]} point Latitude and longitude.
   */
  async kernelAt(point) {
    const {frame, kernel} = this.data;
    const [array, inside, weights] = await Promise.all(
      [unpack(kernel.components), this.mask(), this.componentsAt(point)]);
    if (weights === null) {
      return null;
    }
    const size = kernel.frame.width * kernel.frame.height;
    const middles = new Float64Array(size);
    weights.forEach((weight, place) => {
      for (let cell = 0; cell < size; cell += 1) {
        middles[cell] += weight * array.at(place * size + cell);
      }
    });
    // Interpolation is linear, so the interpolated sum is the sum of interpolated components.
    return stretched(kernel.frame, middles, frame)
      .map((value, cell) => (inside(cell) ? value : NaN));
  }

  /** Return the components c_j at a place, interpolated; null outside the region. */
  async componentsAt(point) {
    const {frame, kernel} = this.data;
    const [array, inside] = await Promise.all([unpack(kernel.components), this.mask()]);
    const place = L.latLng(point);
    const tile = cellAt(frame, place);
    if (tile === null || !inside(tile.number)) {
      return null;
    }
    const corners = middlesAround(kernel.frame, place);
    const size = kernel.frame.width * kernel.frame.height;
    return Array.from({length: kernel.components.shape[0]}, (_, component) => corners.reduce(
      (sum, {number, weight}) => sum + weight * array.at(component * size + number), 0));
  }
}
