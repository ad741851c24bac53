"""A check in a process of its own outlives what the function does there, and says what it was."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import regard as rg
from regard.check import check_apart
from regard.check.apart import _apart
from regard.check.apart._apart import _Child
from regard.check.apart._child import Job
from regard.check.apart._death import findings
from regard.check.apart._target import Target
from regard.check.arrays import NUMPY
from regard.check.candidate._guard import Answered, Called, Death, speak

HERE = Path(__file__).parent
HOSTILE = HERE / "check_hostile.py"
posix = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    """BLAS's threads spin while they wait, in each of many processes."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


@lru_cache
def apart(name, **options):
    return check_apart(f"{HOSTILE}:{name}", **{"timeout_s": 1.0 if name == "hangs" else 60.0, **options})


def gone(pid):
    for _ in range(300):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").exists() and " Z " in Path(f"/proc/{pid}/stat").read_text():
            return True
        time.sleep(0.1)
    return False


DEATHS = [
    ("crashes", "CRASHES", "the process died of SIGSEGV"),
    pytest.param("hangs", "HANGS", "no answer in 1 s", marks=pytest.mark.alone),
    ("leaves", "EXITS", "sys.exit('no causal attention here')"),
    ("leaves_at_once", "EXITS", "the process ended with code 0"),
    ("interrupts", "EXITS", "it raises KeyboardInterrupt"),
    ("closes", "CRASHES", "it closed file descriptors that it had not opened"),
    ("dies_later", "EXITS", "the process ended with code 7"),
]


@pytest.mark.parametrize(("name", "kind", "how"), DEATHS)
def test_it_is_survived_and_everything_else_is_asked(name, kind, how):
    report = apart(name).report
    assert report.names == (kind, "SCALE_MISSING")
    finding = report[kind]
    assert finding.level == "fault"
    assert how in finding.does
    assert re.search(r"^smallest call known: attention\(float32\(2, 3, 5, 8\), .*causal=True\)$", finding.evidence[0])
    assert not report.unfinished
    assert {"scale", "law-CONVEX", "habit-INT_INPUT_TRUNCATED"} <= set(report.questions)


@pytest.mark.parametrize(
    ("name", "said"), [("crashes", "called by line"), pytest.param("hangs", "in line", marks=pytest.mark.alone)]
)
def test_the_finding_names_the_lines(name, said):
    assert re.search(rf"{said} \d+ of check_hostile.py, in {name}", str(apart(name).report[name.upper()]))


def replayed(script, tmp_path):
    """Exit code and text of a script that is run elsewhere."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "replay.py").write_text(script, encoding="utf-8")
    done = subprocess.run([sys.executable, "replay.py"], capture_output=True, text=True, cwd=tmp_path, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("with_vjp", "attention.vjp(float32("),
        ("crashes_on_integers", "attention(int64("),
        ("crashes_when_long", "attention(float32("),
        ("draws", "attention(float32("),
    ],
)
def test_whatever_call_it_is_the_script_makes_it(name, said, tmp_path):
    report = apart(name).report
    finding = report["CRASHES"]
    assert f"smallest call known: {said}" in finding.evidence[0]
    assert not {"REFUSES", "GRAD_REFUSES"} & set(report.names)
    code, said = replayed(finding.script, tmp_path)
    assert code == 1
    assert "FAULT CRASHES: the process ended with -6" in said


def test_a_death_after_a_call_has_no_script():
    """It is another thread's, say: a script that makes the call alone would not show it."""
    child = _Child(Job(Target.of(f"{HOSTILE}:attention"), {}, ()), 1.0)
    spoken = speak("attention", [np.zeros((2, 3))], {"causal": True}, NUMPY)
    child._note(Called(spoken))
    child._note(Answered())
    child._ended("EXITS", "the process ended with code 8")
    (finding,) = findings(child.deaths, "", 1.0)
    assert finding.does == "a call leaves the program: the process ended with code 8, after the call"
    assert finding.evidence == ("smallest call known: attention(float64(2, 3), causal=True)",)
    assert finding.script == ""


def test_words_of_the_function_are_no_code(tmp_path):
    finding = apart("loud").report["EXITS"]
    assert '"""' in finding.script.splitlines()[0]
    code, said = replayed(finding.script, tmp_path)
    assert (code, said) == (1, "FAULT EXITS: the process ended with 1\n")
    spoken = speak("attention", [np.zeros(3)], {}, NUMPY)
    (finding,) = findings([Death("EXITS", "it raises a\nb\x00\ud800", spoken)], "", 1.0)  # the name of a class
    assert r"it raises a\nb\x00\ud800. Exit code 1" in finding.script.splitlines()[0]


def test_what_keeps_a_script_from_the_call_is_no_answer(tmp_path):
    script = apart("loud").report["EXITS"].script.replace('print("calling"', 'nothing; print("calling"')
    code, said = replayed(script, tmp_path)
    assert code == 2
    assert said.startswith("the call cannot be made: ")
    assert "NameError: name 'nothing' is not defined" in said


