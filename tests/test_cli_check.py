"""regard check: what it prints, exits with, writes, and refuses in one line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from regard.cli.__main__ import main

HOSTILE = Path(__file__).parent / "check_hostile.py"
RIGHT = "regard:attention"
HALF = """
import numpy as np
def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) {}
    e = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e30))
    return e / e.sum(axis=-1, keepdims=True) @ v
"""


@pytest.fixture
def check(capfd, monkeypatch, tmp_path):
    """Run the command in a folder with attention.py; return exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("attention.py").write_text(HALF.format(""))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["regard", "check", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capfd.readouterr()
        return exit_.value.code or 0, out, err

    return run


def test_a_fault(check):
    code, out, err = check("attention.py:attention")
    assert (code, err) == (1, "")
    assert out.startswith("attention: 1 fault (")
    assert re.search(r"^ +SCALE_MISSING +fault +the scores are q · k, without a factor", out, re.MULTILINE)
    for part in ("FAULT SCALE_MISSING", "smallest example", "expected [", "why   The factor decides", "mend  multiply",
                 "regard check attention.py:attention --replay SCALE_MISSING"):  # fmt: skip
        assert part in out, part
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out


def test_no_fault(check):
    code, out, err = check(RIGHT, "--strict")
    assert (code, err) == (0, "")
    assert out.startswith("attention: nothing found (")
    assert "guessed   layout: bhsd" in out


def test_what_ends_the_process_is_a_finding(check):
    code, out, err = check(f"{HOSTILE}:hangs", "--timeout", "0.5")
    assert (code, err) == (1, "")
    assert "FAULT HANGS" in out
    assert "a call hangs: no answer in 0.5 s" in out
    assert "FAULT SCALE_MISSING" in out


def test_what_is_printed_is_not_mixed_with_the_report(check):
    code, out, err = check(f"{HOSTILE}:prints", "--json")
    assert (code, err) == (1, "")
    found = json.loads(out)
    assert found["findings"][0]["name"] == "SCALE_MISSING"
    assert found["printed"]["lines"] > 100
    code, out, err = check(f"{HOSTILE}:prints", "--printed")
    assert re.search(r"^the function printed \d+ lines, of which the last:$", out, re.MULTILINE)
    assert "\n  by print\n" in out
    assert "\n  \\x1b[31mby stderr\n" in out  # shown, not obeyed


def test_options_are_those_of_check(check):
    common = [RIGHT, "--json"]
    declared = "--layout bhsd --mask keep --causal bottom-right --window total --empty-row zero --dtype float64"
    more = "--seed 3 --budget 50 --library numpy --timeout 20 --memory linear --supports mask,scale"
    code, out, _ = check(*common, *declared.split(), *more.split())
    found = json.loads(out)
    assert code == 0
    assert found["guessed"] == [] or all(g["what"] not in ("layout", "mask") for g in found["guessed"])
    assert "causal_sq" not in found["asked"]
    assert "mask_sq" in found["asked"]
    assert check(RIGHT, "--supports", "causal")[0] == 0  # which it has not: a warning
    assert check(RIGHT, "--supports", "causal", "--strict")[0] == 1
    code, out, _ = check(*common, "--budget", "0")
    assert json.loads(out)["unfinished"]


def test_expected_and_strict(check):
    target = "attention.py:attention"
    code, out, _ = check(target, "--expected", "SCALE_MISSING=scaled outside", "--expected", "NO_MAX=small scores")
    assert code == 0
    assert "EXPECTED SCALE_MISSING" in out
    assert "scaled outside" in out
    code, out, _ = check(target, "--expected", "SCALE_MISSING=scaled outside", "--expected", "NO_MAX=small", "--strict")
    assert code == 1
    assert "EXPECTED_NOT_FOUND" in out


def test_the_replay_runs_until_the_function_is_mended(check):
    code, out, err = check("attention.py:attention", "--replay", "SCALE_MISSING", "-o", "replay.py")
    assert (code, out, err) == (1, "", "")
    script = Path("replay.py").read_text()
    assert check("attention.py:attention", "--replay", "SCALE_MISSING")[1] == script

    def replay():
        done = subprocess.run([sys.executable, "-B", "replay.py"], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = replay()
    assert code == 1
    assert "FAULT SCALE_MISSING: off by" in said
    Path("attention.py").write_text(HALF.format("/ q.shape[-1] ** 0.5"))
    code, said = replay()
    assert code == 0
    assert "no sign of SCALE_MISSING: mended" in said
    assert check("attention.py:attention")[0] == 0


def test_junit(check):
    assert check("attention.py:attention", "--junit", "report.xml")[0] == 1
    suite = ElementTree.parse("report.xml").getroot()[0]
    assert suite.get("failures") == "1"
    assert suite.find("testcase[@name='scale']/failure").get("message") == "SCALE_MISSING"


def test_list_and_explain(check):
    code, out, _ = check("--list")
    assert code == 0
    for name in ("SCALE_MISSING", "NAN_MASKED_V", "LAW_CONVEX", "INPUT_MUTATED", "CRASHES", "HANGS", "EXITS"):
        assert re.search(rf"^  {name}  ", out, re.MULTILINE), name
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = check("--explain", "mask_fill_small")
    assert code == 0
    assert out.startswith("MASK_FILL_SMALL  (fault, mask)\n")
    for part in ("why it matters ", "how to mend it ", "known with -1, "):
        assert part in out


MESSAGES = [
    ([], "regard check needs a function: module:function or file.py:function; or --list"),
    (["attention"], "'attention' names no function; write module:function or file.py:function"),
    (["attention.py:attend"], "attention.py has no 'attend'; did you mean attention?"),
    (["none.py:f"], "there is no file none.py"),
    (["attention.py:attention", "--mask", "yes"], "--mask is 'yes'; check knows keep, drop, additive"),
    (["attention.py:attention", "--empty-row", "yes"], "--empty-row is 'yes'; check knows zero, nan, any"),
    (["attention.py:attention", "--memory", "yes"], "--memory is 'yes'; check knows linear"),
    (["attention.py:attention", "--layout", "yes"], "--layout is 'yes'; check knows bhsd"),
    (["attention.py:attention", "--supports", "yes"], "--supports has 'yes'; check asks about mask"),
    (
        ["attention.py:attention", "--dtype", "yes"],
        "--dtype is 'yes'; check knows float32, float64, float16, bfloat16: pass --dtype float32",
    ),
    (["attention.py:attention", "--expected", "NO_MAX"], "--expected is 'NO_MAX'; write a finding and why"),
    (["attention.py:attention", "--replay", "NO_MAX"], "there is no finding 'NO_MAX'; there are SCALE_MISSING"),
    (["attention.py:attention", "--junit", "no/such"], "cannot be written (No such file or directory); name another"),
    (["--explain", "SCALE_MISING"], "no finding is called 'SCALE_MISING'; did you mean SCALE_MISSING"),
    (["--explain", "xyz"], "no finding is called 'xyz'; regard check --list has them all"),
]


@pytest.mark.parametrize(("arguments", "said"), MESSAGES, ids=[" ".join(arguments) for arguments, _ in MESSAGES])
def test_what_is_refused_is_told_in_one_line(check, arguments, said):
    code, out, err = check(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("regard: ")
    assert len(err.splitlines()) == 1


def test_the_help_says_that_it_runs_the_file(check):
    code, out, _ = check("--help")
    assert code == 0
    assert "This runs the file." in out
    assert "That is no sandbox" in " ".join(out.replace("│", " ").split())


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_progress_is_shown_on_a_terminal_only(check):
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "regard.cli", "check", RIGHT]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, check=False)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # so Linux says that the other side is closed
        pass
    os.close(ours)
    assert done.returncode == 0
    assert RIGHT.encode() in shown
    assert b"\x1b" not in done.stdout
