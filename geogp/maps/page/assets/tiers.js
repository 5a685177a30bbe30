const SOME_CELLS = 2000;
const MIXING = 0x9E3779B1;

/** Return the thresholds of a tier as text, such as at least 7 Mbps download and at least 1 Mbps upload. */
function tierWords(targets, thresholds) {
  const parts = targets.map((target, place) => ({target, value: thresholds[place]}))
    .filter(({value}) => value !== null)
    .map(({target, value}) => `${thresholdWords(target, value)} ${target.name}`);
  return parts.length > 1 ? `${parts.slice(0, -1).join(', ')} and ${parts[parts.length - 1]}` : parts[0];
}

/** Return the threshold of each target in a text such as 100,20,any; null if one is unknown. */
function readTier(text, targets) {
  const values = text.split(',').map((part) => (part === 'any' ? null : Number(part)));
  return values.length === targets.length
    && targets.every(({threshold}, place) => threshold.values.includes(values[place])) ? values : null;
}

/** Return a sentence that tiers are of one quarter. */
function tierQuarter({quarters, shown}) {
  return `Tiers are those of ${quarters[shown]} only.`;
}

/** Return what the card says of a tier: its probability, and each target alone. */
function tierFacts({share, targets}) {
  const thresholds = targets.map(({threshold}) => threshold);
  const together = thresholds.filter((value) => value !== null).length > 1 ? ' together' : '';
  const met = tierWords(targets.map(({target}) => target), thresholds);
  const words = [{name: `Probability of ${met}${together}`, value: formatShare(share), main: true}];
  for (const [place, {target, threshold, band, share: alone}] of targets.entries()) {
    if (threshold !== null) {
      words.push({
        name: `Alone: ${thresholdWords(target, threshold)} ${target.name}`, value: formatShare(alone),
      });
    }
    if (place > 0) {
      words.push({
        name: `Median ${target.subject}, 95 % interval`, value: bandWords(band, target.unit, false),
      });
    }
  }
  return words;
}

/** Return a sentence that compares the probability of a tier with that of unrelated targets. */
function tierSentence(tier, data) {
  if (!tier) {
    return tierQuarter(data);
  }
  const product = tier.targets.reduce((result, {share}) => result * share, 1);
  const [together, apart] = [formatShare(tier.share), formatShare(product)];
  return `The tier: ${together} of ${data.predicted} here are expected to meet all its thresholds together. ${
    together === apart ? 'It would be the same if the targets were unrelated.'
      : `If the targets were unrelated, it would be ${apart}.`}`;
}

/** The probability that thresholds of several targets hold together, in the shown quarter. */
class Tiers {
  constructor(data, painter) {
    Object.assign(this, {data, painter, targets: data.tiers.targets, loaded: null});
  }

  /** Return the predictive distributions of all targets. */
  law() {
    this.loaded = this.loaded || this.load();
    return this.loaded;
  }

  async load() {
    const {painter, data: {tiers, shown}} = this;
    const laws = this.targets.map(async ({levels, quantiles}) => (
      levels ? new Law(levels, await Promise.all(quantiles.map(unpack))) : painter.law(shown)));
    return new JointLaw(
      this.targets, await Promise.all(laws), await Promise.all(tiers.correlations.map(unpack)));
  }

  /** Return the probability of a state's tier in a cell, and of each target; null in other quarters. */
  async at(cell, {tier, quarter}) {
    return quarter === this.data.shown ? (await this.law()).at(cell, tier) : null;
  }

  /** Return the name of a column with the probability of a state's tier, and a function of a cell. */
  async column({tier, quarter}) {
    if (quarter !== this.data.shown) {
      return null;
    }
    const parts = this.targets.map(({threshold, unit}, place) => ({
      value: tier[place], end: threshold.at_most ? unit : '',
    })).filter(({value}) => value !== null);
    // As in the names of tiers, speeds come first.
    const sorted = [...parts.filter(({end}) => !end), ...parts.filter(({end}) => end)];
    const tag = sorted.map(({value, end}) => value + end).join('_').replace(/\W/g, '_');
    return {name: `p_tier_${tag}`, share: (await this.law()).meeting(tier)};
  }

