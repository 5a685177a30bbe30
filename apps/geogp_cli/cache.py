"""The commands `geogp cache list`, `verify` and `clear`: parse, call, print."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from geogp.geodata.store.cache_contents import Item

app = typer.Typer(
    help="List, verify or clear the files that geogp downloaded.", no_args_is_help=True
)

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")
]


@app.command(name="list")
def list_command(as_json: Json = False) -> None:
    """List the files in the cache with source, date and size."""
    from geogp.geodata.store.cache_contents import cache_items

    _show(cache_items(), as_json=as_json)


@app.command()
def verify(as_json: Json = False) -> None:
    """Compare all bytes of every file with its note; exit code 3 if a file is damaged."""
    from geogp.geodata.store.cache_contents import DAMAGED, cache_items

    items = cache_items(check=True)
    _show(items, as_json=as_json)
    damaged = sum(item.state == DAMAGED for item in items)
    if damaged:
        if not as_json:
            print(
                f"{damaged} damaged: geogp does not read damaged files, and downloads them again "
                "when needed."
            )
        raise typer.Exit(3)


@app.command()
def clear(as_json: Json = False) -> None:
    """Delete the downloaded files; geogp downloads them again when needed."""
    from geogp.geodata.store.cache_contents import clear_cache

    done = clear_cache()
    if as_json:
        print(json.dumps({"deleted": done.files, "bytes": done.size, "busy": done.busy}))
    else:
        print(f"deleted {done.files} files, {done.size:,} bytes")
        if done.busy:
            print(f"kept {done.busy} files that another process is downloading")


def _show(items: "list[Item]", *, as_json: bool) -> None:
    from geogp.geodata.store.cache import cache_folder

    if as_json:
        entry = [item.described() for item in items]
        print(json.dumps({"cache": str(cache_folder()), "items": entry}))
        return
    table = Table(title=escape(str(cache_folder())), title_justify="left")
    for heading in ("file", "kind", "state", "date", "source"):
        table.add_column(heading, overflow="fold")
    for heading in ("bytes", "rows", "bytes read", "of stored"):
        table.add_column(heading, justify="right")
    for item in items:
        entry = item.described()
        numbers = [entry[key] for key in ("size", "rows", "bytes_read", "bytes_stored")]
        table.add_row(
            escape(item.path.name),
            *(escape(str(entry[key] or "-")) for key in ("kind", "state", "date", "source")),
            *("-" if number is None else f"{number:,}" for number in numbers),
        )
    Console(soft_wrap=True).print(table)
