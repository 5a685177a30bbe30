const THUMB_PIXELS = 44;

/** The divider between two layers: a slider over the map, for keys, mouse and touch. */
class Divider {
  constructor(map, page) {
    this.map = map;
    this.box = document.getElementById('geogp-divider');
    this.field = document.getElementById('geogp-split');
    map.getContainer().append(this.box);
    L.DomEvent.disableClickPropagation(this.field);
    this.line = this.box.querySelector('.geogp-divider-line');
    this.field.addEventListener('input', () => {
      // The middle of the thumb never reaches the edges of the map.
      const width = this.map.getSize().x;
      const along = THUMB_PIXELS / 2 + Number(this.field.value) / 1000 * (width - THUMB_PIXELS);
      page.update({split: along / width});
    });
    map.on('resize', () => this.show(page.state));
  }

  /** Show where a state divides the map. */
  show(state) {
    this.box.hidden = state.beside === null;
    const width = this.map.getSize().x;
    const place = (state.split * width - THUMB_PIXELS / 2) / (width - THUMB_PIXELS) * 1000;
    if (document.activeElement !== this.field || Math.abs(place - Number(this.field.value)) > 3) {
      this.field.value = place;
    }
    this.field.setAttribute('aria-valuetext',
      `left layer on ${Math.round(100 * state.split)} % of the map`);
    this.line.style.left = `${100 * state.split}%`;
  }
}
