/**
 * A rectangle of tiles of Web Mercator; (column, row) is the tile in the north-west corner.
 * @typedef {{zoom: number, column: number, row: number, width: number, height: number}} Frame
 */

const TILE_PIXELS = 256;
const EARTH_RADIUS_KM = 6371.0088;

/** Return whether the user prefers no motion. */
function stillWanted() {
  return window.matchMedia('(prefers-reduced-motion: reduce)').matches;
}

/** Return latitude and longitude of a point with coordinates in tiles of a zoom. */
function placeOfTile(zoom, column, row) {
  return L.CRS.EPSG3857.pointToLatLng(L.point(column * TILE_PIXELS, row * TILE_PIXELS), zoom);
}

/** Return the outer corners of a frame, or of one cell of the frame. */
function cornersOf(frame, cell = null) {
  const column = frame.column + (cell ? cell.column : 0);
  const row = frame.row + (cell ? cell.row : 0);
  const [width, height] = cell ? [1, 1] : [frame.width, frame.height];
  return L.latLngBounds(
    placeOfTile(frame.zoom, column, row), placeOfTile(frame.zoom, column + width, row + height));
}

/** Return column, row and number of the cell at a place, or null outside the frame. */
function cellAt(frame, place) {
  const point = L.CRS.EPSG3857.latLngToPoint(place, frame.zoom).divideBy(TILE_PIXELS);
  const around = 2 ** frame.zoom;
  // The map repeats around the world, so a place can have several columns.
  const column = ((Math.floor(point.x) - frame.column) % around + around) % around;
  const row = Math.floor(point.y) - frame.row;
  if (column >= frame.width || row < 0 || row >= frame.height) {
    return null;
  }
  return {column, row, number: row * frame.width + column};
}

/**
 * Return the two cells with the nearest centres on a line of cells, and the position of a place
 * between these centres (0 to 1); geogp.maps.page.kernel_error has the same rule.
 */
function beside(at, count) {
  const within = Math.min(Math.max(at - 0.5, 0), count - 1);
  const first = Math.min(Math.floor(within), Math.max(count - 2, 0));
  return {first, second: Math.min(first + 1, count - 1), share: within - first};
}

/** Return for each cell of a frame the number of the cell of a larger zoom's frame around it. */
function placesIn(larger, frame) {
  const shift = frame.zoom - larger.zoom;
  const found = new Uint32Array(frame.width * frame.height);
  for (let row = 0, cell = 0; row < frame.height; row += 1) {
    const start = ((frame.row + row >> shift) - larger.row) * larger.width - larger.column;
    for (let column = 0; column < frame.width; column += 1, cell += 1) {
      found[cell] = start + (frame.column + column >> shift);
    }
  }
  return found;
}

/** Return the numbers of the four cells with centres around a place, and their weights. */
function middlesAround(frame, place) {
  const point = L.CRS.EPSG3857.latLngToPoint(place, frame.zoom).divideBy(TILE_PIXELS);
  const world = 2 ** frame.zoom;
  const across = beside(((point.x - frame.column) % world + world) % world, frame.width);
  const down = beside(point.y - frame.row, frame.height);
  return [[down.first, 1 - down.share], [down.second, down.share]].flatMap(([row, high]) => [
    {number: row * frame.width + across.first, weight: high * (1 - across.share)},
    {number: row * frame.width + across.second, weight: high * across.share}]);
}

/** Interpolate values at cell centres of a frame bilinearly to cell centres of a finer frame. */
function stretched(frame, values, fine) {
  const size = 2 ** (frame.zoom - fine.zoom);
  const found = new Float64Array(fine.width * fine.height);
  const across = Array.from({length: fine.width}, (_, column) => beside(
    (fine.column + column + 0.5) * size - frame.column, frame.width));
  const line = new Float64Array(frame.width);
  for (let row = 0; row < fine.height; row += 1) {
    const down = beside((fine.row + row + 0.5) * size - frame.row, frame.height);
    for (let column = 0; column < frame.width; column += 1) {
      const high = values[down.first * frame.width + column];
      const low = values[down.second * frame.width + column];
      line[column] = high + down.share * (low - high);
    }
    for (let column = 0; column < fine.width; column += 1) {
      const {first, second, share} = across[column];
      found[row * fine.width + column] = line[first] + share * (line[second] - line[first]);
    }
  }
  return found;
}

/** Return the place in the middle of a cell. */
function centreOf(frame, cell) {
  return placeOfTile(frame.zoom, frame.column + cell.column + 0.5, frame.row + cell.row + 0.5);
}

/** Return the width of a tile on the ground in km, in a row, by default in the middle row. */
function tileKm(frame, row = frame.height / 2) {
  const middle = placeOfTile(frame.zoom, frame.column, frame.row + row);
  const around = 2 * Math.PI * 6378.137;
  return around * Math.cos(middle.lat * Math.PI / 180) / 2 ** frame.zoom;
}

/** Return the distance of two places in km, along the sphere. */
function distanceKm(one, other) {
  const radians = Math.PI / 180;
  const up = Math.sin((other.lat - one.lat) * radians / 2);
  const across = Math.sin((other.lng - one.lng) * radians / 2);
  const chord = up * up
    + Math.cos(one.lat * radians) * Math.cos(other.lat * radians) * across * across;
  return 2 * EARTH_RADIUS_KM * Math.asin(Math.min(1, Math.sqrt(chord)));
}

/** Add up an array over the cells whose centres are within a distance in km of a cell's centre. */
function sumWithin(frame, array, cell, reachKm) {
  const here = centreOf(frame, cell);
  const reach = Math.ceil(reachKm / tileKm(frame, cell.row)) + 1;
  let total = 0;
  let cells = 0;
  for (let row = Math.max(0, cell.row - reach);
    row <= Math.min(frame.height - 1, cell.row + reach); row += 1) {
    for (let column = Math.max(0, cell.column - reach);
      column <= Math.min(frame.width - 1, cell.column + reach); column += 1) {
      const value = array.at(row * frame.width + column);
      if (value > 0 && distanceKm(here, centreOf(frame, {column, row})) <= reachKm) {
        total += value;
        cells += 1;
      }
    }
  }
  return {total, cells};
}

/** A canvas stretched between the corners of a frame, with one pixel per tile. */
let CanvasOverlay = null;

/** Return a canvas overlay for a frame; Leaflet must be loaded. */
function canvasOverlay(canvas, frame, options) {
  CanvasOverlay = CanvasOverlay || L.ImageOverlay.extend({
    _initImage() {
      this._image = this._url;
      this._image.classList.add('leaflet-image-layer');
      if (this._zoomAnimated) {
        this._image.classList.add('leaflet-zoom-animated');
      }
    },
  });
  return new CanvasOverlay(canvas, cornersOf(frame), options);
}