def test_it_is_the_same_each_time_with_the_same_options_in_every_process():
    again = apart.__wrapped__("crashes", supports=iter(["causal"])).report
    assert str(again["CRASHES"]) == str(apart("crashes").report["CRASHES"])
    assert again["CRASHES"].script == apart("crashes").report["CRASHES"].script
    assert "not asked about" not in {guess.what for guess in again.guessed}  # supports was declared in the last one too


def test_after_a_few_deaths_it_is_given_up():
    report = apart("always_crashes").report
    assert report.names == ("CRASHES",)
    assert len(report["CRASHES"].evidence) == 2 + 4
    assert report.unfinished


@pytest.mark.parametrize(
    "name",
    ["crashes", pytest.param("hangs", marks=pytest.mark.alone), "leaves_at_once", "interrupts"],
)
def test_the_script_shows_it_until_it_is_mended(name, tmp_path):
    finding = apart(name).report.findings[0]
    script = finding.script.replace("timeout=1)", "timeout=3)")  # a new process, that imports NumPy, has to start
    for function, code, said in ((name, 1, f"FAULT {finding.name}"), ("attention", 0, "mended")):
        got = replayed(script.replace(f"import {name} as", f"import {function} as"), tmp_path)
        assert got[0] == code, got
        assert said in got[1]


def test_other_scripts_find_the_module_from_anywhere(tmp_path):
    code, said = replayed(apart("crashes").report["SCALE_MISSING"].script, tmp_path)
    assert code == 1
    assert "FAULT SCALE_MISSING" in said


def test_an_object_has_the_name_that_it_is_asked_by():
    report = apart("scaled").report
    assert report.name == "scaled"
    assert "from check_hostile import scaled as attention" in report["SCALE_MISSING"].script


def test_what_is_printed_is_counted_and_kept_apart(capfd):
    printed = apart("prints").printed
    assert capfd.readouterr() == ("", "")
    assert printed.lines % 4 == 0
    assert printed.lines > 100
    for line in ("by print", "by stderr", "by write", "by C"):
        assert line in printed.tail, line


def test_what_all_processes_print_is_counted_and_faulthandler_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = f"import sys; sys.path.append({str(HERE)!r})\nfrom check_hostile import crashes\nprint('begun')"
    Path("mine.py").write_text(code)
    got = check_apart("mine.py:crashes")
    assert len(got.report["CRASHES"].evidence) == 3  # two deaths: three processes
    assert got.printed == _apart.Printed(3, "begun\n" * 3)


def test_progress_and_a_report_that_is_slowly_read(monkeypatch):
    """The process has ended long before its last message is read."""

    def slowly(line, read=_apart.message):
        time.sleep(1.5 if b'"Done"' in line[:20] else 0)
        return read(line)

    monkeypatch.setattr(_apart, "message", slowly)
    told = []
    got = apart.__wrapped__("attention", progress=lambda what, share: told.append((what, share)))
    assert got.report.names[0] == "SCALE_MISSING"
    assert told[0][0] == "probe base"
    assert {"law-CONVEX", "habit-INPUT_MUTATED"} <= {what for what, _ in told}
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_what_is_expected_does_not_fail():
    known = Hashable(EXITS="old driver", SCALE_MISSING="scaled outside")
    report = apart("leaves", expected=known, strict=True).report
    assert report.ok
    assert report["EXITS"].expected == "old driver"
    assert "EXPECTED_NOT_FOUND" not in report.names


class Hashable(dict):
    def __hash__(self):
        return hash(tuple(self.items()))


def test_the_answer_is_that_of_check():
    sys.path.insert(0, str(HERE))
    from check_hostile import attention

    want, got = rg.check(attention), apart("attention").report
    assert got.names == want.names
    assert [str(f) for f in got.findings] == [str(f) for f in want.findings]
    assert got.questions == want.questions


IMPORTS = [
    ("def f(:", "importing bad.py raises SyntaxError: "),
    ("import no_such_module", "importing bad.py raises ModuleNotFoundError: No module named 'no_such_module' (line 1"),
    ("from .x import y", "a file of a package is named by its module: package.module:function"),
    ("import sys; sys.exit(3)", "importing bad.py raises SystemExit: 3"),
    ("def attentoin(q, k, v): ...", "bad.py has no 'attention'; did you mean attentoin?"),
    ("def f(q, k, v): ...", "bad.py has no 'attention'; it has f"),
    ("attention = 3", "bad.py:attention is a int; check calls a function, or an object that can be called"),
    ("class attention: ...", "is a class: make an instance in the module"),
]
ENDS = [
    ("raise RuntimeError('no GPU')", "importing bad.py raises RuntimeError: no GPU (line 1 of bad.py)"),
    ("import os; os._exit(3)", "importing bad.py does not end well: the process ended with code 3"),
    ("import ctypes; ctypes.string_at(0)", "does not end well: the process died of SIGSEGV, in line"),
    ("import time; time.sleep(100)", "does not end well: no answer in 1.2 s, in line 1 of bad.py"),
]


