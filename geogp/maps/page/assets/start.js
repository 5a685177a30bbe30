/** Make the page from its data, with the map and the outlines of folium's script. */
function startPage() {
  const data = JSON.parse(document.getElementById('geogp-data').textContent);
  addAnswers(data.layers);
  // All variables except the map and its base map are outlines.
  const {map, base, ...outlines} = Object.fromEntries(
    Object.entries(data.variables).map(([name, variable]) => [name, window[variable]]));
  const page = new MapPage(map, data, outlines, data.words);
  followScheme(page, base);
  page.names.follow(base);
  window.geogp.page = page;
  window.geogp.ready = page.start().then(() => {
    document.documentElement.dataset.geogp = 'ready';
    performance.mark('geogp-ready');
  }).catch((error) => {
    say(`The map could not be drawn (${error.message}). It needs a browser from 2023 or later.`);
    throw error;
  });
}

/** Show the page in the light or dark colours of the system, also after a change. */
function followScheme(page, base) {
  const dark = window.matchMedia('screen and (prefers-color-scheme: dark)');
  const streets = base && base._url;
  const show = () => {
    const wanted = dark.matches ? streets?.replace('light_all', 'dark_all') : streets;
    if (wanted !== base?._url) {
      // Leaflet's own redraw asks for tiles of fractional zooms, so the layer is added anew.
      base.setUrl(wanted, true);
      if (page.map.hasLayer(base)) { base.remove().addTo(page.map); }
    }
    page.recolour();
  };
  dark.addEventListener('change', show);
  show();
}

/** Return a button below the zoom buttons that shows the whole region. */
function homeControl(map, frame) {
  const home = L.control({position: 'topleft'});
  home.onAdd = () => {
    const box = element('div', 'leaflet-bar geogp-home');
    const button = element('button', '', '\u2302');
    Object.assign(button, {type: 'button', title: 'Show the whole region'});
    button.setAttribute('aria-label', button.title);
    button.addEventListener('click', () => fitBeside(
      map, cornersOf(frame), 12, {animate: !stillWanted()}));
    L.DomEvent.disableClickPropagation(box);
    box.append(button);
    return box;
  };
  return home;
}

/** Show a text instead of the map. */
function say(text) {
  document.body.classList.add('geogp-failed');
  document.querySelector('.geogp-map').textContent = text;
}

window.geogp = {unpack, placeOfH3, Law, normalShare, normalScore, cellAt, centreOf, cornersOf};
startPage();
