"""Nothing that is read is executed, believed as a path, or taken from a server unproven."""

import ast
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from run_worlds import made_up_run

from geogp.errors import DataError, NetworkError, UnreachableError
from geogp.files import plain_names, read_json
from geogp.geodata.store.remote import Patience, RemoteFile
from geogp.geodata.store.sources import Folder, Web, relative_name
from geogp.runs.run_folder import RunFolder

ROOT = Path(__file__).parents[1]

QUICK = Patience(attempts=2, first_wait_s=0.001, longest_wait_s=0.002, timeout_s=5)

# What unpickles, or runs what it is given.
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CALLS = {
    *("eval", "exec", "compile", "__import__", "torch.load", "np.load", "numpy.load"),
    *("pd.read_pickle", "pd.read_hdf", "torch.jit.load", "torch.hub.load", "os.system", "os.popen"),
    *("yaml.load", "shutil.unpack_archive", "tempfile.mktemp", "torch.package.PackageImporter"),
}
METHODS = {
    *("extractall", "extract", "read_pickle", "to_pickle", "unpack_archive"),
    *("broadcast_object_list", "all_gather_object", "gather_object", "send_object_list"),
}
ALLOWED_KEYWORDS = {"allow_pickle": False, "verify": True, "weights_only": True, "shell": False}


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _dangers(text: str) -> list[str]:
    """Return what a source does that none of ours may."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names if one.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            found += [str(node.module)] * (str(node.module).split(".")[0] in MODULES)
            whole = {f"{node.module}.{one.name}" for one in node.names}
            found += sorted(whole & CALLS)
        elif isinstance(node, ast.Call):
            name = _dotted(node.func)
            if name in CALLS or (
                isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
            ):
                found.append(name)
            for keyword in node.keywords:
                allowed = ALLOWED_KEYWORDS.get(str(keyword.arg), ...)
                constant = isinstance(keyword.value, ast.Constant)
                if allowed is not ... and not (constant and keyword.value.value is allowed):
                    found.append(f"{name}({keyword.arg}=)")
        elif isinstance(node, ast.Attribute) and node.attr == "verify":
            found.append("an attribute verify")
    return found


@pytest.mark.parametrize("folder", ["geogp", "apps"])
def test_nothing_is_unpickled_executed_or_taken_without_a_check(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    found = {str(path): dangers for path in files if (dangers := _dangers(path.read_text("utf-8")))}
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from cloudpickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import load\nfrom numpy import load",
        "import numpy as np\nnp.load('x')",
        "f('x', allow_pickle=True)",
        "requests.get(url, verify=False)",
        "session.verify = False",
        "eval('1')",
        "zipfile.ZipFile('x').extractall()",
        "subprocess.run('x', shell=True)",
        "dist.broadcast_object_list([1])",
    ],
)
def test_the_search_finds_each(text):
    assert _dangers(text)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("https://me:p@ss@host/a", "https://...@host/a"),
        ("https://me:pa/ss@host/a", "https://...@host/a"),
        ("https://me:pa'ss@host/a", "https://...@host/a"),
        ("https://me:pa ss@host/a", "https://...@host/a"),
        ("https://host/a?sig=ab@cd", "https://..."),
        ("https://host/a?s3crettoken", "https://host/a?..."),
        ("https://host/a#access_token=abc", "https://host/a?..."),
        ("https://host/a?X-Sig=ab(cd)ef", "https://host/a?..."),
        ("https://host/a", "https://host/a"),
    ],
)
def test_every_form_of_a_secret_is_left_out(address, told):
    assert str(NetworkError(f"could not read {address} today?")) == f"could not read {told} today?"


@pytest.mark.parametrize("kind", [NetworkError, UnreachableError])
def test_errors_of_the_network_hold_neither_passwords_nor_signatures(kind):
    told = str(
        kind(
            "could not read https://me:hunter2@host/a: HTTPSConnectionPool(host='host', port=443): "
            "Max retries exceeded with url: /b?X-Amz-Signature=abcdef&X-Amz-Expires=9 (Caused by "
            "'https://other/x?sig=s3cret'). Is this the right file?"
        )
    )
    for secret in ("hunter2", "me:", "abcdef", "s3cret", "X-Amz"):
        assert secret not in told
    assert told.startswith("could not read https://...@host/a: HTTPSConnectionPool(host='host'")
    assert told.endswith("(Caused by 'https://other/x?...'). Is this the right file?")


def test_a_signature_of_a_redirect_is_not_told(monkeypatch):
    """A server may lead to an address with a token in it, at which nothing answers."""

    class Leading(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:9/x?token=s3cret")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Leading)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/a"
        with pytest.raises(NetworkError, match=r"/x\?\.\.\.") as caught:
            RemoteFile(address, QUICK).open()
        assert "s3cret" not in str(caught.value)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


BAD_NAMES = [
    "",
    ".",
    "..",
    "../x",
    "a/../x",
    "/etc/passwd",
    "a//b",
    "a/",
    "a\\b",
    "a\0",
    "a?b",
    "a#b",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_out_of_data_never_leads_elsewhere(tmp_path, name):
    with pytest.raises(DataError, match="expected the name of a file in the folder of the source"):
        Folder(tmp_path).has(name)
    with pytest.raises(DataError, match="expected the name of a file in the folder of the source"):
        Web("https://127.0.0.1:9/x", QUICK).fetch(name)


def test_names_of_the_bucket_and_the_census_are_names():
    for name in ("parquet/performance/type=mobile/year=2023/quarter=4/a_tiles.parquet", "é x.zip"):
        assert relative_name(name) == name


@pytest.mark.parametrize("name", ["..", ".", "", "/", "/etc", "a/b", "..\\x", "a\0", 1, None])
@pytest.mark.parametrize("file", ["run.json", "stale.json"])
def test_a_run_folder_deletes_nothing_outside(tmp_path, name, file):
    """What run.json says that a run holds is deleted when another is made in its place."""
    (tmp_path / "runs" / "run" / ".unfinished" / "files").mkdir(parents=True)
    (tmp_path / "runs" / "mine").write_text("mine")
    run = RunFolder(tmp_path / "runs" / "run")
    if file == "run.json":
        run.clear()
        (run.path / file).write_text(json.dumps({"files": [name]}))
        (run.path / "test_predictions.parquet").touch()
    else:
        (run.unfinished / "files" / "run.json").write_text("{}")
        (run.unfinished / file).write_text(json.dumps([name]))
    with pytest.raises(DataError, match=f"{file} is damaged: expected file names, found"):
        run.complete(lambda _: made_up_run()) if file == "run.json" else run.prepare()
    assert (tmp_path / "runs" / "mine").read_text() == "mine"
    assert run.path.is_dir()


def test_names_of_files_are_taken_as_they_are():
    assert plain_names(["a.tif", "areas x.csv", "..a", "é"]) == ["a.tif", "areas x.csv", "..a", "é"]
    with pytest.raises(DataError, match="expected a list of file names"):
        plain_names({"a": 1})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"{", "cannot be read as JSON"),
        (b"\xff", "cannot be read as text"),
        (b"NaN", "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity is not a JSON number"),
        (b"[1e999]", "1e999 is too large a number"),
        (b'"\\ud800"', "surrogates not allowed"),
        (b"[" + b"1" * 5000 + b"]", "cannot be read as JSON"),
    ],
)
def test_json_that_is_none(tmp_path, content, told):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DataError, match=told):
        read_json(tmp_path / "a.json")


def test_json_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'"' + b"a" * 98 + b'"')
    assert read_json(path, 100) == "a" * 98
    with pytest.raises(DataError, match="has more than 99 bytes"):
        read_json(path, 99)
    with pytest.raises(DataError, match="cannot be read as text"):
        read_json(tmp_path / "absent.json")
