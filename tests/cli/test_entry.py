"""However a command ends, its user reads one line: no traceback reaches anyone."""

import contextlib
import errno
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import geogp_cli.entry
import geogp_cli.main
from geogp import __version__
from geogp.commands import fault_logs
from geogp.commands.batch.cluster import failure_message
from geogp.errors import RequestError
from geogp.geodata.store.cache import cache_items, clear_cache

SECRET = "https://me:hidden@example.com/tiles?signature=alsohidden"
COMMAND = [sys.executable, "-c", "from geogp_cli.entry import run; run()"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return a cache of the test's own, to which logs go."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GEOGP_CACHE", str(folder))
    return folder


@pytest.fixture
def ends_by(monkeypatch, geogp):
    """Run a command that ends by an error, and return its code and what it wrote."""

    def call(error, *arguments):
        def fail():
            raise error

        monkeypatch.setattr(geogp_cli.main, "app", fail)
        return geogp("models", "--json", *arguments)

    return call


def logs(folder):
    return sorted(folder.glob("*.log"))


def test_a_fault_is_one_line_and_a_log(ends_by, cache):
    error = ZeroDivisionError(f"division\nby zero at {SECRET}")
    code, out, told = ends_by(error, "--source", SECRET)
    (log,) = logs(cache / "logs")
    assert (code, out) == (70, "")
    assert told.count("\n") == 1
    assert told.startswith("error: a bug in geogp (ZeroDivisionError: division by zero at https:")
    assert told.endswith(f"The log is {log}\n")
    content = log.read_text()
    assert "Traceback (most recent call last)" in content
    assert __version__ in content
    assert "command: geogp models --json --source" in content
    assert "hidden" not in told + content
    assert log.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "source",
    [
        "https://me:hid'den@h.example/x",
        "https://me:hid den@h.example/x",
        "https://me:hid<den@h.example/x",
        """https://me:hid"d'en@h.example/x""",
        "https://me:hid?den@h.example/x",
        "https://me:hid/d'en@h.example/x",
        "https://h.example/x?signature=a'hidden",
        "https://h.example/x?signature=a hidden",
        'https://h.example/x?signature=a"hid@den',
    ],
)
@pytest.mark.parametrize("joined", [True, False])
def test_no_secret_reaches_a_log_whatever_signs_it_has(ends_by, cache, source, joined):
    names = source.partition("//")[2].rpartition("@")[0]
    error = ValueError(f"no {source!r} at {source}/type=fixed, port {names.partition(':')[2]!r}")
    words = [f"--source={source}"] if joined else ["--source", source]
    _, _, told = ends_by(error, *words)
    (log,) = logs(cache / "logs")
    content = log.read_text()
    assert "https://" in content
    assert [part for part in ("hid", "den") if part in told.partition("The log")[0] + content] == []


def test_a_log_goes_where_it_can_be_written(ends_by, cache, tmp_path, monkeypatch):
    cache.write_text("no folder")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    _, _, told = ends_by(ZeroDivisionError())
    (log,) = logs(tmp_path / "temporary")
    assert str(log) in told
    cache.unlink()
    (tmp_path / "file").touch()
    monkeypatch.setenv("GEOGP_CACHE", str(tmp_path / "file" / "x"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    code, _, told = ends_by(ZeroDivisionError())
    assert (code, "The log could not be written." in told) == (70, True)


def test_the_newest_logs_are_kept_and_the_cache_leaves_them_alone(ends_by, cache, monkeypatch):
    monkeypatch.setattr(fault_logs, "MOST", 3)
    (cache / "logs").mkdir(parents=True)
    for day in range(1, 6):
        (cache / "logs" / f"geogp-2020010{day}T000000-x.log").touch()
    ends_by(ZeroDivisionError())
    first, second, third = (log.name for log in logs(cache / "logs"))
    assert (first[6:14], second[6:14]) == ("20200104", "20200105")
    assert third > second
    assert cache_items(check=True) == []
    clear_cache()
    assert len(logs(cache / "logs")) == 3


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: not enough memory"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        caused(ValueError("other words"), MemoryError()),
    ],
)
def test_too_little_memory_is_said(ends_by, error):
    code, out, told = ends_by(error)
    assert (code, out, told.count("\n")) == (70, "", 1)
    assert told.startswith("error: there is too little memory (")
    assert "smaller --preset" in told


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "cannot use /some/file: No space left on device. Free some space."),
        (errno.ENAMETOOLONG, "cannot use /some/file: File name too long. Choose another path."),
        (errno.EACCES, "/some/file: Permission denied. Choose a path that you have access to."),
    ],
)
def test_a_refusal_of_the_system_is_no_fault(ends_by, cache, number, words):
    code, out, told = ends_by(OSError(number, os.strerror(number), "/some/file"))
    assert (code, out, told.count("\n")) == (2, "", 1)
    assert words in told
    assert not cache.exists()


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), caused(SystemError("returned a result"), KeyboardInterrupt())]
)
def test_an_interrupt_is_told_even_where_it_became_another_error(ends_by, cache, error):
    code, out, told = ends_by(error)
    assert (code, out, told) == (130, "", "error: interrupted.\n")
    assert not cache.exists()


