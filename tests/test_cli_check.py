"""regard check: what it prints, exits with, writes, and refuses in one line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from regard.check import entries
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
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # its threads spin while they wait, in each process
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
    code, out, err = check(f"{HOSTILE}:leaves", "--timeout", "60", "--supports", "causal")
    assert (code, err) == (1, "")
    assert "FAULT EXITS" in out
    assert "a call leaves the program: sys.exit('no causal attention here')" in out
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
    assert check(RIGHT, "--supports", "causal", "--strict")[0] == 1  # which it has not: a warning


def test_a_check_that_asked_nothing_has_found_nothing(check):
    code, out, err = check(RIGHT, "--budget", "0", "--json", "--junit", "report.xml")
    assert code == 2
    assert json.loads(out)["unfinished"]
    assert not json.loads(out)["ok"]
    assert err == "regard: nothing was asked before the time was over; give it more with --budget\n"
    assert int(ElementTree.parse("report.xml").getroot()[0].get("failures")) > 10
    code, out, err = check("attention.py:attention", "--budget", "0", "--replay", "SCALE_MISSING")
    assert (code, out) == (2, "")
    assert "SCALE_MISSING is not found, in a check that did not come to its end: try a longer --budget" in err


def test_expected_and_strict(check):
    target = "attention.py:attention"
    code, out, _ = check(target, "--expected", "SCALE_MISSING=scaled outside", "--expected", "NO_MAX=small", "--strict")
    assert code == 1
    assert "EXPECTED SCALE_MISSING" in out
    assert "scaled outside" in out
    assert "EXPECTED_NOT_FOUND" in out


def test_the_replay_runs_until_the_function_is_mended(check):
    code, out, err = check("attention.py:attention", "--replay", "SCALE_MISSING", "-o", "replay.py")
    assert (code, out, err) == (1, "", "")

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
    said = check("attention.py:attention", "--replay", "scale_missing")
    assert said == (0, "", "regard: SCALE_MISSING is not found; found: nothing\n")
    Path("attention.py").write_text(HALF.format("/ q.shape[-1]"))
    code, out, err = check("attention.py:attention", "--replay", "SCALE_MISSING", "-o", "none.py")
    assert (code, out) == (1, "")
    assert err.startswith("regard: SCALE_MISSING is not found, and none.py is not written; found: SCALE_1_OVER_D")
    assert not Path("none.py").exists()


def test_a_program_is_the_same_in_every_encoding(check):
    command = [sys.executable, "-m", "regard.cli", "check", "attention.py:attention", "--replay", "SCALE_MISSING"]
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    script = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False).stdout
    assert "SCALE_MISSING: the scores are q · k" in script.decode("utf-8")
    compile(script, "replay.py", "exec")


def test_a_program_in_a_file_leaves_stdout_to_the_junit_report(check):
    code, out, err = check("attention.py:attention", "--replay", "SCALE_MISSING", "-o", "replay.py", "--junit", "-")
    assert (code, err) == (1, "")
    assert out.startswith("<?xml")
    assert "SCALE_MISSING" in Path("replay.py").read_text()


def test_words_that_are_no_text(check):
    code, out, _ = check(f"{HOSTILE}:loud", "--json", "--junit", "report.xml")
    assert code == 1
    assert out.isascii()  # in every encoding
    assert 'say """' in json.loads(out)["findings"][0]["does"]
    assert "EXITS" in ElementTree.parse("report.xml").getroot()[0].find("testcase[@name='calls']/failure").text


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
    for part in ("\nwhy it matters   ", "\nhow to mend it   ", "\nvariants         -1, "):
        assert part in out
    assert "\nvariants         a plain sum, a plain mean\n" in check("--explain", "DELTA_UNWEIGHTED")[1]
    assert "\nvariants         plain, from the start\n" in check("--explain", "CAUSAL_PLUS_ONE")[1]


def test_an_explanation_has_the_shells_words_and_says_whose_it_is(check):
    assert "declare --causal top-left if" in " ".join(check("--explain", "CAUSAL_TOP_LEFT")[1].split())
    out = " ".join(check("--explain", "REFUSES")[1].split())
    assert "a fault where every call does" in out
    assert "(--layout, --mask), or say with --supports what" in out
    out = check("--explain", "mha_scale_dmodel")[1]
    assert out.startswith("MHA_SCALE_DMODEL is another name of\nSCALE_D_MODEL  (fault, scale)\n")
    assert "\nother names      MHA_SCALE_DMODEL\n" in out


