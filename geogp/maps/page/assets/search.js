const QUADKEY = /^[0-3]{6,23}$/;
const DEGREES = '([-+\u2212]?\\d+(?:\\.\\d+)?)\\s*°?\\s*';
const COORDINATES = new RegExp(`^${DEGREES}([NS]?)\\s*[,;\\s]\\s*${DEGREES}([EW]?)$`, 'i');

/** Return a place for a text with latitude and longitude, or null. */
function placeOfCoordinates(text) {
  const [, latitude, south, longitude, west] = COORDINATES.exec(text) || [];
  const [lat, lng] = [[latitude, south], [longitude, west]].map(
    ([number, side]) => Number((number || '').replace('\u2212', '-')) * (/[sw]/i.test(side) ? -1 : 1));
  if (latitude === undefined || Math.abs(lat) > 85 || Math.abs(lng) > 360) {
    return null;
  }
  return {words: coordinates(L.latLng(lat, lng)), bounds: [lat, lng, lat, lng], point: [lat, lng]};
}

/** Return a place for the quadkey of a tile, or null. */
function placeOfQuadkey(text) {
  if (!QUADKEY.test(text)) {
    return null;
  }
  let [column, row] = [0, 0];
  for (const digit of text) {
    column = 2 * column + Number(digit) % 2;
    row = 2 * row + Math.floor(Number(digit) / 2);
  }
  const tile = {zoom: text.length, column, row, width: 1, height: 1};
  const box = cornersOf(tile);
  const {lat, lng} = centreOf(tile, {row: 0, column: 0});
  return {
    words: `tile ${text}`, point: [lat, lng],
    bounds: [box.getSouth(), box.getWest(), box.getNorth(), box.getEast()],
  };
}

/** The search for counties, urban areas, towns, coordinates and tiles. */
class Search {
  constructor(page) {
    this.page = page;
    this.places = page.data.places.map(({name, kind, bounds, at}) => {
      const [south, west, north] = bounds;
      return {name, kind, bounds, at, words: `${name}, ${kind}`, point: south === north && [south, west]};
    });
    const form = document.getElementById('geogp-search');
    this.field = document.getElementById('geogp-search-field');
    this.answer = document.getElementById('geogp-search-answer');
    const list = document.getElementById('geogp-places');
    for (const {words} of this.places) {
      const option = element('option');
      option.value = words;
      list.append(option);
    }
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.go(this.find(this.field.value));
    });
    this.field.addEventListener('input', () => {
      const chosen = this.places.find(({words}) => words === this.field.value);
      if (chosen) {
        this.go(chosen);
      }
    });
  }

  /**
   * Return the place of coordinates, a quadkey or an H3 cell, or the first place whose label or name is a
   * text; else whose label begins with the text; else whose label contains the text.
   */
  find(text) {
    const plain = (words) => words.normalize('NFD').replace(/\p{M}/gu, '').trim().toLowerCase();
    const wish = plain(text);
    const tests = [
      ({words}) => plain(words) === wish,
      ({name}) => plain(name) === wish,
      ({words}) => plain(words).startsWith(wish),
      ({words}) => plain(words).includes(wish),
    ];
    return placeOfCoordinates(text.trim()) || placeOfQuadkey(text.trim()) || placeOfH3(text.trim())
      || (wish ? tests.map((test) => this.places.find(test)).find(Boolean) : undefined);
  }

  /** Show a place, mark it, and open the card of a tile in its middle. */
  async go(place) {
    const {page} = this;
    if (!place) {
      const text = this.field.value.trim();
      this.answer.textContent = H3_INDEX.test(text)
        ? `There is no H3 cell ${text}.`
        : text && `No county or town called ${text} on this map.${page.data.towns_left_out} The search `
          + 'finds names of places and coordinates; no addresses or ZIP codes.';
      return;
    }
    const [south, west, north, east] = place.bounds;
    const corners = [[south, west], [north, east]];
    const words = `The map shows ${place.words}.`;
    this.answer.textContent = place.point ? '' : words;
    const maxZoom = place.name && place.point ? 12 : 14;
    fitBeside(page.map, corners, 30, {card: true, maxZoom, animate: !stillWanted()});
    page.panel.fold();
    await page.update({point: place.point || await this.middle(place)});
    if (place.point) {
      const inside = await page.reader.read(L.latLng(place.point), page.state);
      this.answer.textContent = inside ? words : `Outside the region: ${place.words}.`;
    } else {
      L.rectangle(corners, {
        color: styleColour('ink'), weight: 2, dashArray: '6 5', fill: false, interactive: false,
      }).addTo(page.found);
    }
  }

  /** Return the tile of a county or an urban area nearest to the place in it. */
  async middle({name, kind, at, bounds: [south, west, north, east]}) {
    const {data, pictures: {painter}} = this.page;
    const {frame} = data;
    const inside = await painter.mask();
    const number = kind === 'county' ? data.names.county.indexOf(name) : -1;
    const county = number >= 0 ? await painter.array('county') : null;
    const middle = L.latLng(at);
    const [low, high] = [[north, west], [south, east]].map(
      ([lat, lng]) => cellAt(frame, L.latLng(lat, lng)) || {});
    let [best, least] = [middle, Infinity];
    for (let row = low.row || 0; row <= (high.row ?? frame.height - 1); row += 1) {
      for (let column = low.column || 0; column <= (high.column ?? frame.width - 1); column += 1) {
        const cell = row * frame.width + column;
        if (inside(cell) && (!county || county.at(cell) === number)) {
          const place = centreOf(frame, {row, column});
          const distance = distanceKm(place, middle);
          [best, least] = distance < least ? [place, distance] : [best, least];
        }
      }
    }
    return [best.lat, best.lng];
  }
}
