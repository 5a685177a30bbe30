"""What tests do with an open page: click, read its card, check it with axe."""

import re

import numpy as np

CLICK = """p => { const at = geogp.page.map.latLngToContainerPoint(p);
  const box = geogp.page.map.getContainer().getBoundingClientRect();
  return [box.left + at.x, box.top + at.y]; }"""

AXE = """async () => {
  const found = await axe.run(document, {resultTypes: ['violations', 'incomplete']});
  return found.violations.map(v => [v.impact, v.id,
    v.nodes.map(n => n.target.join(' ') + ' ' + n.failureSummary)]);
}"""


def facts(seen):
    """Return the names and values on the card."""
    rows = seen.locator("#geogp-place dl > div")
    return dict(line.split("\n", 1) for line in rows.all_inner_texts())


def number(text):
    return float(re.search(r"[\d,.]+", text)[0].replace(",", ""))


def click(seen, place):
    seen.update(point=None)
    seen.evaluate(
        "([lat, lng]) => { geogp.page.map.setView([lat - .02, lng], 12, {animate: false}); }",
        place,
    )
    seen.mouse.click(*seen.evaluate(CLICK, place))
    seen.settle()


def close(text, value, step_log10):
    """Tell whether a shown number is a value, as far as three digits and the step let it."""
    return abs(np.log10(number(text) / value)) <= np.log10(1.00501) + step_log10


def serious(seen, npm):
    """Return what axe finds serious or critical."""
    # Not as an element: the page's policy lets no script in.
    seen.evaluate((npm / "axe-core" / "axe.min.js").read_text("utf-8"))
    return [one for one in seen.evaluate(AXE) if one[0] in {"serious", "critical"}]
