"""Reading of delimited text: encoding, delimiter, and the rows with their lines."""

import bz2
import csv
import gzip
import io
import lzma
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import charset_normalizer

from geogp.errors import DataError, named
from geogp.geodata.places.archives import check_file

MAX_TEXT_BYTES = 1 << 29
"""Largest size of a text file, after unpacking, because its text is kept in memory."""

SAMPLE_BYTES, SAMPLE_ROWS = 1 << 18, 200
"""What the encoding and the delimiter are chosen by."""

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}

_PACKED: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
}
"""First bytes of packed files, and their readers."""

_MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
"""Byte order marks, and the encodings of texts that begin with them."""

DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)
"""Errors of damaged packed files."""


class Row(NamedTuple):
    """The cells of a row, and the line in which the row ends."""

    line: int
    cells: list[str]


def unpacked(path: Path, endings: Sequence[str]) -> tuple[bytes, str]:
    """Return the content of a file, unpacked if it is packed, and the ending of its name.

    An archive must contain exactly one file whose name ends in one of `endings`. Raises DataError
    if the content is too large, or the file is damaged.
    """
    check_file(path)
    name = path.name.lower()
    try:
        with path.open("rb") as stream:
            head = stream.read(6)
        if head.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(path) as archive:
                names = [
                    one
                    for one in archive.namelist()
                    if one.lower().endswith(tuple(endings)) and not one.startswith("__MACOSX/")
                ]
                if len(names) != 1:
                    raise DataError(
                        f"expected one table in {path}, found {len(names)}: "
                        f"{named(names or archive.namelist())}. Unpack the "
                        "archive, and give the table itself."
                    )
                with archive.open(names[0]) as member:
                    return _limited(path, member), Path(names[0].lower()).suffix
        for mark, open_packed in _PACKED.items():
            if head.startswith(mark):
                inner = Path(name).stem if Path(name).suffix in {".gz", ".bz2", ".xz"} else name
                with path.open("rb") as stream, open_packed(stream) as plain:
                    return _limited(path, plain), Path(inner).suffix
        with path.open("rb") as stream:
            return _limited(path, stream), Path(name).suffix
    except DAMAGE as error:
        raise DataError(f"{path} cannot be read ({error}). Download or write it again.") from error


def _limited(path: Path, stream: IO[bytes]) -> bytes:
    content = stream.read(MAX_TEXT_BYTES + 1)
    if len(content) > MAX_TEXT_BYTES:
        raise DataError(
            f"{path} has more than {MAX_TEXT_BYTES:,} bytes of text, the most that geogp reads. "
            "Write it as Parquet."
        )
    return content


def decoded(path: Path, content: bytes, encoding: str | None) -> tuple[str, str]:
    """Return the text of a file, and its encoding; raise DataError if it cannot be decoded.

    Without `encoding`, the encoding is that of the byte order mark, UTF-8, or a guess from the
    characters of the text.
    """
    found = encoding or next(
        (one for mark, one in _MARKS.items() if content.startswith(mark)), None
    )
    if found is None:
        even, odd = content[:SAMPLE_BYTES:2].count(0), content[1:SAMPLE_BYTES:2].count(0)
        if max(even, odd) > len(content[:SAMPLE_BYTES]) // 4:
            found = "utf-16-be" if even > odd else "utf-16-le"
    if found is None:
        try:
            return content.decode(), "utf-8"
        except UnicodeDecodeError:
            found = _guessed(content)
    try:
        return content.decode(found).removeprefix("\ufeff"), found
    except (UnicodeError, LookupError) as error:
        raise DataError(
            f"{path} cannot be read as text in {found} ({error}). Give its encoding with "
            "--encoding, such as utf-8 or cp1252."
        ) from error


def _guessed(content: bytes) -> str:
    """Return the likely encoding of a text that is not UTF-8: cp1252, or one that fits better."""
    first = next(k for k, byte in enumerate(content) if byte > 127)
    begin = max(0, first - SAMPLE_BYTES // 2)
    found = list(charset_normalizer.from_bytes(content[begin : begin + SAMPLE_BYTES]))
    western = [one for one in found if {"cp1252", "latin_1"} & {*one.could_be_from_charset}]
    if not found or any(
        one.percent_chaos <= found[0].percent_chaos
        and one.percent_coherence >= found[0].percent_coherence
        for one in western
    ):
        return "cp1252"
    return str(found[0].encoding)


def rows_of(path: Path, text: str, delimiter: str) -> tuple[list[Row], str]:
    """Return the rows of a text with cells, and the delimiter; empty lines are left out.

    With `delimiter` "", it is the one of the line ``sep=;``, or else the one that gives most rows
    the same number of cells. Raises DataError if a quote has no end.
    """
    first, _, rest = text.partition("\n")
    begin = 0
    if first.strip().lower().startswith("sep=") and len(first.strip().strip('"')) in {4, 5}:
        delimiter = delimiter or first.strip("\r\n").strip('"')[4:] or "\t"
        text, begin = rest, 1
    sample = "".join(islice(io.StringIO(text, newline=""), SAMPLE_ROWS))
    if not delimiter:
        delimiter = max(DELIMITERS, key=lambda sign: _fit(sample, sign))
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        found = [Row(begin + rows.line_num, cells) for cells in rows if any(map(str.strip, cells))]
    except csv.Error as error:
        raise DataError(
            f"{path} cannot be read as CSV: {error} in or before line {begin + rows.line_num}. "
            "Correct this line."
        ) from error
    return found, delimiter


def _fit(sample: str, sign: str) -> tuple[int, int]:
    """Return the number of lines with the usual number of cells, above one, and this number."""
    lines = csv.reader(io.StringIO(sample, newline=""), delimiter=sign)
    widths: Counter[int] = Counter()
    with suppress(csv.Error):  # of a cell that is too long; the lines before it decide
        widths.update(len(cells) for cells in lines if len(cells) > 1)
    if not widths:
        return 0, 0
    width, count = widths.most_common(1)[0]
    return count, width
