"""How messages show texts of the user."""

import pytest

from geogp.choices import one_of
from geogp.errors import DataError, RequestError, check_name, named, shown, visible


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Claro Móvil 移动", "Claro Móvil 移动"),
        ("a\N{NO-BREAK SPACE}b", "a\N{NO-BREAK SPACE}b"),
        ("क्\u200dष", "क्\u200dष"),  # Hindi is spelt with joiners
        ("C:\\new", "C:\\new"),
        ("\x1b[2J\x00\r\n", r"\x1b[2J\x00\r\n"),
        ("\u202egpj.exe\u2066", r"\u202egpj.exe\u2066"),
        ("a\u2028b\ufeff\x9b", r"a\u2028b\ufeff\x9b"),
        ("\udcff", r"\udcff"),
    ],
)
def test_invisible_characters_are_escaped(text, expected):
    assert visible(text) == expected
    visible(text).encode()


def test_long_texts_are_cut():
    assert shown("x" * 60) == "x" * 60
    assert shown("x" * 20_000) == "x" * 60 + "... (20,000 characters)"
    assert shown("\x00" * 4, most=2) == r"\x00\x00... (4 characters)"


def test_long_lists_are_cut():
    assert named([]) == ""
    assert named(map(str, range(10))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    many = named(f"provider {k:05}" + "\x07" * 100 for k in range(20_000))
    assert many.endswith(", ... and 19,990 more")
    assert "\x07" not in many
    assert len(many) < 5000


def test_a_choice_among_many_names_is_cut():
    with pytest.raises(RequestError, match=r"unknown provider 'zzz'; .* and 19,990 more") as told:
        one_of("provider", "zzz", [f"provider {k}" for k in range(20_000)])
    assert len(str(told.value)) < 400
    with pytest.raises(RequestError, match=r"20,002 characters\); choose one of a, b\.$"):
        one_of("provider", "z" * 20_000, ["a", "b"])


def test_names_in_files_have_no_control_characters():
    for name in ("Claro", "two\nlines", "\u202eright to left"):
        check_name("a name", name)
    for name in ("a\x00b", "\x1b[2J", "\x85", "\udc00"):
        with pytest.raises(
            DataError, match=r"a name without control characters, found .*Rename it"
        ):
            check_name("a name", name)