def test_an_interrupt_of_an_import_is_told(monkeypatch, geogp):
    class Interrupting:
        def find_spec(self, name, *_):
            if name == "geogp_cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "geogp_cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert geogp("--version") == (130, "", "error: interrupted.\n")


@pytest.mark.parametrize("words", [["--source", ""], ["--source="], ["--out", ""], [""]])
def test_empty_values_are_refused(geogp, words):
    code, out, told = geogp("map", "DEMO", *words)
    assert (code, out) == (2, "")
    assert "expected a value, found no value" in told


@pytest.mark.parametrize("source", ["https://h.example/tiles?sig=QUJD=", "="])
def test_a_value_may_end_in_an_equals_sign(ends_by, source):
    code, _, told = ends_by(RequestError("reached."), f"--source={source}")
    assert (code, told) == (2, "error: reached.\n")


def test_a_refused_word_is_told_without_its_secrets(geogp):
    _, _, told = geogp("map", os.fsdecode(b"--source=https://me:hid\xffden@h.example/x?sig=hidden"))
    assert "found --source=https://...@h.example/x?.... Rename" in told


def test_names_that_are_no_text_are_refused(geogp):
    code, _, told = geogp("map", os.fsdecode(b"\xff"))
    assert code == 2
    assert told == ("error: expected text in UTF-8, found \\udcff. Rename the file or folder.\n")


def test_a_path_that_is_too_long_is_refused_before_work(small, tmp_path, geogp):
    for arguments in (small.arguments, ["simulate"]):
        code, out, told = geogp(*arguments, "--out", tmp_path / ("x" * 300))
        assert (code, out) == (2, "")
        assert "expected a valid path" in told
        assert "File name too long" in told
    code, _, told = geogp("report", "x" * 300)
    assert (code, "File name too long" in told) == (2, True)


def test_rows_too_few_for_the_oracles_leave_nothing(tmp_path, geogp):
    few = ("simulate", "--quarters", "2023Q4", "--rows", 1, "--out", tmp_path / "out")
    code, out, told = geogp(*few)
    assert (code, out) == (2, "")
    assert "to score the oracles, found 1 rows" in told
    assert "Choose more --rows" in told
    assert not (tmp_path / "out").exists()


def test_a_fault_in_a_batch_is_told_with_its_log(cache):
    told = failure_message(ZeroDivisionError("ours"))
    (log,) = logs(cache / "logs")
    assert told == f"a bug in geogp (ZeroDivisionError: ours). The log is {log}"
    assert "ZeroDivisionError: ours" in log.read_text()


def started(folder, **options):
    """Run `geogp --version` in a process of its own."""
    return subprocess.run(
        [*COMMAND, "--version"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        **options,
    )


def test_a_full_device_is_told(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = started(tmp_path, stdout=full)
    assert done.returncode == 2
    assert done.stderr == (
        "error: cannot use the output: No space left on device. Free some space.\n"
    )


def test_a_reader_that_has_ended_is_no_error(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    done = started(tmp_path, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_working_directory_that_is_gone_is_told(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = started(gone, stdout=subprocess.DEVNULL, preexec_fn=gone.rmdir)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the working directory no longer exists.")


def test_closed_streams_are_no_error(tmp_path):
    done = started(tmp_path, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_output_may_be_any_stream_of_text(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["geogp", "models"])
    told = io.StringIO()
    with contextlib.redirect_stdout(told), pytest.raises(SystemExit) as ended:
        geogp_cli.entry.run()
    assert not ended.value.code
    assert "dbk-rbf" in told.getvalue().split()
