"""The command among hostile names, texts and streams: one clear line and exit code 2, never a traceback."""

import os
import re
import subprocess
import sys

import pytest

from hostile import TEXT, assert_refused, spoil_tokenizer, viewer, write_model
from regard import models


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path / "model")


@pytest.fixture
def view(capfd, monkeypatch, folder):
    return viewer(capfd, monkeypatch, folder)


# --- names and files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [("x" * 300, "cannot be read .File name too long"), ("\x1b[2J\n", r"\\x1b\[2J\\n is not a folder")],
)
def test_folders_that_are_none(view, name, message):
    assert_refused(view(TEXT, model=name), message)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_devices_and_pipes_are_no_files(view, folder, name):
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()):
        path = folder / name
        path.unlink()
        make(path)
        assert_refused(view(TEXT), f"has no {name}")
        path.rmdir() if path.is_dir() else path.unlink()
        path.touch()


def test_a_folder_whose_name_is_not_unicode(view, folder, tmp_path):
    name = os.fsdecode(b"\xff\x1b[2J")
    folder.rename(tmp_path / name)
    code, out, err = view(TEXT, "-o", os.fsdecode(b"page\xfe.html"), model=tmp_path / name)
    assert (code, err) == (0, "")
    assert "page\\udcfe.html" in out
    assert b"page\xfe.html" in os.listdir(os.fsencode(tmp_path))
    (tmp_path / name / "config.json").unlink()
    assert_refused(view(TEXT, model=tmp_path / name), r"udcff.*x1b\[2J has no config.json")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("x" * 300, "cannot write xxx.*: File name too long"),
        ("x" * 300 + "/y.html", "cannot write .*: File name too long"),
        ("loop", "cannot write loop: Too many levels of symbolic links"),
        ("/dev/full", "cannot write /dev/full: No space left on device"),
        ("model/config.json/x.html", "Not a directory|there is no directory"),
    ],
    ids=lambda value: value[:20],
)
def test_pages_that_cannot_be_written(view, tmp_path, folder, output, message):
    (tmp_path / "loop").symlink_to("loop")
    code, out, err = view(TEXT, "-o", output)
    assert_refused((code, "", err), message)
    assert "page: " not in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "model"]
    assert len(list(folder.iterdir())) == 3


def test_a_name_as_long_as_can_be(view, tmp_path):
    assert view(TEXT, "-o", "x" * 255)[0] == 0
    assert (tmp_path / ("x" * 255)).stat().st_size > 10_000


def test_nothing_is_left_of_a_page_that_failed(view, tmp_path, monkeypatch):
    (tmp_path / "page.html").write_text("old")
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    code, _, err = view(TEXT, "-o", "page.html")
    assert (code, err) == (2, f"regard: cannot write {tmp_path / 'page.html'}: No space left\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "page.html"]
    assert (tmp_path / "page.html").read_text() == "old"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a\udcffb"], r"the text is not Unicode: character 1 is the lone surrogate U\+DCFF"),
        ([TEXT, "--word", "\udcff"], "lone surrogate"),
        ([TEXT, "--word", "\x1b[2J"], r"the text has no word '\\x1b\[2J'"),
        (["the \x1b[2J\x9b was", "--word", "animal"], "has no word 'animal'; its words: "),
    ],
)
def test_texts_and_words(view, arguments, message):
    assert_refused(view(*arguments), message)


def test_words_are_no_markup_and_no_emoji(view):
    out = view("the :cat: [b]", "--word", ":cat:", "--to", "[b]")[1]
    assert 'strongest looks from ":cat:" to "[b]"' in out


def test_a_text_that_is_too_long_is_refused_before_its_words_are_looked_for(view, monkeypatch):
    monkeypatch.setattr(models.BertEncoder, "find", lambda *_: pytest.fail("words were looked for"))
    assert_refused(view("the " * 20_000), "the text has 20002 tokens, special tokens counted; this model reads at most")


# --- streams --------------------------------------------------------------------------------------

REGARD = [sys.executable, "-m", "regard.cli"]


def _shell(line, cwd, **environment):
    regard = " ".join(map(str, REGARD))
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as users have it
    return subprocess.run(
        ["bash", "-c", line.replace("regard", regard, 1)],
        cwd=cwd, capture_output=True, timeout=60, env={**buffered, "RUST_BACKTRACE": "1", **environment},
    )  # fmt: skip


FULL = b"regard: cannot write to stdout: No space left on device\n"


@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ("regard info > /dev/full", 2, FULL),
        ("regard --help > /dev/full", 2, FULL),
        ("regard plan 4,4 --json > /dev/full", 2, FULL),
        ("PYTHONUNBUFFERED=1 regard plan 4,4 --json > /dev/full", 2, FULL),
        ("regard view --model model 'the was' -o - > /dev/full", 2, None),
        ("regard info >&-", 2, b"regard: stdout is closed: there is nowhere to print to\n"),
        ("regard view --model model - <&-", 2, b"regard: stdin is closed; give the text as an argument\n"),
        ("regard view --model model - 0> model/x; c=$?; rm model/x; exit $c", 2, rb"regard: stdin cannot be read .*\n"),
        ("regard view --model model - < /dev/zero", 2, rb"regard: stdin holds more than 1,048,576 bytes.*\n"),
        ("regard plan 4,5 4,4 2>&-", 2, b""),
        ("regard plan 4,5 4,4 2> /dev/full", 2, b""),
        ("regard info | head -c 0", 0, b""),
        ("{ sleep 0.2; regard info; echo $? >&2; } | :", 0, rb"(0|141)\n"),
        ("{ sleep 0.2; regard plan 4,4 --json; echo $? >&2; } | :", 0, b"141\n"),
        ("{ sleep 0.2; PYTHONUNBUFFERED=1 regard plan 4,4 --json; echo $? >&2; } | :", 0, b"141\n"),
        ("regard view --model model 'the was' -o - 2> /dev/null | head -c 10", 0, b""),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_streams_that_are_closed_or_full(tmp_path, folder, line, code, err):
    done = _shell(line, tmp_path)
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    if code is not None:
        assert done.returncode == code
    if err is not None:
        assert re.fullmatch(err, done.stderr), done.stderr
    else:
        assert done.stderr.endswith(FULL)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_rust_prints_itself_is_not_shown(tmp_path, folder):
    spoil_tokenizer(folder, lambda content: content["post_processor"].update(special_tokens={}))
    done = _shell("regard view --model model 'the was'", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)


def test_words_of_the_user_in_usage_errors(tmp_path):
    for line in ("regard $'\\x1b[2Jx'", "regard $'--\\x1b[2Jx'", "regard plan 4,4 $'--\\x1b[2Jx'"):
        done = _shell(line, tmp_path)
        assert done.returncode == 2
        assert b"\x1b" not in done.stderr
        assert b"\\x1b[2Jx" in done.stderr


def test_a_terminal_without_unicode(tmp_path):
    done = _shell("regard plan 40,4 --mask 'Causal()' --picture", tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u25a0" in done.stdout
