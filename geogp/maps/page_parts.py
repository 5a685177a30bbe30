"""Pieces of the interactive page: style, heading, legends, notes and the script."""

import html
from typing import Any

from branca.element import MacroElement
from folium.template import Template

from geogp.maps.frame import Frame
from geogp.maps.scales import Scale, format_tick

OPACITY = 0.82
"""Opacity of the layers above the base map, and of their legends."""

WITHOUT_LEAFLET = """
<script>
window.addEventListener('load', function () {
  if (typeof L === 'undefined') {
    document.querySelector('.folium-map').textContent =
      'The map needs the Leaflet library, which could not be loaded. Are you offline?';
  }
});
</script>
"""

_JINJA_AND_SCRIPT = {"{": "&#123;", "}": "&#125;", "`": "&#96;", "$": "&#36;", "\\": "&#92;"}

PAGE_STYLE = """
<style>
body { display: flex; flex-direction: column; font: 14px/1.35 system-ui, sans-serif;
  color: #222; background: #fff; }
.geogp-header { order: 0; padding: 8px 12px; border-bottom: 1px solid #ccc; }
.geogp-header h1 { font-size: 17px; line-height: 23px; margin: 0; overflow-wrap: anywhere; }
.folium-map { order: 1; flex: 1 1 auto; height: auto !important; min-height: 45%; }
.folium-map, .folium-map.leaflet-container { background: #e4eaef; }
.leaflet-image-layer { image-rendering: crisp-edges; image-rendering: pixelated; }
.geogp-footer { order: 2; display: flex; flex-wrap: wrap; gap: 6px 28px; padding: 8px 12px;
  border-top: 1px solid #ccc; max-height: 42%; overflow-y: auto; }
.geogp-legends { flex: 1 1 320px; max-width: 520px; }
.geogp-legend[hidden] { display: none; }
.geogp-legend b { font-weight: 600; }
.geogp-bar { height: 12px; margin: 4px 20px 0; border: 1px solid #666; }
.geogp-ticks { position: relative; height: 18px; margin: 0 20px; font-size: 12px; }
.geogp-ticks span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.geogp-hint { font-size: 12.5px; color: #444; }
.geogp-side { flex: 1 1 280px; font-size: 12.5px; }
.geogp-key { display: inline-block; margin-right: 14px; }
.geogp-key i { display: inline-block; width: 20px; vertical-align: middle; margin-right: 5px;
  box-sizing: border-box; }
.geogp-notes { margin: 4px 0 0; padding-left: 18px; }
.leaflet-container .leaflet-control-layers { max-width: 250px; font-size: 13px; }
.leaflet-control-layers label > span { display: flex; align-items: baseline; gap: 4px; }
.leaflet-container .leaflet-popup-content { font-size: 13px; }
.leaflet-container .leaflet-control-scale { font-size: 11px; }
.leaflet-container .leaflet-left .leaflet-control-scale { margin-left: 10px; }
.leaflet-container .leaflet-control-attribution { max-width: 100%; font-size: 10.5px; }
</style>
"""


def escape_text(text: str) -> str:
    """Return text that HTML, a Jinja template and a JavaScript string all show as it is.

    Besides HTML's own, the characters that open a Jinja expression or a JavaScript template
    literal become entities: folium renders names through both.
    """
    escaped = html.escape(text)
    for character, entity in _JINJA_AND_SCRIPT.items():
        escaped = escaped.replace(character, entity)
    return escaped


def header_html(title: str) -> str:
    """Return the heading of the page."""
    return f'<header class="geogp-header"><h1>{escape_text(title)}</h1></header>'