  /** Colour cells by the probability of a state's tier. */
  async paint(inside, scale, {tier, quarter}) {
    const {width, height} = this.data.frame;
    const law = await this.law();
    const meeting = law.meeting(tier);
    const shares = Float64Array.from(
      {length: width * height}, (_, cell) => (inside(cell) ? meeting(cell) : NaN));
    const note = this.otherQuarter(quarter) || this.oneSide(law, inside, tier, shares);
    return {...this.painter.painted(inside, scale, (cell) => shares[cell]), note};
  }

  /** Return a note that tiers are of the shown quarter, if another one is chosen, otherwise null. */
  otherQuarter(quarter) {
    const {shown, quarters} = this.data;
    return quarter === shown ? null : {
      text: tierQuarter(this.data), offer: {words: `Show ${quarters[shown]}`, changes: {quarter: shown}},
    };
  }

  /** Return a note if nearly all tiles are on the same side of 50 %, otherwise null. */
  oneSide(law, inside, thresholds, shares) {
    const {frame, tiers: {choices}} = this.data;
    const {least, low, high, most} = endsOf(frame, inside, (cell) => shares[cell]);
    if (low < HALF && high >= HALF) {
      return null;
    }
    // Other tiers are computed for some cells only, mixed so that they lie all over the region.
    const apart = Math.ceil(shares.length / SOME_CELLS);
    const some = (cell) => inside(cell) && (Math.imul(cell, MIXING) >>> 0) % apart === 0;
    const found = choices.filter(({values}) => {
      const ends = endsOf(frame, some, law.meeting(values));
      return ends.low < HALF && ends.high >= HALF;
    }).map(({name, values}) => (
      {words: name, far: this.between(values, thresholds), changes: {tier: values}}));
    return sideNote(everywhere(low >= HALF, least < HALF && most >= HALF), found, 'tier of the run');
  }

  /** Return the distance between two tiers: the sum of those of their thresholds, 1 from none. */
  between(one, other) {
    return this.targets.reduce((sum, target, place) => {
      const [first, second] = [one[place], other[place]];
      return sum + (first === null || second === null ? Number(first !== second)
        : Math.abs(modelledOf(target, first) - modelledOf(target, second)));
    }, 0);
  }
}

/** The choice of a tier of the run, and a slider for the threshold of each target. */
class TierControls {
  constructor(page, panel) {
    Object.assign(this, {page, panel, ...page.data.tiers});
    this.box = document.getElementById('geogp-tier');
    this.choice = document.getElementById('geogp-tier-choice');
    for (const [place, {name}] of this.choices.entries()) {
      const option = element('option', '', name);
      option.value = place;
      this.choice.append(option);
    }
    this.choice.addEventListener(
      'change', () => page.update({tier: this.choices[this.choice.value].values}));
    this.targets.forEach((target, place) => this.addSlider(target, place));
  }

  addSlider({subject, threshold: {values}}, place) {
    const id = `geogp-tier-${place}`;
    const slider = Object.assign(element('div', 'geogp-slider'), {id});
    const label = element('label', '', subject.charAt(0).toUpperCase() + subject.slice(1));
    const words = Object.assign(element('output'), {id: `${id}-words`});
    const field = Object.assign(element('input'), {id: `${id}-field`, type: 'range', step: 1});
    label.htmlFor = field.id;
    words.htmlFor = field.id;
    slider.append(label, words, field);
    this.box.append(slider);
    this.panel.addSlider(`tier-${place}`, values.length, (at) => this.page.update(
      {tier: this.page.state.tier.map((value, own) => (own === place ? values[at] : value))}));
  }

  /** Show the tier of a state, while a layer shows its probability. */
  show({layer, beside, tier}) {
    const {layers} = this.page;
    const sources = [layer, beside].filter((id) => layers.has(id)).map((id) => layers.get(id).source);
    const used = sources.some((source) => source.tier);
    this.box.hidden = !used;
    document.getElementById('geogp-threshold').hidden = used && !sources.some(
      (source) => source.probability);
    const same = this.choices.findIndex(
      ({values}) => values.every((value, place) => value === tier[place]));
    this.choice.value = same < 0 ? '' : same;
    for (const [place, target] of this.targets.entries()) {
      const words = tier[place] === null ? `any ${target.subject}` : thresholdWords(target, tier[place]);
      this.panel.setSlider(`tier-${place}`, target.threshold.values.indexOf(tier[place]), words);
    }
  }
}
