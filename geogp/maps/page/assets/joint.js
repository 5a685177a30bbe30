/** Points and weights of the rule of Gauss and Legendre between 0 and 1. */
const NODES = [
  {node: 0.013046735741414, weight: 0.033335672154344}, {node: 0.067468316655508, weight: 0.074725674575290},
  {node: 0.160295215850488, weight: 0.109543181257991}, {node: 0.283302302935376, weight: 0.134633359654998},
  {node: 0.425562830509184, weight: 0.147762112357376}, {node: 0.574437169490816, weight: 0.147762112357376},
  {node: 0.716697697064624, weight: 0.134633359654998}, {node: 0.839704784149512, weight: 0.109543181257991},
  {node: 0.932531683344492, weight: 0.074725674575290}, {node: 0.986953264258586, weight: 0.033335672154344},
];
const CERTAIN = 5;
const PER_SCORE = 256;
const SINGULAR = 1e-9;

/** The normal distribution function and density at scores, `PER_SCORE` in each unit. */
const normalTable = (() => {
  const scores = Array.from(
    {length: 2 * NORMAL_ENDS * PER_SCORE + 1}, (_, place) => place / PER_SCORE - NORMAL_ENDS);
  return {
    shares: Float64Array.from(scores, normalShare),
    densities: Float64Array.from(
      scores, (score) => Math.exp(-score * score / 2) / Math.sqrt(2 * Math.PI)),
  };
})();

/** Return `normalShare` with an error below 1e-11, in less time: by Taylor's series of a table. */
function quickShare(score) {
  if (score <= -NORMAL_ENDS || score >= NORMAL_ENDS) {
    return score > 0 ? 1 : 0;
  }
  const place = Math.round((score + NORMAL_ENDS) * PER_SCORE);
  const known = place / PER_SCORE - NORMAL_ENDS;
  const off = score - known;
  return normalTable.shares[place] + normalTable.densities[place] * off
    * (1 - known * off / 2 + (known * known - 1) * off * off / 6);
}

/** Return the density of two normal scores with the correlation `sine`, times 2 pi and its cosine. */
function pairDensity(first, second, sine) {
  return Math.exp((first * second * sine - (first * first + second * second) / 2) / (1 - sine * sine));
}

/** Return the probability that two normal scores are at most h and k (Drezner and Wesolowsky 1990). */
function pairShare(h, k, correlation) {
  const angle = Math.asin(correlation);
  let sum = 0;
  for (const {node, weight} of NODES) {
    sum += weight * pairDensity(h, k, Math.sin(angle * node));
  }
  return quickShare(h) * quickShare(k) + angle * sum / (2 * Math.PI);
}

/**
 * Return the probability that three normal scores are at most h, with the correlations r of 1 and 2, 1
 * and 3, and 2 and 3: the integral along the way from no correlation of the first score (Plackett 1954;
 * Genz 2004, eq. 14). Errors are below 1e-5.
 */
function tripleShare([h1, h2, h3], [r12, r13, r23]) {
  const angle2 = Math.asin(r12);
  const angle3 = Math.asin(r13);
  let sum = 0;
  for (const {node, weight} of NODES) {
    const sine2 = Math.sin(angle2 * node);
    const sine3 = Math.sin(angle3 * node);
    const rest2 = 1 - sine2 * sine2;
    const rest3 = 1 - sine3 * sine3;
    const volume = Math.max(rest2 - sine3 * sine3 - r23 * r23 + 2 * sine2 * sine3 * r23, SINGULAR);
    const third = (h3 * rest2 - h1 * (sine3 - r23 * sine2) - h2 * (r23 - sine2 * sine3))
      / Math.sqrt(rest2 * volume);
    const second = (h2 * rest3 - h1 * (sine2 - r23 * sine3) - h3 * (r23 - sine2 * sine3))
      / Math.sqrt(rest3 * volume);
    sum += weight * (angle2 * pairDensity(h1, h2, sine2) * quickShare(third)
      + angle3 * pairDensity(h1, h3, sine3) * quickShare(second));
  }
  return quickShare(h1) * pairShare(h2, h3, r23) + sum / (2 * Math.PI);
}

/** The predictive distribution of several targets in every cell: their laws, and a Gaussian copula. */
class JointLaw {
  /**
   * @param {object[]} targets The page's data of each target; see page_tiers.py.
   * @param {Law[]} laws The law of each target.
   * @param {Unpacked[]} correlations Of the targets 0 and 1, 0 and 2, and 1 and 2.
   */
  constructor(targets, laws, correlations) {
    Object.assign(this, {targets, laws, correlations});
  }

  /**
   * Return the probability that up to three normal scores are at most some scores, from the correlations
   * of 1 and 2, 1 and 3, and 2 and 3. A score that is almost surely below its end has no effect.
   */
  static share(ends, correlations) {
    if (ends.some((end) => end <= -CERTAIN)) {
      return 0;
    }
    const sure = ends.length > 1 ? ends.findIndex((end) => end >= CERTAIN) : -1;
    if (sure >= 0) {
      return JointLaw.share(ends.filter((_, place) => place !== sure), [correlations[2 - sure]]);
    }
    const share = ends.length === 3 ? tripleShare(ends, correlations)
      : ends.length === 2 ? pairShare(...ends, correlations[0])
        : ends.length === 1 ? quickShare(ends[0]) : 1;
    return Math.min(Math.max(share, 0), 1);
  }

  /**
   * Return a function that returns the probability of meeting all thresholds in a cell.
   * @param {?number[]} thresholds Of each target, in its unit; null for none.
   */
  meeting(thresholds) {
    const limits = thresholds.map((value, place) => ({
      place, law: this.laws[place], value: value === null ? null : modelledOf(this.targets[place], value),
      sign: this.targets[place].threshold.at_most ? 1 : -1,
    })).filter(({value}) => value !== null);
    const pairs = limits.flatMap((one, first) => limits.slice(first + 1).map((other) => ({
      array: this.correlations[one.place + other.place - 1], sign: one.sign * other.sign,
    })));
    return (cell) => JointLaw.share(
      limits.map(({law, value, sign}) => sign * law.score(cell, value)),
      pairs.map(({array, sign}) => sign * array.at(cell)));
  }

  /** Return the probability of meeting all thresholds in a cell, and what each target has there. */
  at(cell, thresholds) {
    return {
      share: this.meeting(thresholds)(cell),
      targets: this.targets.map((target, place) => ({
        target,
        threshold: thresholds[place],
        band: this.laws[place].band(cell).map((end) => valueOf(target, end)),
        share: this.meeting(thresholds.map((value, own) => (own === place ? value : null)))(cell),
      })),
    };
  }
}
