"""Sentences from templates are on one line, and names in them stay as they are."""

from geogp.reports.rendering import say, say_all


def test_sentences_are_on_one_line_with_the_names_as_they_are():
    names = {"a  run\tof mine": 1, "of two\r\n\u2028 lines": 2}
    (told,) = say_all("compare", "unlike", names, {name: ["2023Q4"] for name in names}, {})
    assert told.startswith(
        "The runs have different seeds (a  run\tof mine 1, of two lines 2). The seed determines "
        "the test rows, so few test rows are common. The runs also have different training"
    )
    told = say("captions", "interval_widths", "a  place", ("Random", "andom"))
    assert told.endswith(" a  place.")
    assert "\n" not in told
