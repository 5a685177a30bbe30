const PLAY_MS = 900;

/** Marks that can be drawn above any layer; each has a label, and an outline or an array. */
const MARKS = [
  {name: 'far', array: 'far', words: 'Far from any measurement', shown: true},
  {name: 'measured', array: 'tests', words: 'Measured tiles', shown: false},
  {name: 'boundary', outline: 'boundary', words: 'Boundary', shown: true},
  {name: 'urban', outline: 'urban', words: 'Urban areas', shown: true},
  {name: 'counties', outline: 'counties', words: 'Counties', shown: true},
];

/** Return the marks for which a page has data; a map of the number of tests has no mark `far`. */
function marksOf(data, outlines) {
  return MARKS.filter(({name, array, outline}) => (array
    ? array in data.arrays && (name !== 'far' || data.levels || data.classes.length) : outlines[outline]));
}

/** The controls beside the map. */
class Panel {
  constructor(page) {
    this.page = page;
    const {data} = page;
    this.layerFields = this.addLayers(document.getElementById('geogp-layers'));
    this.markFields = this.addMarks(document.getElementById('geogp-marks'));
    this.addBeside(document.getElementById('geogp-beside'));
    if (data.threshold) {
      this.addSlider('threshold', data.threshold.values.length,
        (place) => page.update({threshold: data.threshold.values[place]}));
    }
    this.tier = data.tiers && new TierControls(page, this);
    if (data.quarters.length > 1) {
      this.addSlider('quarter', data.quarters.length, (place) => page.update({quarter: place}));
      this.addPlay();
      document.getElementById('geogp-quarter-hint').textContent = sizeWords(data);
    }
    this.narrow = window.matchMedia('(max-width: 759px)');
    this.narrow.addEventListener('change', () => this.fold());
    this.fold();
  }

  /** Close the panel on a phone, where it hides a part of the map. */
  fold() {
    document.getElementById('geogp-panel').open = !this.narrow.matches;
  }

  /** Add a field for each layer, in groups by the question that the layers answer. */
  addLayers(box) {
    const fields = new Map();
    for (const [name, ids] of this.page.groups) {
      const group = element('details', 'geogp-group');
      // Few readers ask how the model works.
      group.open = !ids.some((id) => id.startsWith('slice-'));
      group.append(element('summary', '', name));
      for (const id of ids) {
        const label = element('label', 'geogp-option');
        const field = element('input');
        Object.assign(field, {type: 'radio', name: 'geogp-layer', value: id});
        field.addEventListener('change', () => this.page.update({layer: id}));
        label.append(field, element('span', '', this.page.layers.get(id).title));
        group.append(label);
        fields.set(id, field);
      }
      box.append(group);
    }
    const {data} = this.page;
    if (data.levels && data.shown > 0 && sizeWords(data)) {
      box.append(element('p', 'geogp-hint', 'No layer shows the change of the median: the quarters '
        + 'have squares of different sizes. geogp change computes changes.'));
    }
    return fields;
  }

  addMarks(box) {
    const fields = new Map();
    for (const {name, words} of this.page.marks) {
      const label = element('label', 'geogp-option');
      const field = element('input');
      field.type = 'checkbox';
      field.addEventListener('change', () => this.page.update(
        {marks: {...this.page.state.marks, [name]: field.checked}}));
      const {far_km: reach} = this.page.data;
      const text = name === 'far' && reach
        ? `Farther than ${formatNumber(reach)} km from any measurement` : this.page.words[name] || words;
      label.append(field, element('i', `geogp-key geogp-key-${name}`), element('span', '', text));
      box.append(label);
      fields.set(name, field);
    }
    return fields;
  }

  addBeside(select) {
    for (const [name, ids] of this.page.groups) {
      const group = element('optgroup');
      group.label = name;
      for (const id of ids) {
        const option = element('option', '', this.page.layers.get(id).title);
        option.value = id;
        group.append(option);
      }
      select.append(group);
    }
    select.addEventListener('change', () => this.page.update({beside: select.value || null}));
  }

  /** Add the button that shows one quarter after the other, until the last or a second click. */
  addPlay() {
    const {page} = this;
    const button = document.getElementById('geogp-play');
    let timer = null;
    const stop = () => {
      window.clearInterval(timer);
      timer = null;
      button.textContent = 'Play';
    };
    const step = () => page.settled().then(() => {
      const last = page.data.quarters.length - 1;
      if (timer !== null) {
        page.update({quarter: Math.min(page.state.quarter + 1, last)});
        if (page.state.quarter === last) {
          stop();
        }
      }
    });
    button.addEventListener('click', () => {
      if (timer !== null) {
        stop();
        return;
      }
      if (page.state.quarter === page.data.quarters.length - 1) {
        page.update({quarter: 0});
      }
      button.textContent = 'Stop';
      timer = window.setInterval(step, PLAY_MS);
    });
    document.getElementById('geogp-quarter-field').addEventListener('input', stop);
    window.matchMedia('(prefers-reduced-motion: reduce)').addEventListener('change', stop);
  }

  addSlider(name, count, choose) {
    const field = document.getElementById(`geogp-${name}-field`);
    document.getElementById(`geogp-${name}`).hidden = false;
    field.min = 0;
    field.max = count - 1;
    field.addEventListener('input', () => choose(Number(field.value)));
  }

  setSlider(name, place, words) {
    const field = document.getElementById(`geogp-${name}-field`);
    field.value = place;
    field.setAttribute('aria-valuetext', words);
    document.getElementById(`geogp-${name}-words`).textContent = words;
  }

  /** Show a state in the controls. */
  show(state) {
    const {data} = this.page;
    const field = this.layerFields.get(state.layer);
    field.checked = true;
    field.closest('details').open = true;
    for (const [name, field] of this.markFields) {
      field.checked = state.marks[name];
    }
    document.getElementById('geogp-beside').value = state.beside || '';
    if (data.threshold) {
      const place = data.threshold.values.indexOf(state.threshold);
      this.setSlider('threshold', place, thresholdWords(data, state.threshold));
    }
    if (data.tiers) {
      this.tier.show(state);
    }
    if (data.quarters.length > 1) {
      this.setSlider('quarter', state.quarter, data.quarters[state.quarter]);
    }
  }
}
