/** The page, whose state the map, the panel, the legends, the card and the address show. */
class MapPage {
  /**
   * @param {object} map Leaflet's map.
   * @param {object} data The page's data.
   * @param {object} outlines Leaflet's layers `boundary`, `urban` and `counties`, if any.
   * @param {object} words Names of marks that differ from the usual names.
   */
  constructor(map, data, outlines, words) {
    Object.assign(this, {map, data, outlines, words});
    this.layers = new Map(data.layers.map((layer) => [layer.id, layer]));
    if (data.kernel) {
      this.layers.set('live', {
        id: 'live',
        title: 'Kernel: from a place you choose',
        label: `kernel k(x, x*), ${data.kernel.unit}`,
        hint: `How strongly the clicked place x* influences the smooth field at each place. ${
          kernelErrorWords(data.kernel)}`,
        group: 'How the model thinks',
        source: {live: true},
      });
    }
    /** The layers' ids by the question that the layers answer. */
    this.groups = new Map();
    for (const [id, {group}] of this.layers) {
      this.groups.set(group, [...this.groups.get(group) || [], id]);
    }
    this.marks = marksOf(data, outlines);
    this.placeBoxes();
    this.state = this.usual();
    this.pictures = new Pictures(map, data, this.layers);
    this.reader = new Reader(data, this.pictures.painter);
    this.card = new PlaceCard(map, this);
    this.panel = new Panel(this);
    this.legends = new Legends(this);
    this.divider = new Divider(map, this);
    this.found = L.layerGroup().addTo(map);
    this.search = new Search(this);
    this.names = new Names(map, data.places);
    this.download = new Download(this);
    this.address = new Address(map, this);
    this.references = L.layerGroup().addTo(map);
    map.on('zoomend', () => thinOutlines(map, outlines));
    this.work = null;
  }

  /** Put legends and card over the map as Leaflet's controls, which do not overlap. */
  placeBoxes() {
    for (const [id, position] of [['geogp-legend', 'bottomleft'],
      ['geogp-legend-beside', 'bottomright'], ['geogp-place', 'topright']]) {
      const box = document.getElementById(id);
      const control = L.control({position});
      control.onAdd = () => box;
      control.addTo(this.map);
      L.DomEvent.disableClickPropagation(box).disableScrollPropagation(box);
    }
    L.control.scale({position: 'bottomleft'}).addTo(this.map);
    homeControl(this.map, this.data.frame).addTo(this.map);
  }

  /** Return the state of a page whose address has no state. */
  usual() {
    const {data} = this;
    return {
      layer: data.layers[0].id,
      beside: null,
      split: 0.5,
      threshold: data.threshold ? data.threshold.shown : null,
      tier: data.tiers ? data.tiers.choices[data.tiers.shown].values : null,
      quarter: data.shown,
      point: null,
      marks: this.state ? this.state.marks
        : Object.fromEntries(this.marks.map(({name, shown}) => [name, shown])),
    };
  }

  /** Change the state, and show it. */
  update(changes) {
    this.state = {...this.state, ...changes};
    if ('point' in changes) {
      this.found.clearLayers();
    }
    const {state} = this;
    this.panel.show(state);
    this.divider.show(state);
    this.showOutlines(state);
    this.showReferences(state);
    this.address.write();
    const painted = this.pictures.show(state).then(() => state === this.state && this.legends.show(state));
    this.work = Promise.all([painted, this.card.show(state, this.reader)]);
    return this.work;
  }

  /** Wait until the page shows its latest state. */
  async settled() {
    let work = null;
    while (work !== this.work) {
      work = this.work;
      await work;
    }
  }

  showOutlines({marks}) {
    for (const [name, drawn] of Object.entries(this.outlines)) {
      const wanted = marks[name] !== false;
      if (drawn && wanted !== this.map.hasLayer(drawn)) {
        (wanted ? drawn.addTo(this.map) : drawn.remove());
      }
    }
  }

  /** Draw outlines and marks in the colours of the style sheet. */
  recolour() {
    thinOutlines(this.map, this.outlines);
    this.pictures.forget();
    if (this.work) {
      this.update({});
    }
  }

  /** Mark the reference points of the kernel slices shown. */
  showReferences(state) {
    this.references.clearLayers();
    for (const id of [state.layer, state.beside]) {
      const layer = this.layers.get(id);
      if (layer && layer.point) {
        const {latitude, longitude, text} = layer.point;
        L.circleMarker([latitude, longitude], {
          radius: 7, color: '#111', weight: 2, fillColor: '#ffd92f', fillOpacity: 1,
        }).bindTooltip(element('span', '', text)).addTo(this.references);
      }
    }
  }

  /** Return names and values of the shown kernel layers at a place, as texts. */
  async kernelWords(place, state) {
    const words = [];
    for (const id of new Set([state.layer, state.beside])) {
      const layer = this.layers.get(id);
      if (layer && layer.source.live) {
        const components = await this.pictures.painter.kernel.componentsAt([place.lat, place.lng]);
        words.push({
          name: 'Kernel with itself, k(x*, x*)',
          value: components
            ? formatNumber(components.reduce((sum, one) => sum + one * one, 0), 3) : 'none here',
        });
      } else if (layer && 'slice' in layer.source) {
        const array = await unpack(this.data.slices[layer.source.slice]);
        const cell = cellAt(this.data.frame, place);
        const value = cell ? array.at(cell.number) : NaN;
        words.push({name: layer.title, value: formatNumber(value, 3)});
      }
    }
    return words;
  }

  /** Choose a place, as a click on the map does. */
  async choose(place) {
    const {lat, lng} = place;
    await this.update({point: [lat, lng]});
    this.card.uncover(place);
  }

  /** Listen to events of the map, and show the state in the address. */
  start() {
    const {map, data} = this;
    // The cross and the ring around the map are shown only while the user works with keys.
    document.addEventListener('keydown', () => document.body.classList.add('geogp-keys'), true);
    document.addEventListener(
      'pointerdown', () => document.body.classList.remove('geogp-keys'), true);
    const box = map.getContainer();
    box.setAttribute('role', 'application');
    box.setAttribute('aria-label', 'Map. Arrow keys move the map, plus and minus zoom, Enter reads '
      + 'the place under the cross in the middle.');
    map.on('click', (event) => this.choose(event.latlng));
    box.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && event.target === box) {
        this.choose(map.getCenter());
      } else if (event.key === 'Escape' && this.state.point !== null) {
        this.update({point: null});
      }
    });
    // The size of the map's box also changes with the panel of a phone and in print.
    new ResizeObserver(() => {
      const {x, y} = map.getSize();
      if (box.clientWidth !== x || box.clientHeight !== y) {
        map.invalidateSize({animate: false});
      }
    }).observe(box);
    map.invalidateSize({animate: false});
    const [south, west, north, east] = data.view;
    fitBeside(map, [[south, west], [north, east]], 12, {animate: false});
    this.address.read();
    return this.settled();
  }
}
