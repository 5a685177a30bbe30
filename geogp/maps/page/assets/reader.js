const REACH_KM = 2;
const INTERVALS = [[0.25, 0.75, '50 %'], [0.1, 0.9, '80 %'], [0.025, 0.975, '95 %']];
const CAUTIOUS_SHARE = 0.05;

/** Reads all values of the page at a place. */
class Reader {
  constructor(data, painter) {
    this.data = data;
    this.painter = painter;
  }

  /**
   * Return all values at a place, or null outside the region.
   * @param {object} place Leaflet's latitude and longitude.
   * @param {object} state The page's state.
   */
  async read(place, state) {
    const {data, painter} = this;
    const cell = cellAt(data.frame, place);
    const inside = await painter.mask();
    if (cell === null || !inside(cell.number)) {
      return null;
    }
    const names = Object.keys(data.arrays);
    const arrays = await Promise.all(names.map((name) => painter.array(name, state.quarter)));
    const at = {};
    names.forEach((name, number) => { at[name] = arrays[number].at(cell.number); });
    const tests = arrays[names.indexOf('tests')];
    return {
      cell,
      frame: data.frame,
      place: centreOf(data.frame, cell),
      stratum: this.nameOf('stratum', at.stratum),
      county: this.nameOf('county', at.county),
      far: at.far > 0,
      tests: tests ? at.tests : null,
      near: tests ? sumWithin(data.frame, tests, cell, REACH_KM) : null,
      arrays: at,
      law: data.levels ? await this.readLaw(cell.number, state) : null,
      level: data.level && state.quarter === data.shown
        ? valueOf(data, (await unpack(data.level)).at(cell.number)) : null,
      tier: data.tiers && await painter.tiers.at(cell.number, state),
    };
  }

  /**
   * Return what is predicted for a cell in every quarter, [low, middle, high], and what was measured,
   * NaN if nothing; null for classes, and for a page with one quarter. A line joins only quarters with
   * tiles of the same size.
   */
  async history(cell) {
    const {data, painter} = this;
    if (!data.past || data.classes.length) {
      return null;
    }
    const bands = await Promise.all(data.quarters.map(async (_, quarter) => {
      if (data.levels) {
        return (await painter.law(quarter)).band(cell).map((end) => valueOf(data, end));
      }
      const arrays = ['lower', 'expected', 'upper'].map((name) => painter.array(name, quarter));
      return (await Promise.all(arrays)).map((array) => array.at(cell));
    }));
    const note = sizeWords(data) && `${sizeWords(data)} Measured values are those of the tile.`;
    const [own, last] = [data.shown, bands.length - 1];
    const parts = note ? [[0, own - 1], [own, own], [own + 1, last]] : [[0, last]];
    return {
      bands, measured: await this.measured(cell), note, parts: parts.filter(([from, to]) => from <= to),
    };
  }

  /** Return the measured values of a cell in all quarters, NaN if there are none. */
  async measured(cell) {
    const {data, painter} = this;
    const none = data.quarters.map(() => NaN);
    const tests = await painter.array('tests');
    if (!data.measured || !(tests.at(cell) > 0)) {
      return none;
    }
    const values = await unpack(data.measured);
    let column = 0;
    for (let before = 0; before < cell; before += 1) {
      column += tests.at(before) > 0 ? 1 : 0;
    }
    return none.map((_, quarter) => {
      const value = values.at(quarter * values.shape[1] + column);
      return data.levels ? valueOf(data, value) : value;
    });
  }

  nameOf(kind, number) {
    const names = this.data.names && this.data.names[kind];
    return names && Number.isFinite(number) && names[number] !== undefined ? names[number] : null;
  }

  /** Return median, intervals, bound and probability in the shown quarter. */
  async readLaw(number, state) {
    const {data, painter} = this;
    const law = await painter.law(state.quarter);
    const at = (share) => valueOf(data, law.quantile(number, share));
    return {
      median: at(0.5),
      intervals: INTERVALS.map(([low, high, name]) => ({name, low: at(low), high: at(high)})),
      bound: at(data.bound === 'upper' ? 1 - CAUTIOUS_SHARE : CAUTIOUS_SHARE),
      probability: data.threshold && state.threshold !== null
        ? law.probability(number, modelledOf(data, state.threshold), data.threshold.at_most) : null,
    };
  }
}