def legend_html(place: int, scale: Scale, hint: str) -> str:
    """Return the legend of the layer at a place in the list; only the first is shown at first."""
    shades = scale.colours()[1:]
    stops = ", ".join(f"rgb({r},{g},{b})" for r, g, b, _ in shades[:: max(1, len(shades) // 16)])
    last = "rgb({},{},{})".format(*shades[-1][:3])
    ticks = "".join(
        f'<span style="left:{100 * float(at):.2f}%">{format_tick(tick)}</span>'
        for tick, at in zip(scale.ticks, scale.fraction(scale.ticks), strict=True)
    )
    return (
        f'<div class="geogp-legend" data-layer="{place}"{"" if place == 0 else " hidden"}>'
        f"<b>{escape_text(scale.label)}</b>"
        f'<div class="geogp-bar" style="opacity:{OPACITY};'
        f'background:linear-gradient(to right, {stops}, {last})"></div>'
        f'<div class="geogp-ticks">{ticks}</div>'
        f'<div class="geogp-hint">{escape_text(hint)}</div></div>'
    )


def footer_html(legends: str, keys: list[tuple[str, str]], notes: list[str]) -> str:
    """Return legends, keys (CSS style and text) and notes, below the map."""
    marks = "".join(
        f'<span class="geogp-key"><i style="{style}"></i>{escape_text(text)}</span>'
        for style, text in keys
    )
    items = "".join(f"<li>{escape_text(note)}</li>" for note in notes)
    listed = f'<ul class="geogp-notes">{items}</ul>' if notes else ""
    return (
        f'<footer class="geogp-footer"><div class="geogp-legends">{legends}</div>'
        f'<div class="geogp-side">{marks}{listed}</div></footer>'
    )


class PageScript(MacroElement):
    """Layer control, the legend of the chosen layer, and values at a click.

    Parameters
    ----------
    choices
        Name and JavaScript name of the layers of which one is shown.
    extras
        Name and JavaScript name of the layers that lie above.
    attribution
        Escaped attribution of the data.
    readings
        Colours and values of the layers that a click names.
    frame
        Frame of the raster.
    bounds
        South-west and north-east corners as (latitude, longitude).
    """

    _template = Template("""
{% macro script(this, kwargs) %}
(function () {
  var map = {{ this._parent.get_name() }};
  var choices = [{% for name, layer in this.choices %}
    {name: {{ name|tojson }}, layer: {{ layer }}},{% endfor %}];
  var extras = { {% for name, layer in this.extras %}
    {{ name|tojson }}: {{ layer }},{% endfor %} };
  var base = {};
  choices.forEach(function (one) { base[one.name] = one.layer; });
  var narrow = window.innerWidth < 700;
  L.control.layers(base, extras, {collapsed: narrow, autoZIndex: false}).addTo(map);
  L.control.scale({position: 'topleft'}).addTo(map);
  map.attributionControl.addAttribution({{ this.attribution|tojson }});
  map.on('baselayerchange', function (event) {
    var chosen = choices.findIndex(function (one) { return one.layer === event.layer; });
    document.querySelectorAll('.geogp-legend').forEach(function (legend) {
      legend.hidden = Number(legend.dataset.layer) !== chosen;
    });
  });
  var readings = {{ this.readings|tojson }}, size = {{ this.size|tojson }};
  var corners = L.latLngBounds({{ this.bounds|tojson }}), pixels = {};
  function shadeAt(place, column, row) {
    if (!(place in pixels)) {
      var image = null;
      choices[place].layer.eachLayer(function (one) { if (one._url) { image = one; } });
      var canvas = document.createElement('canvas'), picture = new Image();
      canvas.width = size[0]; canvas.height = size[1];
      picture.src = image._url;
      pixels[place] = picture.decode().then(function () {
        var context = canvas.getContext('2d', {willReadFrequently: true});
        context.drawImage(picture, 0, 0);
        return context;
      });
    }
    return pixels[place].then(function (context) {
      return context.getImageData(column, row, 1, 1).data;
    });
  }
  map.on('click', function (event) {
    var point = map.project(event.latlng, 18), a = map.project(corners.getNorthWest(), 18),
        b = map.project(corners.getSouthEast(), 18);
    var column = Math.floor((point.x - a.x) / (b.x - a.x) * size[0]),
        row = Math.floor((point.y - a.y) / (b.y - a.y) * size[1]);
    if (column < 0 || row < 0 || column >= size[0] || row >= size[1]) { return; }
    Promise.all(readings.map(function (reading) {
      return shadeAt(reading.layer, column, row).then(function (shade) {
        if (shade[3] === 0) { return null; }
        var at = reading.colours.indexOf(shade[0] << 16 | shade[1] << 8 | shade[2]);
        var value = at < 0 ? '?' : reading.values[at];
        return reading.name + ': about ' + value + ' ' + reading.unit;
      });
    })).then(function (lines) {
      if (lines[0] === null) { return; }
      L.popup().setLatLng(event.latlng).setContent(lines.join('<br>')).openOn(map);
    });
  });
  window.addEventListener('load', function () {
    map.invalidateSize();
    map.fitBounds(corners, {paddingBottomRight: [narrow ? 0 : 250, 0], reset: true});
  });
})();
{% endmacro %}
""")

    def __init__(
        self,
        *,
        choices: list[tuple[str, str]],
        extras: list[tuple[str, str]],
        attribution: str,
        readings: list[dict[str, Any]],
        frame: Frame,
        bounds: list[list[float]],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._name = "PageScript"
        self.choices = choices
        self.extras = extras
        self.attribution = attribution
        self.readings = readings
        self.size = [frame.width, frame.height]
        self.bounds = bounds