def test_names_as_json(check):
    code, out, err = check("--list", "--json")
    assert (code, err) == (0, "")
    known = {entry["name"]: entry for entry in json.loads(out)}
    assert known["SCALE_MISSING"]["group"] == "scale"
    assert list(known) == [entry.name for entry in entries()]
    assert json.loads(check("--explain", "scale_missing", "--json")[1]) == known["SCALE_MISSING"]


def test_junit_on_stdout_leaves_the_report_to_stderr(check):
    code, out, err = check("attention.py:attention", "--junit", "-")
    assert code == 1
    assert ElementTree.fromstring(out.encode()).tag == "testsuites"
    assert "FAULT SCALE_MISSING" in err
    assert not Path("-").exists()


MESSAGES = [
    ([], "regard check needs a function: module:function or file.py:function; or --list"),
    (["attention.py:attention", "--list"], "TARGET and --list ask for different things; leave all but one out"),
    (["--list", "--explain", "NO_MAX"], "--list and --explain ask for different things"),
    (["--explain", "NO_MAX", "--replay", "NO_MAX"], "--explain and --replay ask for different things; leave all but"),
    (["--list", "--junit", "x.xml"], "--list and --junit ask for different things; leave all but one out"),
    (["--replay", "NO_MAX", "--junit", "x.xml"], "regard check needs a function"),
    (["m:f", "--json", "--replay", "NO_MAX"], "--json prints the report, and --replay gives a program in its place;"),
    (["m:f", "--json", "--replay", "NO_MAX", "-o", "x.py"], "--replay gives a program in its place; leave one out"),
    (["m:f", "--json", "--junit", "-"], "--json and --junit - both print to stdout; leave one out"),
    (["m:f", "--replay", "NO_MAX", "--junit", "-"], "--replay and --junit - both print to stdout; leave one out"),
    (["m:f", "-o", "x.py"], "-o x.py is the file of a program; name a finding with --replay, or leave -o out"),
    (["attention.py:attention", "--timeout", "inf"], "--timeout is inf; it is a number of seconds above 0"),
    (["attention.py:attention", "--expected", "XYZ=x"], "--expected has 'XYZ', which no finding is called"),
    (["attention"], "'attention' names no function; write module:function or file.py:function"),
    (["attention.py:attend"], "attention.py has no 'attend'; did you mean attention?"),
    (["none.py:f"], "there is no file none.py"),
    (["attention.py:attention", "--mask", "yes"], "--mask is 'yes'; check knows keep, drop, additive"),
    (["attention.py:attention", "--empty-row", "yes"], "--empty-row is 'yes'; check knows zero, nan, any"),
    (["attention.py:attention", "--layout", "yes"], "--layout is 'yes'; check knows bhsd"),
    (["attention.py:attention", "--supports", "yes"], "--supports has 'yes'; check asks about mask"),
    (
        ["attention.py:attention", "--dtype", "yes"],
        "--dtype is 'yes'; check knows float32, float64, float16, bfloat16: pass one of them",
    ),
    (["attention.py:attention", "--dtype", "9" * 5000], "9'; check knows float32, float64, float16, bfloat16: pass"),
    (["attention.py:attention", "--expected", "NO_MAX"], "--expected is 'NO_MAX'; write a finding and why"),
    (["m:f", "--replay", "NO_MAXX"], "no finding is called 'NO_MAXX'; did you mean NO_MAX"),
    (["attention.py:attention", "--junit", "no/such"], "cannot be written (No such file or directory); name another"),
    (["--explain", "SCALE_MISING"], "no finding is called 'SCALE_MISING'; did you mean SCALE_MISSING"),
    (["--explain", "xyz"], "no finding is called 'xyz'; regard check --list has them all"),
]


@pytest.mark.parametrize(("arguments", "said"), MESSAGES, ids=[" ".join(arguments)[:80] for arguments, _ in MESSAGES])
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
    text = " ".join(out.replace("│", " ").split())
    assert "That is no sandbox" in text
    assert "Exit codes: 0 no fault was found; 1 one was; 2 nothing was checked, and stderr says why." in text


@pytest.mark.parametrize("arguments", [["--seed", "-1"], ["--timeout", "0"], ["--budget", "-1"], ["--budget", "nan"]])
def test_a_number_that_is_none_is_refused_by_the_name_of_its_option(check, arguments):
    code, out, err = check("attention.py:attention", *arguments)
    assert (code, out) == (2, "")
    # Before click 8.2 a NaN passes for a number of any range, and `regard.check` refuses it.
    refused = (f"Invalid value for '{arguments[0]}'", f"{arguments[0]} is {arguments[1]}; it is a number")
    assert any(words in err for words in refused)


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
