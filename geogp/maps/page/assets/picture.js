const LAYER_OPACITY = 0.82;
const FAR_OPACITY = 185;

/** One picture on the map, in its own pane; it is painted again only if its key changes. */
class Picture {
  constructor(map, frame, pane, height, opacity) {
    this.map = map;
    this.frame = frame;
    this.name = pane;
    this.pane = map.createPane(pane);
    this.pane.style.zIndex = height;
    this.pane.style.pointerEvents = 'none';
    this.opacity = opacity;
    this.key = null;
    this.overlay = null;
    this.painted = {scale: null, beyond: [false, false]};
    this.busy = Promise.resolve();
  }

  /** Show the picture that `paint` makes, unless it is already shown; show nothing for null. */
  show(key, paint) {
    if (key === this.key) {
      return this.busy;
    }
    this.key = key;
    if (key === null) {
      this.remove();
      return this.busy;
    }
    // Paint one picture after the other; if several requests wait, paint only the last.
    this.busy = this.busy.catch(() => {}).then(async () => {
      if (key !== this.key) {
        return;
      }
      const painted = await paint();
      if (key === this.key) {
        this.painted = painted;
        this.draw(painted);
      }
    });
    return this.busy;
  }

  draw({indices, pixels}) {
    const {width, height} = this.frame;
    if (!this.overlay) {
      this.canvas = document.createElement('canvas');
      Object.assign(this.canvas, {width, height});
    }
    const context = this.canvas.getContext('2d');
    const image = context.createImageData(width, height);
    const shades = new Uint32Array(image.data.buffer);
    for (let cell = 0; cell < indices.length; cell += 1) {
      shades[cell] = pixels[indices[cell]];
    }
    context.putImageData(image, 0, 0);
    this.overlay = this.overlay || canvasOverlay(this.canvas, this.frame, {
      pane: this.name, opacity: this.opacity, interactive: false,
    }).addTo(this.map);
  }

  remove() {
    if (this.overlay) {
      this.overlay.remove();
    }
    this.overlay = null;
  }
}

/** The pictures of the map: the chosen layer, the compared layer, and the marks. */
class Pictures {
  constructor(map, data, layers) {
    this.map = map;
    this.data = data;
    this.layers = layers;
    this.painter = new Painter(data);
    this.main = new Picture(map, data.frame, 'geogp-pane-main', 310, LAYER_OPACITY);
    this.beside = new Picture(map, data.frame, 'geogp-pane-beside', 320, LAYER_OPACITY);
    this.far = new Picture(map, data.frame, 'geogp-pane-far', 330, 1);
    this.measured = new Picture(map, data.frame, 'geogp-pane-measured', 340, 1);
    map.on('move viewreset resize zoomend', () => this.clip());
  }

  /** Show a state of the page; the promise resolves when all pictures are painted. */
  show(state) {
    this.split = state.beside === null ? null : state.split;
    this.clip();
    const {marks} = state;
    return Promise.all([
      this.showLayer(this.main, state.layer, state),
      this.showLayer(this.beside, state.beside, state),
      this.far.show(marks.far ? 'far' : null, () => this.mark('far', 'far', FAR_OPACITY)),
      this.measured.show(
        marks.measured ? 'measured' : null, () => this.mark('tests', 'measured', 255)),
    ]);
  }

  showLayer(picture, id, state) {
    const layer = this.layers.get(id);
    if (!layer) {
      return picture.show(null);
    }
    return picture.show(this.painter.key(layer, state), async () => {
      const painted = await this.painter.paint(layer, state);
      return {...painted, pixels: pixelsOf(painted.scale)};
    });
  }

  /** Paint the marks again when they are next shown. */
  forget() {
    this.far.key = null;
    this.measured.key = null;
  }

  /** Mark the tiles of the region where an array is above 0, in a colour of the style sheet. */
  async mark(name, colour, alpha) {
    const {frame} = this.data;
    const [array, inside] = await Promise.all([this.painter.array(name), this.painter.mask()]);
    const indices = new Uint8Array(frame.width * frame.height);
    for (let cell = 0; cell < indices.length; cell += 1) {
      indices[cell] = inside(cell) && array.at(cell) > 0 ? 1 : 0;
    }
    return {indices, pixels: new Uint32Array([0, pixelOf(styleColour(colour), alpha)])};
  }

  /** Clip the two pictures at the divider. */
  clip() {
    const size = this.map.getSize();
    const [west, north] = this.corner([0, 0]);
    const [east, south] = this.corner([size.x, size.y]);
    const cut = this.split === null ? null : west + this.split * (east - west);
    const box = (left, right) => `polygon(${left}px ${north}px, ${right}px ${north}px, `
      + `${right}px ${south}px, ${left}px ${south}px)`;
    this.main.pane.style.clipPath = cut === null ? '' : box(west, cut);
    this.beside.pane.style.clipPath = cut === null ? '' : box(cut, east);
  }

  corner(point) {
    const found = this.map.containerPointToLayerPoint(point);
    return [found.x, found.y];
  }
}

/** For each outline: zooms of full and least width, least relative width, and opacity. */
const OUTLINES_FROM_AFAR = {
  boundary: {whole: 11, thinnest: 5, least: 0.4, pale: 1},
  counties: {whole: 11, thinnest: 5, least: 0.4, pale: 1},
  // Towns lie so close together in some regions that their outlines would hide the map.
  urban: {whole: 12, thinnest: 8, least: 0.3, pale: 0.55},
};

/** Draw outlines in the colours of the style sheet; thinner and paler when zoomed out. */
function thinOutlines(map, outlines) {
  for (const [name, drawn] of Object.entries(outlines).filter(([, found]) => found)) {
    const {whole, thinnest, least, pale} = OUTLINES_FROM_AFAR[name];
    const near = Math.min(1, Math.max(0, (map.getZoom() - thinnest) / (whole - thinnest)));
    drawn.fullWeight = drawn.fullWeight || drawn.options.weight;
    drawn.setStyle({
      color: styleColour(name),
      weight: drawn.fullWeight * Math.max(least, near), opacity: pale + near * (1 - pale),
    });
  }
}
