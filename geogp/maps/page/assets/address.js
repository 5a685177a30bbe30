/** Return the state in an address, without parts that are missing or unknown. */
function readAddress(hash, data, layers) {
  const wishes = new URLSearchParams(hash.replace(/^#/, ''));
  const state = {};
  const numbers = (name, count) => {
    const found = (wishes.get(name) || '').split(',').map(Number);
    return wishes.get(name) && found.length === count && found.every(Number.isFinite)
      ? found : null;
  };
  if (layers.has(wishes.get('layer'))) {
    state.layer = wishes.get('layer');
  }
  if (layers.has(wishes.get('beside'))) {
    state.beside = wishes.get('beside');
  }
  const threshold = numbers('threshold', 1);
  if (threshold && data.threshold && data.threshold.values.includes(threshold[0])) {
    [state.threshold] = threshold;
  }
  const tier = data.tiers && readTier(wishes.get('tier') || '', data.tiers.targets);
  if (tier) {
    state.tier = tier;
  }
  const quarter = data.quarters.indexOf(wishes.get('quarter'));
  if (quarter >= 0) {
    state.quarter = quarter;
  }
  const split = numbers('split', 1);
  if (split && split[0] >= 0 && split[0] <= 1) {
    [state.split] = split;
  }
  const point = numbers('point', 2);
  if (point) {
    state.point = point;
  }
  const zoom = numbers('z', 1);
  const at = numbers('at', 2);
  if (zoom && at) {
    state.view = {zoom: zoom[0], at};
  }
  return state;
}

/** Return the address of a state and a view of the map. */
function writeAddress(state, view, data) {
  const parts = [['z', round(view.zoom, 2)], ['at', view.at.map((one) => round(one, 5)).join(',')],
    ['layer', encodeURIComponent(state.layer)]];
  if (state.threshold !== null) {
    parts.push(['threshold', state.threshold]);
  }
  if (state.tier !== null) {
    parts.push(['tier', state.tier.map((value) => value ?? 'any')]);
  }
  if (data.quarters.length > 1) {
    parts.push(['quarter', encodeURIComponent(data.quarters[state.quarter])]);
  }
  if (state.beside !== null) {
    parts.push(['beside', encodeURIComponent(state.beside)], ['split', round(state.split, 3)]);
  }
  if (state.point !== null) {
    parts.push(['point', state.point.map((one) => round(one, 5)).join(',')]);
  }
  return `#${parts.map(([name, value]) => `${name}=${value}`).join('&')}`;
}

function round(value, digits) {
  return Number(value.toFixed(digits));
}

/** Keeps the state and the view of the map in the address of the page. */
class Address {
  constructor(map, page) {
    this.map = map;
    this.page = page;
    this.waiting = null;
    map.on('moveend', () => this.write());
    window.addEventListener('hashchange', () => this.read());
  }

  /** Set the state and the view from the address; return whether the address has a view. */
  read() {
    const {view, ...state} = readAddress(window.location.hash, this.page.data, this.page.layers);
    if (view) {
      this.map.setView(view.at, view.zoom, {animate: false});
    }
    this.page.update({...this.page.usual(), ...state});
    return Boolean(view);
  }

  /** Write the state and the view into the address after a delay; browsers limit the rate. */
  write() {
    window.clearTimeout(this.waiting);
    this.waiting = window.setTimeout(() => this.writeNow(), 120);
  }

  writeNow() {
    const {lat, lng} = this.map.getCenter();
    const view = {zoom: this.map.getZoom(), at: [lat, lng]};
    const address = writeAddress(this.page.state, view, this.page.data);
    if (address !== window.location.hash) {
      window.history.replaceState(null, '', address);
    }
  }
}
