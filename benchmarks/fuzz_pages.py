"""Which bytes of a Parquet file a checksum covers: the bodies of pages that say their CRC-32.

Nothing covers the headers of pages, nor the footer.
"""

import io
from collections.abc import Iterator

import pyarrow.parquet as pq
from geogp.geodata.tiles.thrift import structure

_PACKED_SIZE, _CRC = 3, 4
"""Numbers of fields of a page header."""


def covered(content: bytes) -> list[tuple[int, int]]:
    """Return first and last + 1 of each page body that has a checksum."""
    metadata = pq.read_metadata(io.BytesIO(content))
    found: list[tuple[int, int]] = []
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            found.extend(_bodies(content, start, start + chunk.total_compressed_size))
    return found


def _bodies(content: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        fields, body = structure(content, start)
        start = body + fields[_PACKED_SIZE].value
        if _CRC in fields:
            yield body, start
