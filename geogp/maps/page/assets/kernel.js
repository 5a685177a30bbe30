/** The kernel of the model: fixed slices, and the reduced kernel from any place. */
class Kernel {
  /** @param {object} data The page's data. @param {Function} mask Returns a test for the region. */
  constructor(data, mask) {
    Object.assign(this, {data, mask});
  }

  /** Return the values of a fixed slice of the kernel, NaN outside the region. */
  async slice(number) {
    const array = await unpack(this.data.slices[number]);
    return Float64Array.from(array.numbers, (_, cell) => array.at(cell));
  }

  /**
   * Return k(x, x_ref) = sum of c_j(x) c_j(x_ref) for the centres x of all tiles, NaN outside the
   * region; null if there is no x_ref, or it lies outside.
   * @param {?number[]} point Latitude and longitude.
   */
  async at(point) {
    if (!point) {
      return null;
    }
    const {frame, kernel} = this.data;
    const [array, inside, weights] = await Promise.all(
      [unpack(kernel.components), this.mask(), this.componentsAt(point)]);
    if (weights === null) {
      return null;
    }
    const size = kernel.frame.width * kernel.frame.height;
    const middles = new Float64Array(size);
    weights.forEach((weight, place) => {
      for (let cell = 0; cell < size; cell += 1) {
        middles[cell] += weight * array.at(place * size + cell);
      }
    });
    // Interpolation is linear, so the interpolated sum is the sum of interpolated components.
    return stretched(kernel.frame, middles, frame)
      .map((value, cell) => (inside(cell) ? value : NaN));
  }

  /** Return the components c_j at a place, interpolated; null outside the region. */
  async componentsAt(point) {
    const {frame, kernel} = this.data;
    const [array, inside] = await Promise.all([unpack(kernel.components), this.mask()]);
    const place = L.latLng(point);
    const tile = cellAt(frame, place);
    if (tile === null || !inside(tile.number)) {
      return null;
    }
    const corners = middlesAround(kernel.frame, place);
    const size = kernel.frame.width * kernel.frame.height;
    return Array.from({length: kernel.components.shape[0]}, (_, component) => corners.reduce(
      (sum, {number, weight}) => sum + weight * array.at(component * size + number), 0));
  }
}
