/** The search for counties and towns. */
class Search {
  constructor(map, places) {
    this.map = map;
    this.places = places.map((place) => ({...place, words: `${place.name}, ${place.kind}`}));
    const form = document.getElementById('geogp-search');
    this.field = document.getElementById('geogp-search-field');
    this.answer = document.getElementById('geogp-search-answer');
    form.hidden = !places.length;
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
   * Return the first place whose label or name is a text; else whose label begins with the text;
   * else whose label contains the text.
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
    return wish ? tests.map((test) => this.places.find(test)).find(Boolean) : undefined;
  }

  go(place) {
    if (!place) {
      const text = this.field.value.trim();
      this.answer.textContent = text ? `No county or town called ${text} on this map.` : '';
      return;
    }
    const [south, west, north, east] = place.bounds;
    this.map.fitBounds([[south, west], [north, east]],
      {maxZoom: 14, padding: [30, 30], animate: !stillWanted()});
    this.answer.textContent = `The map shows ${place.words}.`;
  }
}