@pytest.fixture
def bad(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield Path("bad.py")
    sys.modules.pop("bad", None)


@pytest.mark.parametrize(("code", "said"), IMPORTS, ids=[code for code, _ in IMPORTS])
def test_what_cannot_be_imported(code, said, bad):
    bad.write_text(code)
    with pytest.raises(rg.RegardError, match=re.escape(said)):
        Target.of("bad.py:attention").load()


@pytest.mark.alone
@pytest.mark.parametrize(("code", "said"), ENDS, ids=[code for code, _ in ENDS])
def test_what_ends_while_it_is_imported(code, said, bad):
    bad.write_text(code)
    with pytest.raises(rg.RegardError, match=re.escape(said)):
        check_apart("bad.py:attention", timeout_s=0.2)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("attention", "'attention' names no function; write module:function or file.py:function"),
        (":f", "names no function"),
        (5, "is told by name, not by an object of type int: write module:function or file.py:function"),
        ("m:a.b", "'a.b' is no name of a function; write m:function"),
        ("none.py:f", "there is no file none.py"),
        ("sub/none:f", "there is no file sub/none"),
        ("no_such.thing:f", "there is no module 'no_such'; it is looked for in "),
        ("sub/own:f", "sub/own is no Python file; write file.py:function"),
        ("numpy.py:f", "numpy.py is named like the module numpy, which is loaded: rename the file"),
    ],
)
def test_what_names_no_function(target, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    for name in ("numpy.py", "sub/own"):
        Path(name).write_text("def f(q, k, v): ...")
    with pytest.raises(rg.RegardError, match=re.escape(said)):
        check_apart(target)


PLAIN = """
import numpy as np
def f(q, k, v):
    scores = q @ k.swapaxes(-1, -2)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v
"""


def test_a_module_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    for name in ("package/__init__.py", "package/mine.py"):
        Path(name).write_text(PLAIN)
    script = check_apart("package.mine:f").report.findings[0].script
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 1
    assert "FAULT" in done.stderr


@pytest.mark.parametrize("name", ["2x-ada.py", "class.b.é.py"])
def test_a_file_whose_name_is_none_of_a_module(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sibling.py").write_text("from sys import exit")
    leaving = PLAIN + "def g(q, k, v):\n    sibling.exit(3)\n"
    Path(name).write_text(f"import sibling{leaving}", encoding="utf-8")
    report = check_apart(f"{name}:f").report
    assert report.names[0] == "SCALE_MISSING"
    code, said = replayed(report["SCALE_MISSING"].script, tmp_path / "sub")
    assert code == 1
    assert "FAULT SCALE_MISSING:" in said
    script = check_apart(f"{name}:g").report["EXITS"].script
    assert replayed(script, tmp_path / "sub") == (1, "FAULT EXITS: the process ended with 3\n")
    with pytest.raises(rg.RegardError, match=re.escape(f"{name} has no 'h'; it has f, g")):
        Target.of(f"{name}:h").load()


OPTIONS = [
    ({"mask": "yes"}, "mask is 'yes'; check knows keep, drop, additive"),
    ({"foo": 1}, "check_apart has no option 'foo'; it has layout, mask, causal"),
    ({"suports": ()}, "check_apart has no option 'suports'; did you mean supports?"),
    ({"fn": 1}, "check_apart has no option 'fn'"),
    ({"vjp": print}, "vjp is a function, which cannot be sent to another process: make it an attribute"),
    ({"layout": lambda: 0}, "layout is of type function, which cannot be sent to another process"),
    ({"timeout_s": float("nan")}, "timeout_s is nan; it is a number of seconds above 0"),
    ({"timeout_s": 0}, "timeout_s is 0; "),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS, ids=[next(iter(options)) for options, _ in OPTIONS])
def test_a_wrong_option(options, said):
    with pytest.raises(rg.RegardError, match=re.escape(said)):
        check_apart(f"{HOSTILE}:attention", **options)


@posix
def test_processes_that_it_starts_end_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    assert apart.__wrapped__("starts_a_process").report.names == ("SCALE_MISSING",)
    assert gone(int((tmp_path / "pid").read_text()))


@pytest.mark.alone
@posix
def test_a_daemon_that_holds_the_pipes_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    began = time.monotonic()
    assert apart.__wrapped__("starts_a_daemon").report.names == ("SCALE_MISSING",)
    assert time.monotonic() - began < 20
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@posix
@pytest.mark.parametrize(
    ("name", "signal_"),
    [("waits", signal.SIGINT), ("waits", signal.SIGKILL), ("holds_the_lock", signal.SIGKILL)],
    ids=["interrupted", "killed", "killed, while nothing of Python runs in the other"],
)
def test_nothing_is_left_of_a_check_that_is_ended(name, signal_, tmp_path):
    code = (
        f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"from regard.check import check_apart; check_apart({f'{HOSTILE}:{name}'!r}, timeout_s=60)"
    )
    file = tmp_path / "pid"
    environment = {**os.environ, "PID_FILE": str(file)}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    while not (file.exists() and file.read_text()):
        time.sleep(0.05)
        assert parent.poll() is None
    parent.send_signal(signal_)
    parent.wait(60)
    for pid in file.read_text().split():
        assert gone(int(pid))
