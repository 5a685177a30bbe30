const H3_INDEX = /^8[\da-f]{14}$/i;
/** Six corners of H3's icosahedron in degrees; the corners g to l lie opposite a to f. */
const H3_CORNERS = [[64.7000001, 10.5361991], [50.1032015, -143.47849], [39.1, 122.3000004],
  [23.7179253, -67.1323264], [10.4473452, 58.1577058], [2.3008821, -5.2453903]];
/** The corners of each face, in the order of its axes. */
const H3_FACES = 'acbabdaecadfafelbckdbblkjcecjlifddkihefehjfihgklgljgikgjhghi'.match(/.../g);
/** The face of each base cell, and as bits the axes along which its centre lies by 1; 8: a pentagon. */
const H3_BASES = ('a4b6a0b4c8a6a1b0c4b2a2a3d4d6h8e4c0f2c1b3g1b1c6f1j8f0d0h4e6d2c3e0i2c2g2h6g0j4l8f5g5'
  + 'e1d1d3e2f4h0k1i1n8i0l4j6e3l6g4h2j0o8j1h1m2k2f8k0m1n4i5p3k5i4l0g8l2j2m0o4p1q3q2p2n6'
  + 'o6i8k4n0m5n1r1l1p0r3q1p5m4q0o0k8o2r5s2n2s3r2o1r0p4m8q5q4t3t1s1r4s0t2t5s8s4t0s5t4').match(/../g);
/** Directions of the digits of an index, in sixths of a turn from the first axis. */
const H3_TURNS = [0, 4, 2, 3, 0, 5, 1];
const H3_TILT = Math.atan(Math.sqrt(3) / 5);
const GOLDEN = (Math.sqrt(5) - 1) / 2;
const SIXTH = Math.PI / 3;

/** Return a corner a to l as a point on the unit sphere. */
function cornerOfH3(letter) {
  const number = letter.charCodeAt(0) - 97;
  const [lat, lng] = H3_CORNERS[number % 6].map((angle) => angle * Math.PI / 180);
  const side = number < 6 ? 1 : -1;
  return [Math.cos(lat) * Math.cos(lng), Math.cos(lat) * Math.sin(lng), Math.sin(lat)]
    .map((one) => side * one);
}

/** Return the sum of points times weights. */
function weighted(points, weights) {
  return [0, 1, 2].map((part) => points.reduce((sum, one, at) => sum + one[part] * weights[at], 0));
}

/** Return a point near a pentagon, whose first corner it is: five faces meet there, not six. */
function besidePentagon([first, low, high], [x, y], lead) {
  let turn = (Math.atan2(y, x) / SIXTH + 6 - (lead === 5 ? 1 : 0)) % 6;
  if (lead === 5 && turn > 4.5) {
    turn -= 5;
  } else if (lead === 4 && turn > 3) {
    turn -= turn < 5.5 ? 1 : 6;
  }
  // The next face is the mirror image of a face at the edge between them.
  let start = 2.5;
  for (; turn < start; start -= 1) {
    [low, high] = [weighted([first, low, high], [GOLDEN, GOLDEN, -1]), low];
  }
  for (; turn > start + 1; start += 1) {
    [low, high] = [high, weighted([first, high, low], [GOLDEN, GOLDEN, -1])];
  }
  const [one, other] = [start + 1 - turn, turn - start].map(
    (angle) => Math.hypot(x, y) * Math.sin(angle * SIXTH) / 3);
  return weighted([first, low, high], [1 - one - other, one, other]);
}

/** Return a point of the plane of a face; beyond an edge it lies on the next face, folded there. */
function onFace(corners, [x, y]) {
  const weights = [0, 2, 4].map((turn) => (1 + x * Math.cos(turn * SIXTH) + y * Math.sin(turn * SIXTH)) / 3);
  const least = Math.min(...weights);
  const fold = Math.min(least, 0) * (1 - GOLDEN);
  return weighted(corners, weights.map((one) => (one === least ? one : one + fold)));
}

/** Return a place for the index of an H3 cell, or null. */
function placeOfH3(text) {
  const cell = BigInt(H3_INDEX.test(text) ? `0x${text}` : 0);
  const bits = (at, mask) => Number(cell >> BigInt(at) & BigInt(mask));
  const [resolution, base] = [bits(52, 15), H3_BASES[bits(45, 127)]];
  const digits = Array.from({length: 15}, (_, at) => bits(42 - 3 * at, 7));
  const lead = digits.find(Boolean);
  if (!cell || !base || digits.some((one, at) => (one === 7) !== (at >= resolution))
    || (base[1] === '8' && lead === 1)) {
    return null;
  }
  // Each finer grid is turned against the grid before.
  const moves = digits.slice(0, resolution).map((one, at) => [
    one ? 7 ** (-(at + 1) / 2) : 0, H3_TURNS[one] * SIXTH + (at % 2 ? 0 : H3_TILT)]);
  moves.push(...[4, 2, 1].map((bit, axis) => [base[1] & bit ? 1 : 0, 2 * axis * SIXTH]));
  const plane = [Math.cos, Math.sin].map(
    (part) => moves.reduce((sum, [length, turn]) => sum + length * part(turn), 0));
  const corners = [...H3_FACES[base.charCodeAt(0) - 97]].map(cornerOfH3);
  const [east, north, up] = base[1] === '8' ? besidePentagon(corners, plane, lead) : onFace(corners, plane);
  const [lat, lng] = [Math.atan2(up, Math.hypot(east, north)), Math.atan2(north, east)]
    .map((angle) => angle * 180 / Math.PI);
  const reach = 11 / 7 ** (resolution / 2);
  return {
    words: `H3 cell ${text}`, point: [lat, lng], bounds: [lat - reach, lng - reach, lat + reach, lng + reach],
  };
}
