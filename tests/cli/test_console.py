"""What reaches the terminal: names from files are shown, and never obeyed."""

import re
from pathlib import Path

import pandas as pd
import pytest

from geogp.answers.answer import Answer, Column
from geogp_cli import console, entry, questions, setting_options

WILD = "a\x1b[2J\u202eb\x00[red]:smile:[/red]"
TAME = r"a\x1b[2J\u202eb\x00[red]:smile:[/red]"


def test_errors_and_warnings_are_shown_with_visible_characters(capsys):
    console.fail(f"{WILD}\n  - second line")
    with console.working() as listener:
        listener.warn(WILD)
        listener.stage(WILD)
        listener.progress(WILD, 1, 2, WILD)
    told = capsys.readouterr().err
    assert told.count(TAME) == 5
    assert told.startswith(f"error: {TAME}\n  - second line\n")
    assert not set(told) & {"\x1b", "\u202e", "\x00"}


def test_lines_without_a_terminal_have_the_time_since_the_start(capsys, monkeypatch):
    now = iter([100.0, 100.4, 165.0, 3800.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(now))
    with console.working() as listener:
        listener.stage("reading")
        listener.progress("fit", 1, 2, "")
    told = capsys.readouterr().err
    assert told == "0:00:00 reading\n0:01:05 fit: 1/2\n1:01:40 done\n"


def test_a_command_that_says_nothing_has_no_time(capsys):
    with console.working():
        pass
    assert capsys.readouterr().err == ""


def test_tables_and_texts_are_shown_with_visible_characters(capsys):
    rows = [("1", "2"), ("x\r\nyy\x07", "3")]
    console.tell(console.table(WILD, [f"name, {WILD}", "n"], rows), WILD)
    told = capsys.readouterr().out
    assert told.splitlines()[0].rstrip() == TAME
    assert told.splitlines()[-1] == TAME
    assert f"name, {TAME}" in told
    assert not set(told) & {"\x1b", "\u202e", "\x00", "\r", "\x07"}


COLUMNS = (
    Column("area", ("area",), "{}"),
    Column("tiles", ("tiles",), "{:,}", minor=True),
    Column("change", ("change",), "{:+.1f} %"),
    Column("95 % interval", ("lower", "upper"), "{:+.1f} to {:+.1f} %"),
    Column("probability of a rise", ("rose",), "{:.3f}", minor=True),
    Column("direction", ("direction",), "{}"),
)
ROW = {"area": "Sao Tome and Principe", "tiles": 20067, "change": 81.04, "lower": 69.4}
ROW |= {"upper": 193.3, "rose": 0.9996, "direction": "rose"}


@pytest.mark.parametrize(
    ("width", "shown", "left_out"),
    [
        (200, ["20,067", "+81.0 %", "+69.4 to +193.3 %", "1.000", "rose"], []),
        (76, ["+81.0 %", "+69.4 to +193.3 %", "1.000", "rose"], ["tiles"]),
        (60, ["+81.0 %", "+69.4 to +193.3 %", "rose"], ["tiles", "probability of a rise"]),
        (
            50,
            ["+81.0 %", "+69.4 to +193.3 %"],
            ["tiles", "probability of a rise", "direction"],
        ),
        (1, [], [column.label for column in COLUMNS[1:]]),
    ],
)
@pytest.mark.parametrize("file", ["a.csv", None])
def test_numbers_are_not_folded(width, shown, left_out, *, file, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    files = (Path("runs/a.json"), Path("runs") / file) if file else ()
    table = pd.DataFrame([ROW])
    answer = Answer("a", "Title", {"rows": [ROW]}, "rows", table, COLUMNS, files=files)
    console.tell(*questions._texts([answer]))
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines() if line[0] in "┏┃┡│└") <= max(width, 5)
    for text in shown:
        assert re.search(rf"│ +{re.escape(text)} +│", out)
    if not left_out:
        assert all(column.label in out for column in COLUMNS)
    note = f"Not shown, for lack of room: {'; '.join(left_out)}. See {file or '--json'}.\n"
    assert note in out if left_out else "Not shown" not in out


def test_an_error_that_cannot_be_printed_well_is_visible_too(capsys, monkeypatch):
    def broken(message):
        raise MemoryError

    monkeypatch.setattr(console, "fail", broken)
    entry._say(WILD)
    assert capsys.readouterr().err == f"error: {TAME}\n"


@pytest.mark.parametrize(("fresh", "told"), [(False, "again."), (True, "again without --fresh.")])
def test_a_command_that_is_interrupted_says_so_in_one_line(capsys, fresh, told):
    """Also while no progress is shown."""

    def stopped(**_):
        raise KeyboardInterrupt

    command = setting_options.answering(stopped, [])
    with pytest.raises(KeyboardInterrupt):
        command(as_json=False, **({"fresh": False} if fresh else {}))
    said = f"error: interrupted; to continue, give the same command {told}\n"
    assert capsys.readouterr().err == said
