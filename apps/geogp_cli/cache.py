"""The commands `geogp cache list`, `geogp cache verify` and `geogp cache clear`."""

from typing import TYPE_CHECKING

import typer

from geogp_cli import console
from geogp_cli.setting_options import CommandResult, answering

if TYPE_CHECKING:
    from geogp.geodata.store.cache import Item

app = typer.Typer(
    help="List, verify or clear the files that geogp downloaded.", no_args_is_help=True
)


@app.command(name="list")
@answering
def list_command() -> CommandResult:
    """List the files in the cache, each with source, date and size."""
    from geogp.geodata.store.cache import cache_items

    return _listed(cache_items())


@app.command()
@answering
def verify() -> CommandResult:
    """Check the content of every file in the cache. If a file is damaged, the exit code is 3."""
    from geogp.geodata.store.cache import DAMAGED, cache_items

    items = cache_items(check=True)
    listed, damaged = _listed(items), sum(item.state == DAMAGED for item in items)
    if not damaged:
        return listed
    advice = (
        f"{damaged} damaged: geogp does not read damaged files, and downloads a file again when "
        "it needs the file."
    )
    return CommandResult(listed.described, (*listed.told, advice), exit_code=3)


@app.command()
@answering
def clear() -> CommandResult:
    """Delete the downloaded files; geogp downloads a file again when it needs the file."""
    from geogp.geodata.store.cache import clear_cache

    done = clear_cache()
    told = [f"deleted {done.files} files, {done.size:,} bytes"]
    if done.busy:
        told.append(f"kept {done.busy} files that another process is downloading")
    return CommandResult({"deleted": done.files, "bytes": done.size, "busy": done.busy}, told)


def _listed(items: "list[Item]") -> CommandResult:
    from geogp.geodata.store.cache_place import cache_folder

    folder, entries = str(cache_folder()), [item.described() for item in items]
    table = console.table(
        folder,
        "file, kind, state, date, source, bytes, rows, bytes read, of stored",
        (
            (
                item.path.name,
                *(entry[key] or "-" for key in ("kind", "state", "date", "source")),
                *(
                    "-" if entry[key] is None else f"{entry[key]:,}"
                    for key in ("size", "rows", "bytes_read", "bytes_stored")
                ),
            )
            for item, entry in zip(items, entries, strict=True)
        ),
        left=("kind", "state", "date", "source"),
    )
    return CommandResult({"cache": folder, "items": entries}, (table,))
