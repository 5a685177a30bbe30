const MOST_NAMES = 60;

/** Names of counties and towns, for a page whose base map is missing. */
class Names {
  constructor(map, places) {
    this.map = map;
    const size = ({bounds: [south, west, north, east]}) => (north - south) * (east - west);
    this.places = places.slice().sort((one, other) => size(other) - size(one));
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

  /** Draw the names of the largest places in view that do not overlap, each name once. */
  draw() {
    this.group.clearLayers();
    if (!this.map.hasLayer(this.group)) {
      return;
    }
    const view = L.bounds([0, 0], this.map.getSize());
    const drawn = [];
    for (const {name, bounds: [south, west, north, east]} of this.places) {
      const middle = [(south + north) / 2, (west + east) / 2];
      const at = this.map.latLngToContainerPoint(middle);
      const reach = L.point(4 * name.length + 6, 11);
      const box = L.bounds(at.subtract(reach), at.add(reach));
      const taken = drawn.some((one) => one.name === name || one.box.intersects(box));
      if (drawn.length < MOST_NAMES && view.contains(at) && !taken) {
        drawn.push({name, box});
        const icon = L.divIcon({className: 'geogp-name', html: element('span', '', name), iconSize: null});
        L.marker(middle, {
          icon, interactive: false, keyboard: false, pane: 'geogp-pane-names',
        }).addTo(this.group);
      }
    }
  }
}
