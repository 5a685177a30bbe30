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
    if (data.quarters.length > 1) {
      this.addSlider('quarter', data.quarters.length, (place) => page.update({quarter: place}));
    }
    const box = document.getElementById('geogp-panel');
    const narrow = window.matchMedia('(max-width: 759px)');
    const fold = () => { box.open = !narrow.matches; };
    narrow.addEventListener('change', fold);
    fold();
  }

  addLayers(box) {
    const fields = new Map();
    let group = box;
    for (const [id, layer] of this.page.layers) {
      if ('slice' in layer.source || layer.source.live) {
        if (group === box) {
          group = element('div', 'geogp-group');
          group.setAttribute('role', 'group');
          group.setAttribute('aria-label', 'Influence of one place on all other places');
          group.append(element('p', 'geogp-group-name', 'Influence of one place on all other places'));
          box.append(group);
        }
      }
      const label = element('label', 'geogp-option');
      const field = element('input');
      Object.assign(field, {type: 'radio', name: 'geogp-layer', value: id});
      field.addEventListener('change', () => this.page.update({layer: id}));
      label.append(field, element('span', '', layer.title));
      group.append(label);
      fields.set(id, field);
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
    for (const [id, layer] of this.page.layers) {
      const option = element('option', '', layer.title);
      option.value = id;
      select.append(option);
    }
    select.addEventListener('change', () => this.page.update({beside: select.value || null}));
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
    this.layerFields.get(state.layer).checked = true;
    for (const [name, field] of this.markFields) {
      field.checked = state.marks[name];
    }
    document.getElementById('geogp-beside').value = state.beside || '';
    if (data.threshold) {
      const place = data.threshold.values.indexOf(state.threshold);
      this.setSlider('threshold', place, thresholdWords(data, state.threshold));
    }
    if (data.quarters.length > 1) {
      const {label, frame} = data.quarters[state.quarter];
      this.setSlider('quarter', state.quarter, label);
      const hint = document.getElementById('geogp-quarter-hint');
      const coarse = frame.zoom < data.frame.zoom;
      hint.textContent = coarse
        ? `Drawn in squares of ${formatNumber(tileKm(frame), 2)} km; `
          + `only ${data.quarters[data.shown].label} is drawn tile by tile.`
        : 'Drawn tile by tile; other quarters are drawn in larger squares.';
    }
  }
}
