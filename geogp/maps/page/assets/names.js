const MOST_NAMES = 40;

/** Names of towns, else of counties and urban areas, for a page whose base map is missing. */
class Names {
  constructor(map, places) {
    this.map = map;
    const size = ({bounds: [south, west, north, east]}) => (north - south) * (east - west);
    const towns = places.filter(({at}) => !at).map(({name, bounds}) => ({name, at: bounds.slice(0, 2)}));
    // Towns are in the order of their population.
    this.places = towns.length ? towns : places.slice().sort((one, other) => size(other) - size(one));
    this.group = L.layerGroup();
    const pane = map.createPane('geogp-pane-names');
    Object.assign(pane.style, {zIndex: 350, pointerEvents: 'none'});
    map.on('zoomend moveend resize', () => this.draw());
  }

  /** Show the names while the base map does not load; without a base map, always. */
  follow(base) {
    if (!base) {
      this.show(true);
      return;
    }
    base.on('tileerror', () => this.show(true));
    base.on('tileload', () => this.show(false));
  }

  show(wanted) {
    if (wanted !== this.map.hasLayer(this.group)) {
      (wanted ? this.group.addTo(this.map) : this.group.remove());
      this.draw();
    }
  }

  /** Draw the names of the largest places in view, if they do not overlap, each name once. */
  draw() {
    this.group.clearLayers();
    if (!this.map.hasLayer(this.group)) {
      return;
    }
    const view = L.bounds([0, 0], this.map.getSize());
    const drawn = [];
    const largest = this.places.map(({name, at}) => ({name, at, point: this.map.latLngToContainerPoint(at)}))
      .filter(({point}) => view.contains(point)).slice(0, MOST_NAMES);
    for (const {name, at, point} of largest) {
      const reach = L.point(4 * name.length + 6, 11);
      const box = L.bounds(point.subtract(reach), point.add(reach));
      if (!drawn.some((one) => one.name === name || one.box.intersects(box))) {
        drawn.push({name, box});
        const icon = L.divIcon({className: 'geogp-name', html: element('span', '', name), iconSize: null});
        L.marker(at, {
          icon, interactive: false, keyboard: false, pane: 'geogp-pane-names',
        }).addTo(this.group);
      }
    }
  }
}
