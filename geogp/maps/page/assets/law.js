const NORMAL_ENDS = 8.5;
const NARROWEST = 1e-9;

/** Return the value in its unit of a value of the model: decibels and shares are not transformed. */
function valueOf(data, modelled) {
  if (data.most !== null) {
    return Math.min(Math.max(modelled, 0), data.most);
  }
  return data.linear ? modelled : 10 ** modelled;
}

/** Return the value of the model; the inverse of `valueOf`. */
function modelledOf(data, value) {
  return data.linear ? value : Math.log10(value);
}

/** Return a difference of values of the model as readers see it: in per cent, dB or points. */
function changeOf(data, difference) {
  return data.linear ? difference : 100 * (10 ** difference - 1);
}

/** Return the standard normal distribution function (Marsaglia 2004, a Taylor series). */
function normalShare(score) {
  if (score <= -NORMAL_ENDS || score >= NORMAL_ENDS) {
    return score > 0 ? 1 : 0;
  }
  const square = score * score;
  let sum = score;
  let before = 0;
  let term = score;
  for (let odd = 3; sum !== before; odd += 2) {
    before = sum;
    term *= square / odd;
    sum += term;
  }
  return 0.5 + sum * Math.exp(-0.5 * square - 0.5 * Math.log(2 * Math.PI));
}

/** Return the quantile of the standard normal distribution at a share. */
function normalScore(share) {
  let low = -NORMAL_ENDS;
  let high = NORMAL_ENDS;
  for (let step = 0; step < 60; step += 1) {
    const middle = (low + high) / 2;
    if (normalShare(middle) < share) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return (low + high) / 2;
}

/**
 * The predictive distribution of every cell in one quarter, by quantiles of values of the model, which
 * are log10 of the value, or decibels.
 *
 * The median is stored as a value, and each other quantile as its distance from the next quantile
 * inward. Between and beyond the quantiles, the normal score is linear in the value of the model.
 */
class Law {
  constructor(levels, arrays) {
    this.levels = levels;
    this.arrays = arrays;
    this.middle = levels.indexOf(0.5);
    this.scores = levels.map(normalScore);
    this.values = new Float64Array(levels.length);
  }

  /** Return whether a cell lies in the region. */
  holds(cell) {
    return this.arrays[this.middle].holds(cell);
  }

  /** Return all quantiles of a cell; the next call overwrites the array. */
  quantiles(cell) {
    const {values, arrays, middle} = this;
    values[middle] = arrays[middle].at(cell);
    for (let level = middle + 1; level < values.length; level += 1) {
      values[level] = values[level - 1] + arrays[level].at(cell);
    }
    for (let level = middle - 1; level >= 0; level -= 1) {
      values[level] = values[level + 1] - arrays[level].at(cell);
    }
    return values;
  }

  /** Return the quantile at any share, interpolated if it is not one of the levels. */
  quantile(cell, share) {
    const known = this.levels.indexOf(share);
    if (known === this.middle) {
      return this.arrays[known].at(cell);
    }
    const values = this.quantiles(cell);
    if (known >= 0) {
      return values[known];
    }
    const {scores} = this;
    const score = this.scoreOf(share);
    let upper = 1;
    while (upper < scores.length - 1 && score > scores[upper]) {
      upper += 1;
    }
    const along = (score - scores[upper - 1]) / (scores[upper] - scores[upper - 1]);
    return values[upper - 1] + along * (values[upper] - values[upper - 1]);
  }

  /** Return the median and the ends of the 95 % interval. */
  band(cell) {
    return [0.025, 0.5, 0.975].map((share) => this.quantile(cell, share));
  }

  /** Return the normal score of a share; the last score is kept for the next call. */
  scoreOf(share) {
    if (this.lastShare !== share) {
      this.lastShare = share;
      this.lastScore = normalScore(share);
    }
    return this.lastScore;
  }

  /** Return the normal score of a value of the model, by a search from the median outward. */
  score(cell, value) {
    const {arrays, middle} = this;
    let here = arrays[middle].at(cell);
    if (value >= here) {
      for (let level = middle + 1; ; level += 1) {
        const next = here + arrays[level].at(cell);
        if (value < next || level === arrays.length - 1) {
          return this.between(level - 1, here, next, value);
        }
        here = next;
      }
    }
    for (let level = middle - 1; ; level -= 1) {
      const next = here - arrays[level].at(cell);
      if (value >= next || level === 0) {
        return this.between(level, next, here, value);
      }
      here = next;
    }
  }

  /** Return the score of a value, linear between the quantiles of two levels. */
  between(level, low, high, value) {
    const {scores} = this;
    const along = (value - low) / Math.max(high - low, NARROWEST);
    return scores[level] + along * (scores[level + 1] - scores[level]);
  }

  /** Return the probability that a measurement is at least (or at most) a value of the model. */
  probability(cell, value, atMost) {
    const score = this.score(cell, value);
    return normalShare(atMost ? score : -score);
  }
}

/**
 * The predictive distribution of every cell in another quarter: its median, its 95 % interval, and
 * between these the shape of the distribution in the shown quarter; see page_quantiles.py.
 */
class PastLaw extends Law {
  /**
   * @param {Law} shown The distributions of the shown quarter.
   * @param {Unpacked[]} arrays Median, lower half-width, and upper minus lower half-width.
   */
  constructor(shown, arrays) {
    super(shown.levels, shown.arrays);
    this.shown = shown;
    [this.median, this.lower, this.more] = arrays;
  }

  /** Return the factor of distances from the median, below or above the median. */
  factor(cell, above) {
    const {shown} = this;
    const wide = this.lower.at(cell) + (above ? this.more.at(cell) : 0);
    const whole = Math.abs(shown.quantile(cell, above ? 0.975 : 0.025) - shown.quantile(cell, 0.5));
    return wide / Math.max(whole, NARROWEST);
  }

  quantile(cell, share) {
    const middle = this.median.at(cell);
    return share === 0.5 ? middle : middle
      + this.factor(cell, share > 0.5) * (this.shown.quantile(cell, share) - this.shown.quantile(cell, 0.5));
  }

  score(cell, value) {
    const off = value - this.median.at(cell);
    const factor = Math.max(this.factor(cell, off > 0), NARROWEST);
    return this.shown.score(cell, this.shown.quantile(cell, 0.5) + off / factor);
  }

  /** Return the median and the ends of the 95 % interval. */
  band(cell) {
    const middle = this.median.at(cell);
    const lower = this.lower.at(cell);
    return [middle - lower, middle, middle + lower + this.more.at(cell)];
  }
}
