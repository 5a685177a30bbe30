const SCORE_BINS = 4096;
const BARELY = 1e-6;

/** Makes the picture of a layer, in which each cell has the colour of its value. */
class Painter {
  constructor(data) {
    this.data = data;
    this.laws = new Map();
    this.kernel = new Kernel(data, () => this.mask());
    this.tiers = data.tiers && new Tiers(data, this);
  }

  /** Return the predictive distributions of a quarter. */
  law(quarter) {
    if (!this.laws.has(quarter)) {
      this.laws.set(quarter, this.loadLaw(quarter));
    }
    return this.laws.get(quarter);
  }

  async loadLaw(quarter) {
    const {data} = this;
    if (quarter === data.shown) {
      return new Law(data.levels, await Promise.all(data.quantiles.map(unpack)));
    }
    const [shown, ...stacks] = await Promise.all(
      [this.law(data.shown), ...data.past.quantiles.map(unpack)]);
    return new PastLaw(shown, stacks.map((stack) => this.inQuarter(stack, quarter)));
  }

  /** Return the plane of another quarter, with a value for each cell of the map. */
  inQuarter(stack, quarter) {
    const {frame, past, shown} = this.data;
    if (!this.places && past.frame.zoom < frame.zoom) {
      this.places = placesIn(past.frame, frame);
    }
    return stack.plane(quarter - (quarter > shown ? 1 : 0), this.places || null);
  }

  /** Return an array in a quarter. */
  async array(name, quarter = this.data.shown) {
    const {arrays, past, shown} = this.data;
    return quarter !== shown && past.arrays && name in past.arrays
      ? this.inQuarter(await unpack(past.arrays[name]), quarter) : unpack(arrays[name]);
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
    if (source.tier) {
      parts.push(state.tier);
    }
    if (source.live) {
      parts.push(state.point && state.point.join(','));
    }
    return parts.join(' ');
  }

  /** Return whether a layer differs between quarters. */
  inTime(layer) {
    const {source} = layer;
    const {past} = this.data;
    return 'quantile' in source || 'width' in source
      || Boolean(source.probability || source.tier || source.change)
      || Boolean(past && past.arrays && source.array in past.arrays)
      || Boolean(source.areas && source.areas.times.length > 1);
  }

  /**
   * Return the number of each cell's colour, whether values lie beyond the scale, the scale, and a
   * note if all tiles are on the same side.
   * @returns {Promise<{indices: Uint8Array, beyond: boolean[], scale: ?Scale, note: ?{text: string, offer}}>}
   */
  async paint(layer, state) {
    const {source, scale} = layer;
    const inside = await this.mask();
    if (source.live || 'slice' in source) {
      const values = await (source.live ? this.kernel.at(state.point) : this.kernel.slice(source.slice));
      const own = values && kernelScale(values, this.data.kernel_colours);
      return this.painted(inside, own, (cell) => values[cell]);
    }
    if (source.areas) {
      return this.areas(source.areas, inside, scale, this.data.quarters[state.quarter]);
    }
    if (source.tiles) {
      const mean = await unpack(source.tiles.mean);
      return this.painted(inside, scale, (cell) => changeOf(this.data, mean.at(cell)));
    }
    if ('array' in source) {
      const arrayOf = (name) => this.array(name, state.quarter);
      const array = await arrayOf(source.array);
      const note = await classSide(this.data, layer, inside, arrayOf);
      return {...this.painted(inside, scale, (cell) => array.at(cell)), note};
    }
    if (source.tier) {
      return this.tiers.paint(inside, scale, state);
    }
    const law = await this.law(state.quarter);
    if (source.probability) {
      const note = thresholdSide(this.data, law, inside, state.threshold);
      return {...this.probabilities(law, inside, scale, state.threshold), note};
    }
    if (source.change) {
      const first = await this.law(0);
      return this.painted(inside, scale,
        (cell) => changeOf(this.data, law.quantile(cell, 0.5) - first.quantile(cell, 0.5)));
    }
    if ('width' in source) {
      const [low, high] = source.width;
      return this.painted(inside, scale,
        (cell) => law.quantile(cell, high) - law.quantile(cell, low));
    }
    return this.quantiles(law, inside, scale, source.quantile);
  }

  /** Colour areas by their values, areas without a direction with stripes. */
  async areas(areas, inside, scale, quarter) {
    const numbers = await unpack(areas.numbers);
    const bands = areas.bands[timeOf(areas, quarter)];
    const painted = this.painted(inside, scale, (cell) => (bands[numbers.at(cell)] || [])[1] ?? NaN);
    const {width, height} = this.data.frame;
    const stripe = Math.max(2, Math.round(Math.max(width, height) / 160));
    for (let cell = 0; areas.called && cell < width * height; cell += 1) {
      const across = (Math.floor(cell / width) + cell % width) / stripe;
      if (!areas.called[numbers.at(cell)] && Math.floor(across) % 2) {
        painted.indices[cell] = 0;
      }
    }
    return painted;
  }

  /** Return a function that tests whether a cell lies in the region. */
  async mask() {
    const array = await this.array('far');
    return (cell) => array.holds(cell);
  }

  painted(inside, scale, value) {
    const {width, height} = this.data.frame;
    const indices = new Uint8Array(width * height);
    const count = scale ? scale.colours.length : 0;
    let [least, most] = [0, 1];
    for (let cell = 0; scale && cell < indices.length; cell += 1) {
      if (inside(cell)) {
        const fraction = fractionOf(scale, value(cell));
        indices[cell] = colourAt(fraction, count);
        least = fraction < least ? fraction : least;
        most = fraction > most ? fraction : most;
      }
    }
    return {indices, beyond: [least < -BARELY, most > 1 + BARELY], scale};
  }

  quantiles(law, inside, scale, share) {
    if (!scale.logarithmic || scale.shift) {
      return this.painted(inside, scale, (cell) => valueOf(this.data, law.quantile(cell, share)));
    }
    // Positions on a logarithmic scale are linear in log10, and its quantiles are in log10.
    const low = Math.log10(scale.low);
    const flat = {logarithmic: false, low, high: Math.log10(scale.high), colours: scale.colours};
    return {...this.painted(inside, flat, (cell) => law.quantile(cell, share)), scale};
  }

  /** Colour by probability: compare normal scores with the scores at the edges of colours. */
  probabilities(law, inside, scale, threshold) {
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
    const modelled = modelledOf(this.data, threshold);
    const {width: columns, height: rows} = this.data.frame;
    const indices = new Uint8Array(columns * rows);
    for (let cell = 0; cell < indices.length; cell += 1) {
      if (inside(cell)) {
        const below = law.score(cell, modelled);
        const score = atMost ? below : -below;
        const bin = Math.floor((score + NORMAL_ENDS) / width);
        let passed = bin < 0 ? 0 : first[Math.min(bin, SCORE_BINS - 1)];
        while (passed < edges.length && edges[passed] <= score) {
          passed += 1;
        }
        indices[cell] = passed + 1;
      }
    }
    return {indices, beyond: [false, false], scale};
  }
}
