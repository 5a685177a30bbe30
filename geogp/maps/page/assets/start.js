/** Make the page of the data in it, with the map and the outlines that folium's script made. */
function startPage() {
  const data = JSON.parse(document.getElementById('geogp-data').textContent);
  // What is neither the map nor its base, if it has one, is an outline.
  const {map, base, ...outlines} = Object.fromEntries(
    Object.entries(data.variables).map(([name, variable]) => [name, window[variable]]));
  const page = new MapPage(map, data, outlines, data.words);
  window.geogp.page = page;
  window.geogp.ready = page.start().then(() => {
    document.documentElement.dataset.geogp = 'ready';
    performance.mark('geogp-ready');
  }).catch((error) => {
    say(`The map could not be drawn (${error.message}). It needs a browser of 2023 or later.`);
    throw error;
  });
}

/** Return a button below those of the zoom that shows all of the region. */
function homeControl(map, frame) {
  const home = L.control({position: 'topleft'});
  home.onAdd = () => {
    const box = element('div', 'leaflet-bar geogp-home');
    const button = element('button', '', '\u2302');
    Object.assign(button, {type: 'button', title: 'Show the whole region'});
    button.setAttribute('aria-label', button.title);
    button.addEventListener('click', () => map.fitBounds(
      cornersOf(frame), {animate: !stillWanted(), padding: [12, 12]}));
    L.DomEvent.disableClickPropagation(box);
    box.append(button);
    return box;
  };
  return home;
}

/** Say in place of the map why there is none. */
function say(text) {
  document.body.classList.add('geogp-failed');
  document.querySelector('.geogp-map').textContent = text;
}

window.geogp = {unpack, Law, normalShare, normalScore, cellAt, centreOf, cornersOf};
startPage();
