"""`geogp batch`: the states of its command line."""

import pytest

from geogp.commands.batch import make_batch


class StoppedError(Exception):
    """Ends a batch before its work."""


@pytest.mark.parametrize("words", [["PR", "New Mexico"], ["--states", "PR,New Mexico"]])
def test_states_are_words_or_an_option(words, geogp, monkeypatch, tmp_path):
    asked = []

    def stop(request, *_, **__):
        asked.append(request)
        raise StoppedError

    monkeypatch.setattr(make_batch, "make_batch", stop)
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path))
    assert geogp("batch", *words, "--out", tmp_path)[0] == 70
    assert asked[0].listed("states") == ("PR", "New Mexico")
