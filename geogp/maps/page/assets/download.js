const FORMULA = /^[=+\-@\t\r]/;

/** Names of columns for arrays whose own names are too short to understand alone. */
const COLUMNS = {
  tests: 'tests_all_quarters', none: 'p_none', expected: 'expected_tests',
  lower: 'lower_tests', upper: 'upper_tests',
};

/** Return a text as a field of a CSV file, which spreadsheets do not read as a formula. */
function csvField(value) {
  if (typeof value !== 'string') {
    return value === null ? '' : String(value);
  }
  const plain = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}

/** Return a cell as a frame of one tile of the world, whose columns start at 180 degrees west. */
function tileOf({zoom, column: first, row: top}, {column, row}) {
  const around = 2 ** zoom;
  return {
    zoom, column: ((first + column) % around + around) % around, row: top + row, width: 1, height: 1,
  };
}

function quadkeyOf({zoom, column, row}) {
  return Array.from({length: zoom}, (_, place) => {
    const bit = zoom - 1 - place;
    return (column >> bit & 1) + 2 * (row >> bit & 1);
  }).join('');
}

/** The downloads of the tiles in view or of all tiles, in the shown quarter. */
class Download {
  constructor(page) {
    this.page = page;
    for (const [kind, make] of [['csv', csvOf], ['geojson', geojsonOf]]) {
      document.getElementById(`geogp-${kind}`).addEventListener('click', async () => {
        const rows = await this.rows(document.getElementById('geogp-extent').value === 'view');
        const {data, state} = page;
        this.save(make(rows, data), `${data.target}-${data.quarters[state.quarter]}.${kind}`);
      });
    }
  }

  /** Return a function that returns the values of a cell in the shown quarter, by their names. */
  async columns() {
    const {data, reader, state, pictures: {painter}} = this.page;
    const law = data.levels && await painter.law(state.quarter);
    const tier = data.tiers && await painter.tiers.column(state);
    const unit = data.suffix;
    const names = Object.keys(data.arrays);
    const arrays = await Promise.all(names.map((name) => painter.array(name, state.quarter)));
    const classes = names.map((name) => data.layers.find(
      ({source, scale}) => source.array === name && scale.names.length));
    const short = (value) => (Number.isInteger(value) ? value
      : Number.isFinite(value) ? Number(value.toPrecision(4)) : null);
    return (number) => {
      const found = {};
      if (law) {
        ['lower', 'median', 'upper'].forEach((name, place) => {
          found[`${name}_${unit}`] = short(valueOf(data, law.band(number)[place]));
        });
        const side = data.threshold.at_most ? 'most' : 'least';
        const tag = `${state.threshold}`.replace('-', 'minus_');
        found[`p_at_${side}_${tag}_${unit}`] = short(
          law.probability(number, modelledOf(data, state.threshold), data.threshold.at_most));
      }
      if (tier) {
        found[tier.name] = short(tier.share(number));
      }
      names.forEach((name, place) => {
        const value = arrays[place].at(number);
        found[COLUMNS[name] || name] = data.names[name] ? reader.nameOf(name, value)
          : classes[place] ? layerWords(classes[place], value) : short(value);
      });
      return found;
    };
  }

  /** Return a row for each tile: the tile, and its values by name. */
  async rows(inView) {
    const {data, map, state} = this.page;
    const {frame} = data;
    const inside = await this.page.pictures.painter.mask();
    const view = map.getBounds();
    const values = await this.columns();
    const rows = [];
    for (let number = 0; number < frame.width * frame.height; number += 1) {
      const cell = {row: Math.floor(number / frame.width), column: number % frame.width};
      if (inside(number)) {
        const {lat, lng} = centreOf(frame, cell);
        if (!inView || view.contains([lat, lng])) {
          const tile = tileOf(frame, cell);
          const {lng: longitude} = centreOf(tile, {row: 0, column: 0});
          rows.push({tile, values: {
            quadkey: quadkeyOf(tile), longitude: round(longitude, 6), latitude: round(lat, 6),
            quarter: data.quarters[state.quarter], ...values(number),
          }});
        }
      }
    }
    return rows;
  }

  /** Offer a file whose parts are texts. */
  save({parts, type}, name) {
    const link = element('a');
    link.href = URL.createObjectURL(new Blob(parts, {type}));
    link.download = name;
    link.click();
    window.setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
}

function csvOf(rows, data) {
  const names = Object.keys(rows.length ? rows[0].values : {});
  const lines = rows.map(({values}) => `${names.map((name) => csvField(values[name])).join(',')}\n`);
  const words = `${data.title}. ${sizeWords(data)} ${data.attribution}`;
  const about = `# ${words.replace(/\s+/g, ' ')}\n`;
  return {parts: [about, `${names.join(',')}\n`, ...lines], type: 'text/csv'};
}

function geojsonOf(rows, data) {
  const {attribution, title} = data;
  const note = sizeWords(data) || undefined;
  const features = rows.map(({tile, values}, place) => {
    const box = cornersOf(tile);
    const [west, south, east, north] = [box.getWest(), box.getSouth(), box.getEast(), box.getNorth()]
      .map((one) => round(one, 6));
    const ring = [[west, south], [east, south], [east, north], [west, north], [west, south]];
    const {longitude, latitude, ...properties} = values;
    return (place ? ',\n' : '') + JSON.stringify(
      {type: 'Feature', properties, geometry: {type: 'Polygon', coordinates: [ring]}});
  });
  const head = JSON.stringify({type: 'FeatureCollection', title, note, attribution}).slice(0, -1);
  return {parts: [`${head},"features":[\n`, ...features, '\n]}\n'], type: 'application/geo+json'};
}
