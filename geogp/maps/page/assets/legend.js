/** The legends of the chosen layer and of the compared layer. */
class Legends {
  constructor(page) {
    this.page = page;
  }

  /** Return the label of a layer's legend, with the thresholds of probabilities or the time of areas. */
  labelOf({label, source: {probability, tier, areas, tiles}}, state) {
    const {data} = this.page;
    const timed = areas || tiles;
    return probability ? `probability of ${thresholdWords(data, state.threshold)}`
      : tier ? `probability of ${tierWords(data.tiers.targets, state.tier)}`
      : timed ? `${label}, ${timed.times[timeOf(timed, data.quarters[state.quarter])]}` : label;
  }

  /** Show the legends of a state, after its pictures are painted. */
  show(state) {
    const compared = state.beside !== null;
    document.body.classList.toggle('geogp-comparing', compared);
    const {main, beside} = this.page.pictures;
    for (const [id, layerId, {painted}, side] of [
      ['geogp-legend', state.layer, main, 'Left of the divider'],
      ['geogp-legend-beside', state.beside, beside, 'Right of the divider']]) {
      const box = document.getElementById(id);
      const layer = this.page.layers.get(layerId);
      box.hidden = !layer;
      if (layer) {
        fillLegend(box, {
          side: compared ? side : '',
          label: this.labelOf(layer, state),
          hint: this.hintOf(layer, state),
          scale: painted.scale,
          beyond: painted.beyond,
          note: painted.note,
          show: ({layer: other, ...changes}) =>
            this.page.update(other ? {[id === 'geogp-legend' ? 'layer' : 'beside']: other} : changes),
        });
      }
    }
  }

  hintOf(layer, state) {
    const {data, pictures: {painter}} = this.page;
    const other = data.quarters.length > 1 && state.quarter !== data.shown;
    const asked = layer.source.live && state.point === null;
    const inQuarter = !painter.inTime(layer) ? 'This layer is the same for all quarters.'
      : layer.source.areas || layer.source.tier ? '' : sizeWords(data);
    return [asked ? 'Click a place to draw its kernel.' : '', layer.hint, other ? inQuarter : '']
      .filter(Boolean).join(' ');
  }
}

/** Fill a legend with the name of the layer, a bar with round numbers, a note with a button, and a hint. */
function fillLegend(box, {side, label, hint, scale, beyond, note, show}) {
  box.replaceChildren();
  if (side) {
    box.append(element('span', 'geogp-side', side));
  }
  box.append(element('h2', '', label.charAt(0).toUpperCase() + label.slice(1)));
  if (scale) {
    addBar(box, scale, beyond);
  }
  if (note) {
    box.append(element('p', 'geogp-note', note.text));
  }
  if (note && note.offer) {
    const button = element('button', 'geogp-offer', note.offer.words);
    button.type = 'button';
    button.addEventListener('click', () => show(note.offer.changes));
    box.append(button);
  }
  if (hint) {
    box.append(element('p', 'geogp-hint', hint));
  }
}

/** Add the bar of a scale; an arrow at an end shows that some values lie beyond. */
function addBar(box, scale, beyond) {
  const ends = ['geogp-below', 'geogp-above'].filter((_, end) => beyond[end]);
  const bar = element('div', ['geogp-bar', ...ends].join(' '));
  bar.style.setProperty('--first', scale.colours[0]);
  bar.style.setProperty('--last', scale.colours[scale.colours.length - 1]);
  bar.style.background = `linear-gradient(to right, ${scale.colours.join(', ')})`;
  const named = scale.names.length > 0;
  const ticks = element('div', named ? 'geogp-ticks geogp-names' : 'geogp-ticks');
  scale.ticks.forEach((tick, place) => {
    const mark = element('span', '', scale.labels[place]);
    mark.style.left = `${100 * fractionOf(scale, tick)}%`;
    ticks.append(mark);
  });
  box.append(bar, ticks);
}
