"""The clock of a map's phases: the time left is that of this machine, or not known."""

import json
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from geogp.errors import RequestError
from geogp.models.fitting.fit_progress import duration_between
from geogp.runs.pipeline import phase_rates
from geogp.runs.pipeline.run_map import run_map
from geogp.runs.progress import PHASES, PhaseClock
from geogp_cli import console


@pytest.fixture
def time():
    return SimpleNamespace(now=0.0)


@pytest.fixture
def clock(time):
    return PhaseClock(now=lambda: time.now)


def test_a_first_map_does_not_know_the_time_left(clock, time):
    for phase in PHASES:
        clock.begin(phase)
        assert clock.left is None
        time.now += 3
    clock.end()
    assert clock.left == 0
    assert clock.elapsed == 3 * len(PHASES)


def test_expected_seconds_count_down_and_never_reach_zero_before_the_end(clock, time):
    clock.expected = {"read": 1.0, "fit": 100.0, "check": 10.0, "predict": 20.0, "write": 5.0}
    clock.parts |= {"fit": 2, "check": 2}
    clock.begin("read")
    assert clock.left == 1 + 2 * 100 + 2 * 10 + 20 + 5
    time.now += 1
    clock.begin("fit")
    clock.advance(0.5)
    time.now += 40  # the own speed of this fit, not the expected one
    assert clock.left == pytest.approx(40 + 100 + 2 * 10 + 20 + 5)
    clock.advance(1.0)
    assert clock.left == pytest.approx(100 + 2 * 10 + 20 + 5)
    time.now += 10
    clock.begin("check")
    time.now += 4
    # The second fit takes as long as the first; the check has no shares.
    assert clock.left == pytest.approx(50 + 6 + 10 + 20 + 5)
    time.now += 7
    assert clock.left is None  # the check takes longer than expected
    clock.begin("fit")
    clock.begin("check")
    clock.begin("predict")
    assert clock.left == pytest.approx(20 + 5)


def test_a_share_that_falls_tells_nothing(clock, time):
    clock.expected = dict.fromkeys(PHASES, 10.0)
    clock.begin("fit")
    time.now += 2
    clock.advance(1.0)
    clock.advance(0.1)
    assert clock.left_of("fit") == pytest.approx(8)


def test_left_out_phases_take_no_time(clock):
    clock.expected = {"predict": 20.0, "write": 5.0}
    clock.parts |= {"fit": 0, "check": 0}
    clock.begin("read")
    clock.begin("predict")
    assert clock.left == 25


def test_a_map_remembers_its_rates_for_the_next(small, tmp_path, monkeypatch):
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    clocks = []

    class Hears(console._Lines):
        def phases(self, clock):
            clocks.append(clock)
            super().phases(clock)

    settings = {"model": "dbk-silu", "split": "random"}
    for name in ("one", "two"):
        run_map(small.request(tmp_path / name, **settings), Hears())
    first, second = clocks
    assert list(first.spent) == list(PHASES)
    assert {phase: len(first.spent[phase]) for phase in ("fit", "check")} == {
        phase: first.parts[phase] for phase in ("fit", "check")
    }
    assert first.expected == {}
    for phase in ("fit", "check", "predict", "write"):
        took = sum(first.spent[phase]) / len(first.spent[phase])
        assert second.expected[phase] == pytest.approx(took)
    assert json.loads(phase_rates.rates_file().read_text()).keys() == {"dbk-silu quick cpu"}
    # Much less or much more work says nothing about the time.
    run_map(small.request(tmp_path / "three", **settings, epochs=20), Hears())
    assert "fit" not in clocks[2].expected
    assert "check" in clocks[2].expected


