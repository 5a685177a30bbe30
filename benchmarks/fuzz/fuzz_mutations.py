"""Ways to damage a file: single bytes, or the content while the format stays valid."""

import hashlib
import io
import json
import stat
import struct
import zipfile
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Random = np.random.Generator

ODD_NUMBERS = (0, -1, 1, 2**31, -(2**31), 2**63, 2**64, 10**30, 1e308, -1e308, 1e-320, 0.5)

ODD_TEXTS = (
    *("", " ", "\x00", "..", "../../x", "/etc/passwd", "a/b", "C:\\x", "~", "%2e%2e", "{code}"),
    *("\ud800", "\u202e", "é" * 50, "x" * 5000, "nan", "NaN", "-1", "1e999", "9" * 5000),
    *("<script>alert(1)</script>", "{{7*7}}", "'; DROP TABLE x; --", "2023Q9", "0000Q1", "99999Q4"),
)

ODD_BYTES = (0, 1, 0x7F, 0x80, 0xFF)

PIECES = (
    b"PAR1",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"\x00" * 8,
    b"\xff" * 8,
    b"{",
    b"[" * 3000,
    b"\r\n\r\n",
)


def spoil_bytes(random: Random, content: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return a content with one to four changes anywhere.

    Parameters
    ----------
    random
        Source of randomness.
    content
        A valid file.
    others
        Other files, of which a piece is sometimes inserted.
    """
    spoilt = bytearray(content)
    for _ in range(int(random.integers(1, 5))):
        _spoil_once(random, spoilt, others)
    return bytes(spoilt)


def _spoil_once(random: Random, spoilt: bytearray, others: Sequence[bytes]) -> None:
    size = len(spoilt)
    place = int(random.integers(size + 1))
    if random.random() < 0.3:  # footers and headers contain a large part of the metadata
        near = int(random.integers(min(size, 600) + 1))
        place = near if random.random() < 0.5 else size - near
    length = int(random.integers(1, 33))
    match int(random.integers(10)):
        case 0 if place < size:
            spoilt[place] ^= 1 << int(random.integers(8))
        case 1 if place < size:
            spoilt[place] = int(random.integers(256))
        case 2 if place < size:
            spoilt[place] = ODD_BYTES[int(random.integers(len(ODD_BYTES)))]
        case 3:
            del spoilt[place : place + length]
        case 4:
            spoilt[place:place] = random.bytes(length)
        case 5:
            spoilt[place:place] = spoilt[place : place + length] * int(random.integers(1, 40))
        case 6:
            spoilt[place:place] = PIECES[int(random.integers(len(PIECES)))]
        case 7 if random.random() < 0.3:
            del spoilt[place:]
        case 8 if size >= 8:
            form = ("<i", ">i", "<q", "<d")[int(random.integers(4))]
            value = _packed(random, form)
            place = min(place, size - len(value))
            spoilt[place : place + len(value)] = value
        case 9 if others:
            other = others[int(random.integers(len(others)))]
            start = int(random.integers(max(1, len(other))))
            part = other[start : start + length * 8]
            spoilt[place : place + len(part)] = part
        case _ if place < size:
            spoilt[place] = (spoilt[place] + int(random.integers(1, 4))) % 256


def _packed(random: Random, form: str) -> bytes:
    if form == "<d":
        values = (np.nan, np.inf, -np.inf, 1e308, 0.0, -1.0)
        return struct.pack(form, values[int(random.integers(len(values)))])
    whole = 2**31 if form[-1] == "i" else 2**63
    values = (0, -1, 1, whole - 1, -whole, whole // 2)
    return struct.pack(form, values[int(random.integers(len(values)))])


ODD_VALUES = (
    *(None, True, False),
    *ODD_NUMBERS,
    *ODD_TEXTS,
    *(float("nan"), float("inf"), -float("inf")),
    *([], [None], [[]], [".."], [1, "a"], list(range(50))),
    *({}, {"": None}, {"a": {"b": []}}),
)
"""JSON values that few readers expect."""


def odd_value(random: Random) -> Any:
    """Return one of `ODD_VALUES`."""
    return deepcopy(ODD_VALUES[int(random.integers(len(ODD_VALUES)))])


def spoil_json(random: Random, value: Any) -> Any:
    """Return a copy of a JSON value with one to three of its parts replaced or removed."""
    copy = json.loads(json.dumps(value))
    for _ in range(int(random.integers(1, 4))):
        places = list(_places(copy))
        if not places:
            return odd_value(random)
        holder, key = places[int(random.integers(len(places)))]
        match int(random.integers(5)):
            case 0:
                del holder[key]
            case 1 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
                holder[key] = -holder[key] * int(random.integers(1, 10**6))
            case 2 if isinstance(holder[key], str):
                holder[key] = spoil_text(random, holder[key])
            case _:
                holder[key] = odd_value(random)
    return copy


def spoil_text(random: Random, text: str) -> str:
    """Return a text with an odd text before it, after it or in its place."""
    odd = ODD_TEXTS[int(random.integers(len(ODD_TEXTS)))]
    place = int(random.integers(len(text) + 1))
    return (odd, text + odd, odd + text, text[:place] + odd[:20] + text[place:])[
        int(random.integers(4))
    ]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place (holder, key) within nested lists and dictionaries."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        keys = (
            list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        )
        for key in keys:
            found.append((one, key))
            waiting.append(one[key])
    return found


def json_bytes(random: Random, content: bytes) -> bytes:
    """Return valid but unexpected JSON, sometimes too deep or with a repeated key."""
    chance = random.random()
    if chance < 0.02:
        return b"[" * 100_000
    if chance < 0.04:
        return b'{"a":' * 50_000 + b"1" + b"}" * 50_000
    if chance < 0.06:
        return content.replace(b"{", b'{"format": 1, "r": null, ', 1)
    return json.dumps(spoil_json(random, json.loads(content))).encode("utf-8", "surrogatepass")


def note_bytes(random: Random, content: bytes) -> bytes:
    """Return a note changed by `json_bytes`, usually with the hash of its new text."""
    spoilt = json_bytes(random, content)
    try:
        told = json.loads(spoilt)
        told.pop("note_sha256")
        if random.random() < 0.8:
            told["note_sha256"] = hashlib.sha256(json.dumps(told).encode()).hexdigest()
        return (json.dumps(told, indent=1) + "\n").encode()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return spoilt


def spoil_table(random: Random, content: bytes) -> bytes:
    """Return a Parquet file with one to three columns, values or settings changed."""
    table = pq.read_table(io.BytesIO(content))
    for _ in range(int(random.integers(1, 4))):
        table = _spoil_column(random, table)
    stream = io.BytesIO()
    options = {
        "compression": ("none", "snappy", "zstd", "gzip", "brotli")[int(random.integers(5))],
        "row_group_size": (1, 7, 50, 10**6)[int(random.integers(4))],
        "use_dictionary": bool(random.integers(2)),
        "data_page_version": ("1.0", "2.0")[int(random.integers(2))],
        "write_statistics": bool(random.integers(2)),
        "store_schema": bool(random.integers(2)),
    }
    pq.write_table(table, stream, **options)
    return stream.getvalue()


KINDS = (
    *(pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.binary(), pa.bool_()),
    *(pa.decimal128(20, 2), pa.list_(pa.int64()), pa.date32(), pa.timestamp("ns"), pa.null()),
)
"""Types that a column may be cast to."""


def _spoil_column(random: Random, table: pa.Table) -> pa.Table:
    names = table.column_names
    if not names:
        return table
    place = int(random.integers(len(names)))
    name, column, rows = names[place], table.columns[place], len(table)
    match int(random.integers(9)):
        case 0:
            spoilt = table.remove_column(place)
        case 1:
            other = spoil_text(random, name)[:300].encode("utf-8", "replace").decode()
            spoilt = table.rename_columns([*names[:place], other, *names[place + 1 :]])
        case 2:
            spoilt = table.append_column(name, column)
        case 3:
            spoilt = table.set_column(place, name, pa.nulls(rows, column.type))
        case 4:
            kind = KINDS[int(random.integers(len(KINDS)))]
            try:
                spoilt = table.set_column(place, name, column.cast(kind))
            except (pa.ArrowException, ValueError):
                spoilt = table.set_column(place, name, pa.nulls(rows, kind))
        case 5 if rows:
            times = int(random.integers(0, 3))
            spoilt = table.take(pa.array(random.integers(0, rows, rows * times)))
        case 6:
            spoilt = table.slice(0, 0)
        case _:
            spoilt = table.set_column(place, name, _with_odd_value(random, column))
    return spoilt


def _with_odd_value(random: Random, column: pa.ChunkedArray) -> pa.Array:
    """Replace one to three values of a column."""
    values = column.to_pylist()
    for _ in range(int(random.integers(1, 4))):
        if not values:
            break
        place = int(random.integers(len(values)))
        if pa.types.is_string(column.type):
            odd = (*ODD_TEXTS, "3" * 16, "0" * 17, "012301230123012x", None)
            values[place] = odd[int(random.integers(len(odd)))]
        elif pa.types.is_binary(column.type):
            values[place] = (None, b"", spoil_bytes(random, values[place] or b"\x01"))[
                int(random.integers(3))
            ]
        elif pa.types.is_floating(column.type):
            values[place] = (None, np.nan, np.inf, -1.0, 1e308)[int(random.integers(5))]
        else:
            values[place] = (None, -1, 0, 2**31 - 1, -(2**31))[int(random.integers(5))]
    texts = [v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for v in values]
    try:
        return pa.array(texts, column.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.nulls(len(values), column.type)


PREFIXES = ("../", "/", "a/../../", "..\\", "C:", "\x01", "é/", "x" * 300)
"""Prefixes for the names of archive members."""


def spoil_zip(random: Random, content: bytes) -> bytes:
    """Return a zip file with damaged, renamed, added, linked or far too large members."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {one.filename: archive.read(one) for one in archive.infolist()}
    names = list(members)
    name = names[int(random.integers(len(names)))]
    link = ""
    match int(random.integers(8)):
        case 0 | 1 | 2:
            members[name] = spoil_bytes(random, members[name])
        case 3:
            del members[name]
        case 4:
            prefix = PREFIXES[int(random.integers(len(PREFIXES)))]
            members[prefix + name] = members.pop(name)
        case 5:
            members["x.vrt"] = b'<OGRVRTDataSource><OGRVRTLayer name="a"/></OGRVRTDataSource>'
        case 6:
            members[name] = members[name] + bytes(int(random.integers(1, 80)) << 20)
        case _:
            link, members[name] = name, b"/etc/passwd"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, held in members.items():
            told = zipfile.ZipInfo(one)
            told.compress_type = zipfile.ZIP_DEFLATED
            if one == link:
                told.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(told, held)
    return stream.getvalue()


def answers_changed(random: Random, content: bytes) -> bytes:
    """Change the headers of an answer."""
    lines = content.split(b"\r\n")
    place = int(random.integers(len(lines)))
    odd = (
        *(
            b"Content-Length: " + v
            for v in (b"-1", b"9" * 5000, b"1, 2", b"0x10", b"", b"\xb2", b"1e3")
        ),
        *(
            b"Content-Range: bytes " + v
            for v in (b"5-14/" + b"9" * 5000, b"5-14/*", b"14-5/40", b"*/40")
        ),
        *(
            b"Retry-After: " + v
            for v in (b"9" * 5000, b"Wed, 99 Foo 99999 99:99:99", b"nan", b"-5")
        ),
        *(
            b"Location: " + v
            for v in (b"file:///etc/passwd", b"//", b"http://[", b"/\xff", b"ftp://x/")
        ),
        *(b"Content-Encoding: " + v for v in (b"gzip", b"deflate", b"br")),
        *(b"HTTP/1.1 " + v for v in (b"999 x", b"-1", b"abc", b"206 x", b"304 x", b"100 Continue")),
        *(b"Transfer-Encoding: chunked", b"Set-Cookie: a=b", b": x", b"X" * 70_000, b'ETag: W/"a"'),
    )
    lines[place] = odd[int(random.integers(len(odd)))]
    if random.random() < 0.3:
        lines.insert(place, odd[int(random.integers(len(odd)))])
    return (
        spoil_bytes(random, b"\r\n".join(lines)) if random.random() < 0.2 else b"\r\n".join(lines)
    )
