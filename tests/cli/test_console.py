"""What reaches the terminal: names from files are shown, and never obeyed."""

import pytest

from geogp_cli import console, entry, setting_options

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


def test_tables_and_texts_are_shown_with_visible_characters(capsys):
    rows = [("1", "2"), ("x\r\nyy\x07", "3")]
    console.tell(console.table(WILD, [f"name, {WILD}", "n"], rows), WILD)
    told = capsys.readouterr().out
    assert told.splitlines()[0].rstrip() == TAME
    assert told.splitlines()[-1] == TAME
    assert f"name, {TAME}" in told
    assert not set(told) & {"\x1b", "\u202e", "\x00", "\r", "\x07"}


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
