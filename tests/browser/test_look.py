from conftest import PHONE

def test_look(visit, made, artefacts):
    seen = visit(made.page)
    seen.screenshot(path=artefacts / "desktop.png")
    seen.mouse.click(800, 400); seen.settle()
    seen.update(beside="width", layer="probability")
    seen.screenshot(path=artefacts / "desktop-compare.png")
    ph = visit(made.page, size=PHONE, touch=True)
    ph.screenshot(path=artefacts / "phone.png")
    ph.mouse.click(200, 300); ph.settle()
    ph.screenshot(path=artefacts / "phone-place.png")
    ph.locator("summary").first.click()
    ph.screenshot(path=artefacts / "phone-panel.png")
