"""What README and docs name exists: commands, options, files. The build of docs runs the rest."""

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click
import pytest
import typer
from test_architecture import FLOORS, FORBIDDEN, ROOMS

import geogp
from geogp.models.names import CLASS_MODELS, MODELS
from geogp_cli.main import app

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs" / "_extensions"))
from plain import with_directives  # noqa: E402 - of the pages

PAPERS = sorted((ROOT / "docs" / "papers").glob("*.md"))
CONTRIBUTING, ARCHITECTURE = ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"
PAGES = [ROOT / "README.md", CONTRIBUTING, *sorted((ROOT / "docs").glob("*.md")), *PAPERS]
GEOGP = typer.main.get_command(app)


def name_of(page):
    docs = ROOT / "docs"
    return page.relative_to(docs if page.is_relative_to(docs) else ROOT).as_posix()


def text_of(page):
    """The text of a page with all that the build runs, also what a Git host does not show."""
    return with_directives(page.read_text("utf-8"))


def commands_of(page):
    """Words of every geogp command in the code blocks of a page."""
    found = []
    for block in re.findall(r"^```[^\n]*\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            start = re.match(r"\s*(?:\.venv/bin/)?geogp (.*)", line)
            if start:
                found.append(shlex.split(start[1].replace("...", ""), comments=True))
    return found


def wrong(words):
    """What of a command does not exist; None where all does."""
    if words[0] not in GEOGP.commands:
        return f"no command {words[0]}"
    options = {
        name
        for option in GEOGP.commands[words[0]].params
        for name in (*option.opts, *option.secondary_opts)
    }
    unknown = {word.split("=")[0] for word in words if word.startswith("--")} - options
    return f"no option {', '.join(sorted(unknown))} of {words[0]}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_their_options_exist(page):
    assert [told for words in commands_of(page) if (told := wrong(words))] == []


def test_an_unknown_option_would_be_found():
    assert isinstance(GEOGP, click.Group) or hasattr(GEOGP, "commands")
    assert wrong(["map", "PR", "--no-such"]) == "no option --no-such of map"
    assert wrong(["chart"]) == "no command chart"
    counted = {name_of(page): len(commands_of(page)) for page in PAGES}
    assert sum(counted.values()) >= 30
    with_commands = (
        *("README", "first-map", "choosing-a-model", "your-own-data", "many-states", "map-options"),
        *("tiles-and-cache", "own-regions", "questions", "comparing-runs", "number-of-tests"),
        "repairing-intervals",
    )
    for name in with_commands:
        assert counted[f"{name}.md"], name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_named_in_sentences_exist(page):
    known = {
        name
        for command in GEOGP.commands.values()
        for option in command.params
        for name in option.opts
    }
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"`(--[a-z-]+)", text))
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_files_resolve(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_python_in_the_docs_compiles_and_its_names_of_geogp_exist():
    seen, missing = [], []
    for page in PAGES:
        text = text_of(page)
        for block in re.findall(r"^```\{?python\}?\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            code = re.sub(r"^:[a-z]+:\n", "", block, flags=re.MULTILINE)
            compile(code, name_of(page), "exec")
            for value, name in _names_of_geogp(ast.parse(code)):
                seen.append(name)
                missing += [] if hasattr(value, name) else [(name_of(page), value.__name__, name)]
    assert {"MAX_HEADER_BYTES", "make_map"} <= set(seen)
    assert missing == []


def _names_of_geogp(code):
    """Modules of geogp, and names that code imports from them or reads in them."""
    modules = {"geogp": geogp}
    for node in ast.walk(code):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("geogp"):
            for alias in node.names:
                with suppress(ModuleNotFoundError):
                    import_module(f"{node.module}.{alias.name}")
                module = import_module(node.module)
                yield module, alias.name
                if isinstance(getattr(module, alias.name, None), ModuleType):
                    modules[alias.asname or alias.name] = getattr(module, alias.name)
    for node in ast.walk(code):
        match node:
            case ast.Attribute(value=ast.Name(id=name)) if name in modules:
                yield modules[name], node.attr


def test_every_page_of_the_site_and_every_public_name_is_there():
    index = text_of(ROOT / "docs" / "index.md")
    toctrees = re.findall(r"^```{toctree}\n(.*?)^```", index, re.DOTALL | re.MULTILINE)
    pages = re.findall(r"^([a-z/-]+)$", "".join(toctrees), re.MULTILINE)
    there = {name_of(page).removesuffix(".md") for page in PAGES}
    there -= {"index", "README", "CONTRIBUTING"}
    assert set(pages) == there | {"api"}
    for page in pages:
        assert any((ROOT / "docs" / f"{page}.{kind}").is_file() for kind in ("md", "rst")), page
    listed = re.findall(
        r"^   (geogp\.[\w.]+)$", (ROOT / "docs" / "api.rst").read_text(), re.MULTILINE
    )
    assert {name.removeprefix("geogp.") for name in listed} == set(geogp.__all__) - {"__version__"}


MARKDOWN = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(page for room in ("docs", "benchmarks", "data") for page in (ROOT / room).rglob("*.md")),
]


@pytest.mark.parametrize("page", MARKDOWN, ids=name_of)
def test_a_git_host_shows_no_directive_and_no_comment(page):
    """What only a build understands stands in comments, and each comment is understood."""
    text = page.read_text("utf-8")
    raw = r"^\s*(?:`{3,}|:{3,}|~{3,})\{|\{[a-z-]+\}`"
    assert re.findall(raw, text, re.MULTILINE) == []
    if page.is_relative_to(ROOT / "docs") and "api" not in page.parts:
        without_options = re.sub(r"^:[a-z-]+:.*", "", with_directives(text), flags=re.MULTILINE)
        assert re.findall(r"<!--.*?-->", without_options, re.DOTALL) == []


def test_pages_with_comments_become_pages_with_directives():
    pages = {
        "<!-- run -->\n```python\nx\n```": "```{python}\nx\n```",
        "<!-- run: output -->\n```bash\ngeogp demo\n```": "```{command}\n:output:\ngeogp demo\n```",
        "<!-- command:\n:hidden:\ngeogp demo\n-->": "```{command}\n:hidden:\ngeogp demo\n```",
        "<!-- picture: a.png\n:alt: b\n-->": "```{picture} a.png\n:alt: b\n```",
        "<!-- include\n:end-before: <!-- c --\\>\n-->\n[d](../d.md)": (
            "```{include} ../d.md\n:end-before: <!-- c -->\n```"
        ),
        "Open `a.html`<!-- made: runs/a.html -->.": "Open {made}`a.html <runs/a.html>`.",
        "```python\nx\n```": "```python\nx\n```",
    }
    assert {page: with_directives(page) for page in pages} == pages
    listed = (
        "<!-- toctree: Maps -->\n\n- [First map](first-map.md): a\n  line\n- [Names](api.rst)\n"
    )
    shown, tree = with_directives(listed).split("\n\n", 1)
    assert shown == "- [First map](first-map.md): a\n  line\n- [Names](api.rst)"
    assert tree == "```{toctree}\n:caption: Maps\n:hidden:\n\nfirst-map\napi\n```\n"


def tables_of(page: Path) -> Iterator[list[dict[str, str]]]:
    """The tables of a page; a row has its cells by the names of the columns."""
    for block in re.findall(r"(?:^ *\|.*\n)+", page.read_text("utf-8"), re.MULTILINE):
        head, _, *rows = (
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            for line in block.splitlines()
        )
        yield [dict(zip(head, row, strict=True)) for row in rows]


def exists(name):
    """Whether just one module of geogp ends like a dotted name, or has what comes after it."""
    modules = ["." + ".".join(path.with_suffix("").parts) for path in _paths_of_code()]
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        ending = "." + ".".join(parts[:cut])
        found = [module for module in modules if module.endswith(ending)]
        if found:
            (only,) = found
            with suppress(AttributeError):
                reduce(getattr, parts[cut:], import_module(only[1:]))
                return True
    return False


def _paths_of_code():
    return [
        path.relative_to(root)
        for root, package in ((ROOT, "geogp"), (ROOT / "apps", "geogp_cli"))
        for path in (root / package).rglob("*.py")
    ]


@pytest.mark.parametrize("page", [page for page in PAPERS if page.stem != "index"], ids=name_of)
def test_the_code_and_the_tests_of_a_paper_exist(page):
    assert exists("objectives.dppgp")
    assert exists("mixed_nystrom.nystrom")
    assert not exists("objectives.elbow")
    assert not exists("no_such_module.elbo")
    rows = [row for table in tables_of(page) for row in table if "code" in row]
    named = [name for row in rows for name in re.findall("`([^`]+)`", row["code"])]
    assert len(named) >= len(rows) >= 10
    assert [name for name in named if not exists(name)] == []
    tests = {name for row in rows for name in re.findall(r"`(test_\w+\.py)`", row["tests"])}
    assert tests - {path.name for path in (ROOT / "tests").rglob("*.py")} == set()


def words_of_code():
    """All names in the code of geogp and its command, and the names of their folders and files."""
    words = set()
    for path in _paths_of_code():
        words |= {*path.with_suffix("").parts}
        source = ROOT / path if path.parts[0] == "geogp" else ROOT / "apps" / path
        words |= set(re.findall(r"\w+", source.read_text("utf-8")))
    return words


def wrong_in_code(span, words):
    """What of a span of code on a page for developers does not exist; None where all does."""
    if " " in span:
        named = re.fullmatch(r"make (\S+)", span)
        targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return span if named and named[1] not in targets[1].split() else None
    if re.fullmatch(r"[A-Za-z_]\w*", span):
        return None if span in words else span
    if span in MODELS or (span.startswith("geogp.") and span[6:] in geogp.__all__):
        return None
    if re.fullmatch(r"[a-z_]\w*(\.\w+)+", span) and exists(span):
        return None
    run_folder = (ROOT / "docs" / "run-folder.md").read_text("utf-8")
    there = any((root / span).exists() for root in (ROOT, ROOT / "geogp"))
    return None if there or f"`{span}`" in run_folder else span


@pytest.mark.parametrize("page", [CONTRIBUTING, ARCHITECTURE], ids=name_of)
def test_code_that_a_page_for_developers_names_exists(page):
    words = words_of_code()
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    spans = [one for one in re.findall("`([^`]+)`", text) if not one.startswith("--")]
    assert len(spans) > 80
    others = {".[dev]", "FORBIDDEN", "xarray.Dataset"}
    assert {one for one in spans if wrong_in_code(one, words)} - others == set()
    wrong = ("make nothing", "NoSuchClass", "fitted.FittedField.guess", "geogp/no_room", "no.json")
    assert [one for one in wrong if wrong_in_code(one, words)] == list(wrong)


def test_the_tables_of_rooms_and_floors_are_those_of_the_architecture():
    rows = [row for table in tables_of(ARCHITECTURE) for row in table]
    rooms = {row["room"].strip("`"): row for row in rows if "room" in row}
    for column, rule in (("may import", ROOMS), ("does without", FORBIDDEN)):
        named = {room: set(re.findall("`([^`]+)`", row[column])) for room, row in rooms.items()}
        assert named == rule, column
    floors = [row["floor"].strip("`") for row in rows if "floor" in row]
    assert sorted(floors) == sorted(FLOORS)


def test_a_picture_of_rooms_has_each_room_and_only_imports_that_go_down(monkeypatch):
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    from rooms import imports_among, in_words, picture_of

    above = tuple(reversed(FLOORS))
    imports = imports_among("geogp/models", above)
    assert list(imports) == list(above)
    assert imports["numerics"] == []
    assert imports["process"] == ["numerics"]
    assert "numerics imports no other room." in in_words(imports)
    assert len(re.findall("<circle", picture_of(imports))) == sum(map(len, imports.values()))
    for rooms in (above[1:], (*above, "attic"), ("attic", *above[1:])):
        with pytest.raises(ValueError, match="expected the rooms of geogp/models"):
            imports_among("geogp/models", rooms)
    with pytest.raises(ValueError, match="expected catalogue to import rooms below it, found n"):
        imports_among("geogp/models", ("numerics", *above[:-1]))


def test_every_model_of_a_paper_is_on_its_page_with_its_use():
    models, shown, authors = MODELS | CLASS_MODELS, {}, {}
    for page in PAPERS:
        rows = [row for table in tables_of(page) for row in table if "use" in row]
        names = {row["name"].strip("`"): row["use"] for row in rows}
        shown |= names
        authors[page.stem] = {models[name].paper for name in names}
    four = {"deep-basis-kernels", "mixed-kernels", "scale-mixtures", "last-layers"}
    assert {stem for stem, found in authors.items() if found} == four
    assert all(len(authors[stem]) == 1 for stem in four)
    papers = set().union(*authors.values())
    assert shown == {
        name: "recommended" if model.recommended else "study"
        for name, model in models.items()
        if model.paper in papers
    }
    index = [row for table in tables_of(ROOT / "docs" / "papers" / "index.md") for row in table]
    listed = [name for row in index for name in re.findall("`([^`]+)`", row["models"])]
    assert sorted(listed) == sorted(shown)
    for row in index:
        (stem,) = re.findall(r"\((\S+)\.md\)", row["page"])
        found = {models[name].paper for name in re.findall("`([^`]+)`", row["models"])}
        assert found == authors[stem]


def test_benchmarks_that_pages_name_exist():
    named = {
        name
        for page in PAGES
        for name in re.findall(r"python -m benchmarks (\w+\.\w+)", page.read_text("utf-8"))
    }
    assert len(named) >= 15
    there = {
        ".".join(path.with_suffix("").parts[-2:]) for path in (ROOT / "benchmarks").glob("*/*.py")
    }
    assert named - there == set()


def test_the_pages_name_every_option():
    text = "".join(page.read_text("utf-8") for page in PAGES)
    missing = {
        f"{name} {option}"
        for name, command in GEOGP.commands.items()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--") and not re.search(rf"{option}(?![a-z-])", text)
    }
    assert missing == set()


def test_figures_in_sentences_are_those_of_the_table():
    """What the pages on results and on many states say of Puerto Rico, against the benchmarks."""
    table = (ROOT / "benchmarks" / "results" / "regions" / "PR.md").read_text("utf-8")
    first = table.partition("## download, random split")[2].partition("## ")[0]
    rows = {
        cells[0].strip("`"): cells
        for line in first.splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 10
    }
    results = (ROOT / "docs" / "results.md").read_text("utf-8")
    gain = re.search(r"`dbk-rbf` gains ([\d.]+) on download", results)
    assert float(gain[1]) == pytest.approx(-float(rows["dbk-rbf"][2]), abs=5e-4)
    states = (ROOT / "docs" / "many-states.md").read_text("utf-8")
    took = re.search(r"took (\d+) s, and the run used ([\d.]+) GB", states)
    assert [took[1], took[2]] == rows["field"][8:10]


def test_the_bound_of_the_page_is_told_alike_everywhere():
    from geogp.maps.page.page_quantiles import cautious_level

    assert cautious_level("lower") == 1 / 20
    first = (ROOT / "docs" / "first-map.md").read_text("utf-8")
    assert re.search(r"bound that 19 of 20 averages exceed", first)


def test_a_page_runs_what_others_made(monkeypatch):
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    from made import blocks_of

    shown = "<!-- run: output -->\n```bash\ngeogp demo\n```\n\n```sh\nno\n```\n"
    text = shown + "<!-- python:\n:hidden:\nx = 1\ny = 2\n-->\n"
    assert blocks_of(text) == [("command", "geogp demo"), ("python", "x = 1\ny = 2")]
    found = [
        one
        for name in ("choosing-a-model", "your-own-data")
        for one in blocks_of((ROOT / "docs" / f"{name}.md").read_text("utf-8"))
    ]
    assert len(found) >= 8
    for kind, block in found:
        if kind == "python":
            compile(block, "example", "exec")
        else:
            assert block.startswith("geogp ")
