const CARD_ROOM = 310;
const WIDE_MAP = 900;

/** Show bounds; on a wide map, beside the card if the card is or will be open. */
function fitBeside(map, bounds, space, {card = false, ...options}) {
  const open = card || !document.getElementById('geogp-place').hidden;
  const room = open && map.getSize().x >= WIDE_MAP ? CARD_ROOM : 0;
  map.fitBounds(bounds, {
    paddingTopLeft: [space, space], paddingBottomRight: [space + room, space], ...options,
  });
}

/** The card with the values at the chosen place, and the mark of the place on the map. */
class PlaceCard {
  constructor(map, page) {
    this.map = map;
    this.page = page;
    this.box = document.getElementById('geogp-place');
    this.status = document.getElementById('geogp-status');
    this.mark = null;
    // On paper, the card is below the map.
    const corner = this.box.parentElement;
    window.matchMedia('print').addEventListener('change', ({matches}) => (
      matches ? document.querySelector('.geogp-main-part').after(this.box) : corner.append(this.box)));
    document.getElementById('geogp-place-close').addEventListener('click', () => {
      page.update({point: null});
      map.getContainer().focus();
    });
  }

  /** Show the place of a state, if the state has one. */
  async show(state, reader) {
    const wish = {};
    this.wish = wish;
    if (state.point === null) {
      this.clear();
      return;
    }
    const place = L.latLng(state.point);
    const found = await reader.read(place, state);
    const {data} = this.page;
    const answers = found && await answersAt(found, data, data.quarters[state.quarter]);
    const extra = [...answers ? answers.facts : [], ...await this.page.kernelWords(place, state)];
    if (this.wish !== wish) {
      return;
    }
    this.clear();
    this.box.hidden = false;
    const chart = this.fill(found, place, state, extra);
    if (found !== null) {
      this.mark = L.rectangle(cornersOf(found.frame, found.cell), {
        color: '#111', weight: 1, fill: false, interactive: false,
      }).addTo(this.map);
      this.pin = L.circleMarker(found.place, {
        radius: 6, color: '#111', weight: 3, fillColor: '#fff', fillOpacity: 1,
        interactive: false,
      }).addTo(this.map);
      const history = await reader.history(found.cell.number);
      if (this.wish === wish) {
        for (const one of history ? [history, ...answers.histories] : answers.histories) {
          drawHistory(chart, {quarters: data.quarters, shown: state.quarter, ...one}, data);
        }
      }
      this.uncover(found.place);
    }
  }

  /** Move the map if the card covers a place: up on a phone, else to the left. */
  uncover(place) {
    const {map} = this;
    const box = map.getContainer().getBoundingClientRect();
    const card = this.box.getBoundingClientRect();
    const at = map.latLngToContainerPoint(place);
    const [right, down] = [at.x - (card.left - box.left) + 30, at.y - (card.top - box.top) + 30];
    if (right > 0 && down > 0 && at.y < card.bottom - box.top + 30) {
      const narrow = card.left - box.left < card.width / 2;
      map.panBy(narrow ? [0, down] : [right, 0], {animate: false});
    }
  }

  clear() {
    this.box.hidden = true;
    for (const drawn of [this.mark, this.pin]) {
      if (drawn) {
        drawn.remove();
      }
    }
    this.mark = null;
    this.pin = null;
  }

  /** Fill the card; return the box for the history, or null outside the region. */
  fill(found, place, state, extra) {
    const {data} = this.page;
    const heading = document.getElementById('geogp-place-heading');
    const body = document.getElementById('geogp-place-body');
    body.replaceChildren();
    if (found === null) {
      heading.textContent = 'Outside the region';
      body.append(element('p', 'geogp-hint', `${coordinates(place)}: nothing is predicted here.`));
      this.announce(`Outside the region, ${coordinates(place)}.`);
      return null;
    }
    const quarter = data.quarters[state.quarter];
    heading.textContent = found.county ? `A place in ${found.county}` : coordinates(found.place);
    const where = [
      found.stratum, quarter, found.county && coordinates(found.place)];
    body.append(element('p', 'geogp-where', where.filter(Boolean).join(' · ')));
    const words = placeWords(found, data, state).concat(extra);
    const list = element('dl', 'geogp-facts');
    for (const {name, value, main} of words) {
      const row = element('div', main ? 'geogp-main' : '');
      row.append(element('dt', '', name), element('dd', '', value));
      list.append(row);
    }
    body.append(list);
    if (data.tiers) {
      body.append(element('p', 'geogp-hint', tierSentence(found.tier, data)));
    }
    if (found.level !== null) {
      body.append(element('p', 'geogp-hint', `Median and intervals are those of ${data.predicted}: what `
        + `one more measurement would show. The level is the ${data.subject} of the place itself. Quote the `
        + 'median with its interval for a measurement, and the level for a place or an area.'));
    }
    const chart = element('figure', 'geogp-history');
    body.append(chart);
    if (found.far) {
      body.append(element('p', 'geogp-hint',
        `Farther than ${formatNumber(data.far_km)} km from any measurement: this prediction is uncertain.`));
    }
    const first = [...words].sort((one, other) => Boolean(other.main) - Boolean(one.main));
    const said = first.slice(0, 6).map(({name, value}) => `${name}: ${value}`).join('; ');
    this.announce([found.county, found.stratum, said].filter(Boolean).join(', '));
    return chart;
  }

  announce(text) {
    this.status.textContent = text;
  }
}