def test_rough_times_are_a_range_that_follows_the_pace(clock, time):
    assert clock.left_between is None
    clock.rough = {"fit": (10.0, 40.0), "check": (1.0, 4.0), "predict": (20.0, 80.0)}
    clock.expected = {"read": 1.0, "write": 5.0}
    clock.parts |= {"fit": 2, "check": 2}
    clock.begin("read")
    time.now += 1
    clock.begin("fit")
    assert clock.left is None
    assert clock.left_between == (2 * 10 + 2 * 1 + 20 + 5, 2 * 40 + 2 * 4 + 80 + 5)
    time.now += 15
    assert clock.left_between == (5 + 2 * 1 + 20 + 5, 65 + 2 * 4 + 80 + 5)
    clock.advance(0.9)  # by epochs; much may follow the last of them
    assert clock.left_between == (5 + 2 * 1 + 20 + 5, 65 + 2 * 4 + 80 + 5)
    time.now += 45
    clock.begin("fit")  # the first took 60 s, three times the 20 s between 10 and 40
    assert clock.left_between == (60 + 3 * (2 * 1 + 20) + 5, 60 + 3 * (2 * 4 + 80) + 5)
    time.now += 60
    clock.begin("check")
    time.now += 3 * 4 * 2 + 1
    assert clock.left_between is None  # both checks together take longer than expected
    clock.begin("predict")
    assert clock.left is None


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [(0.2, 7.1, "1 to 8 s"), (5, 5, "5 s"), (50, 119, "50 to 119 s"), (170, 350, "3 to 6 min")],
)
def test_a_range_in_words(least, most, words):
    assert duration_between(least, most) == words


@pytest.mark.parametrize("alike", [True, False])
def test_a_first_map_of_the_default_model_tells_a_range(
    alike, small, tmp_path, monkeypatch, capsys
):
    """The demo, which has many more rows than this map, tells nothing about it."""
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "cache"))
    if alike:
        monkeypatch.setattr(phase_rates, "ALIKE", 1e9)
    run_map(small.request(tmp_path / "run"), console._Lines())
    lines = capsys.readouterr().err.splitlines()
    (first,) = [line for line in lines if "fitting field (random)" in line]
    assert bool(re.search(r"\(about \d+ to \d+ (s|min) left\)$", first)) == alike


@pytest.mark.parametrize("text", ["{", "[1]", '{"field quick cpu": {"fit": [-1, 2]}}', '{"a": 1}'])
def test_damaged_rates_count_as_none(tmp_path, monkeypatch, text):
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path))
    phase_rates.rates_file().write_text(text)
    assert phase_rates._stored() == {}


def shown(progress):
    screen = Console(width=150, force_terminal=True, color_system=None)
    with screen.capture() as heard:
        screen.print(*progress.get_renderables())
    return heard.get()


def test_the_terminal_shows_one_bar_over_all_phases(clock, time):
    progress = console._PhaseProgress(*console._COLUMNS, console=Console(stderr=True))
    bars = console._Bars(progress)
    bars.phases(clock)
    clock.expected = dict.fromkeys(PHASES, 100.0)
    clock.begin("read")
    clock.begin("fit")
    bars.progress("fit (random)", 4, 8, "score [1]")
    time.now += 50
    first = shown(progress)
    assert "read > fit > check > predict > write" in first
    assert "about 5 min 50 s left; fit (random): 4/8, score [1]" in first
    bars.progress("fit (random)", 8, 8, "")
    clock.begin("check")
    time.now += 99
    assert "about 3 min 21 s left" in shown(progress)
    time.now += 2
    late = shown(progress)
    assert "time left not known" in late
    assert "0:00" not in late
    assert "8/8" not in late


def test_a_finished_bar_of_another_command_disappears():
    progress = console._PhaseProgress(*console._COLUMNS, console=Console(stderr=True))
    bars = console._Bars(progress)
    bars.progress("choosing tiles", 3, 4, "")
    assert "choosing tiles" in shown(progress)
    bars.progress("choosing tiles", 4, 4, "")
    assert "choosing tiles" not in shown(progress)


def test_plain_lines_say_the_time_left(clock, time, capsys):
    lines = console._Lines()
    lines.phases(clock)
    clock.expected = dict.fromkeys(PHASES, 10.0)
    clock.begin("write")
    lines.stage("writing")
    clock.expected = {}
    clock.begin("fit")
    lines.stage("fitting")
    told = capsys.readouterr().err
    assert "writing (about " in told
    assert "fitting\n" in told


@pytest.mark.parametrize("option", ["covariates", "strata"])
def test_a_missing_file_is_refused_before_data_are_read(small, tmp_path, monkeypatch, option):
    def never(*_, **__):
        pytest.fail("data were read")

    monkeypatch.setattr("geogp.runs.pipeline.read.read_observations", never)
    monkeypatch.setattr("geogp.geodata.places.census.read_region", never)
    absent = str(tmp_path / "absent.tif")
    request = small.request(
        tmp_path / "run", **{option: (absent,) if option == "covariates" else absent}
    )
    with pytest.raises(RequestError, match=rf"no file .*absent\.tif; expected .* --{option}"):
        run_map(request)
