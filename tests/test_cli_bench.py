"""regard bench: what it prints and writes, with tiny problems; what it refuses in one line. No time is asserted."""

import json
import os
import sys
import threading
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import regard
from regard import bench
from regard.bench import _race, _short
from regard.cli import _bench
from regard.cli.__main__ import main


def tiny(problem):
    """The same problem with a few keys."""
    lengths = [min(n, 40) for n in problem.lengths]
    query, key = ((1, min(s[1], 4), n, 8) for s, n in zip((problem.query, problem.key), lengths, strict=True))
    key = (1, max(1, query[1] * problem.key[1] // problem.query[1]), *key[2:])
    mask = problem.mask and type(problem.mask)(*((7,) if isinstance(problem.mask, bench.Window) else ()))
    return replace(problem, query=query, key=key, mask=mask, repeat=1, checked=0)


TINY = tuple(map(tiny, bench.PROBLEMS))


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Run the command on tiny problems in an empty directory; return exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(_short.short, "__kwdefaults__", {**_short.short.__kwdefaults__, "problems": TINY})
    monkeypatch.setattr(_short, "_ceilings", lambda rounds: {name: ceiling(name) for name in UNITS})

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["regard", "bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return exit_.value.code or 0, out, err

    return run


UNITS = {_short.MATMUL: "GFLOP/s", _short.READING: "GB/s"}


def ceiling(name):
    return {"unit": UNITS[name], **bench.spread([50.0])}


def absent(monkeypatch, module):
    """As if a module were not installed."""
    real = bench.Peer.absent
    monkeypatch.setattr(
        bench.Peer, "absent", lambda peer: f"not installed: {module}" if module in peer.needs else real(peer)
    )


def test_the_table(command, monkeypatch):
    absent(monkeypatch, "torch")
    code, out, err = command("--rounds", "2")
    assert (code, err) == (0, "")
    for problem in TINY:
        head = out.partition(f"\n{problem.name}")[2].splitlines()
        assert head[1].split()[0] in ("ms", "µs")
        assert head[1].split()[1:] == ["middle", "half", "/", "regard", "share", "error"]
        assert [line.split()[0] for line in head[2:4]] == ["regard", "NumPy"]
        assert " 1.00 " in head[2]
    for part in ("NumPy matmul 1024: 50 GFLOP/s", "NumPy reading 64 MiB: 50 GB/s", "1 thread of",
                 "not installed: torch: it would be timed too"):  # fmt: skip
        assert part in out
    assert max(map(len, out.splitlines())) <= 80


def row(ms, share=1.26, low=0.999, high=1.001):
    told = {"median_ms": ms, "low_ms": low * ms, "high_ms": high * ms, "max_abs_error": 2.5e-7, "share": share}
    return told | {"ratio": bench.spread([40.34])}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("ms", "unit", "told"), [
    (0.00563, "µs", "5.63"), (0.0999, "µs", "99.9"), (0.1, "ms", "0.1"), (12.34, "ms", "12.3"), (12345, "ms", "12345"),
])  # fmt: skip
def test_numbers_are_whole_and_the_bar_is_long_enough(capsys, monkeypatch, width, ms, unit, told):
    """Times of a short problem are told in microseconds; no number is broken over two lines."""
    monkeypatch.setenv("COLUMNS", str(width))
    outcome = {"contestants": {"regard": row(ms), "torch sdpa, mask array": row(2 * ms)}}
    room = width - sum(_bench._COLUMNS.values()) - len(_bench._COLUMNS)
    _bench.text_console().print(_bench._table({"problems": {"p": outcome}}, "p", room))
    _, head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[0] == unit
    assert [word for word in first.split() if not set(word) <= set("━╸")][1:2] == [told]
    assert first.split()[-4:] == ["40.34", "126", "%", "2e-07"]
    assert second.startswith("torch sdpa, mask array ")
    assert second.count("━") >= 10


def test_what_was_disturbed_is_said(command, monkeypatch):
    monkeypatch.setattr(bench, "disturbed", lambda row: row["outside"])
    monkeypatch.setattr(bench, "unquiet", lambda machine: "not quiet: load 7.0")
    absent(monkeypatch, "torch")
    code, out, _ = command("--rounds", "1")
    said = " ".join(out.split())
    assert code == 0
    assert f"{TINY[0].name}: NumPy textbook: disturbed, the middle half is more than 1.3 times wide" in said
    assert "this machine is not quiet: load 7.0" in said
    assert "Over 100 % is faster than NumPy is at that" in said


def test_files(command, monkeypatch):
    absent(monkeypatch, "torch")
    code, out, err = command("--rounds", "3", "--json", "b.json", "--svg", "b.svg")
    assert (code, err) == (0, "")
    assert "written to b.json" in out
    result = bench.read(bench.newest(Path.cwd()))
    assert list(result["problems"]) == [problem.name for problem in TINY]
    assert (result["short"], result["rounds"]) == (True, 3)
    for outcome in result["problems"].values():
        assert list(outcome["contestants"]) == ["regard", "NumPy textbook"]
        for row in outcome["contestants"].values():
            assert len(row["times_ms"]) == row["rounds"] == 3
            assert row["worst_row_error"] < 3e-5
    drawn = ElementTree.parse("b.svg").getroot()
    words = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [problem.name for problem in TINY] == [word for word in words if word in result["problems"]]
    assert words.count("NumPy textbook") == len(TINY)
    assert json.dumps(result)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_links_are_followed_and_pipes_are_written_into(command, tmp_path):
    (tmp_path / "kept.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("kept.json")
    os.mkfifo(tmp_path / "pipe.svg")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe.svg").read_text()))
    reader.start()
    assert command("--rounds", "1", "--json", "link.json", "--svg", "pipe.svg")[0] == 0
    reader.join()
    assert bench.read(tmp_path / "kept.json")["rounds"] == 1
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "pipe.svg").is_fifo()
    assert ElementTree.fromstring(read[0]).tag.endswith("svg")


def test_nothing_is_measured_that_cannot_be_written(command, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "short", lambda **_: pytest.fail("it was measured"))
    for option in ("--json", "--svg"):
        code, _, err = command(option, tmp_path)
        assert (code, err) == (2, f"regard: {option}: cannot write {tmp_path}: it is a directory; name a file in it\n")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_went_away_is_no_wrong_answer(command, monkeypatch, tmp_path):
    monkeypatch.setattr(_bench, "_print", lambda *_: os.write(pipe, b"x"))
    reader, pipe = os.pipe()
    os.close(reader)
    assert command("--rounds", "1", "--json", "b.json") == (141, "written to b.json\n", "")
    os.close(pipe)
    assert bench.read(tmp_path / "b.json")["rounds"] == 1


def test_a_wrong_answer_of_regard_is_told_and_fails(command, monkeypatch):
    wrong = lambda peer, problem, given: lambda: np.zeros(problem.query, np.float32)  # noqa: E731
    monkeypatch.setattr(bench.Regard, "prepare", wrong)
    code, out, _ = command("--rounds", "1")
    assert code == 1
    said = f"{TINY[0].name}: regard is refused: a row of its answer is off by 1 of its length"
    assert said in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threads", "0"], "--threads is 0; this process may use 1 processor: ask for 1 to 1"),
        (["--threads", "2"], "--threads is 2; this process may use 1 processor: ask for 1 to 1"),
        (["--rounds", "0"], "--rounds is 0; ask for 1 to 1000"),
        (["--rounds", "2000"], "--rounds is 2000"),
        (["--json", "no/b.json"], "--json: cannot write no/b.json: there is no directory no; make it first"),
        (["--svg", "no/b.svg"], "--svg: cannot write no/b.svg: there is no directory no"),
        (["--svg", "."], "--svg: cannot write .: it is a directory; name a file in it"),
        (["--json", ""], "--json: cannot write .: it is a directory; name a file in it"),
        (["--rounds", "1", "--json", "/dev/full"], "cannot write /dev/full: No space left on device"),
    ],
)
def test_refused_in_one_line(command, monkeypatch, arguments, message):
    monkeypatch.setattr(_short, "processors", lambda: 1)
    code, _, err = command(*arguments)
    assert code == 2
    assert err.startswith("regard: ")
    assert message in err
    assert err.count("\n") == 1


def test_without_threadpoolctl_it_says_how_to_get_it(command, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("regard.bench", "regard.cli._bench"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(regard, "bench")
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    code, _, err = command()
    assert (code, err) == (2, "regard: the command needs threadpoolctl; run `pip install 'regard[cli]'`\n")


def test_a_slow_contestant_is_stopped_and_the_rest_goes_on(monkeypatch):
    monkeypatch.setattr(_short, "PATIENCE_S", -1.0)
    result = bench.short(rounds=6, problems=TINY[:1])
    for row in result["problems"][TINY[0].name]["contestants"].values():
        assert (row["rounds"], row["stopped"]) == (3, True)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no processes")
def test_it_is_pinned_while_it_runs_and_not_after(monkeypatch):
    before, seen = os.sched_getaffinity(0), []
    real = _race.interleave
    monkeypatch.setattr(_race, "interleave", lambda *a, **k: (seen.append(os.sched_getaffinity(0)), real(*a, **k))[1])
    bench.short(rounds=1, problems=TINY[:1])
    assert seen == [{max(before)}]
    assert os.sched_getaffinity(0) == before


def test_progress_goes_from_nothing_to_all():
    seen = []
    bench.short(rounds=2, problems=TINY[:2], progress=lambda what, share: seen.append((what, share)))
    assert seen[0] == ("ceilings", 0.0)
    assert [share for _, share in seen[1:]] == [0.0, 0.25, 0.5, 0.5, 0.75, 1.0]
    assert [what for what, _ in seen[1:]] == [TINY[0].name] * 3 + [TINY[1].name] * 3


@pytest.mark.parametrize("option", ["--json", "--svg"])
def test_a_file_may_be_stdout(command, monkeypatch, tmp_path, option):
    absent(monkeypatch, "torch")
    code, out, err = command("--rounds", "1", option, "-")
    assert code == 0
    assert "middle half" in err
    if option == "--json":
        assert list(json.loads(out)["problems"]) == [problem.name for problem in TINY]
    else:
        assert ElementTree.fromstring(out).tag.endswith("svg")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("second", ["-", "b", "./b"])
def test_no_file_is_written_twice(command, monkeypatch, tmp_path, second):
    monkeypatch.setattr(bench, "short", lambda **_: pytest.fail("it was measured"))
    code, out, err = command("--json", "b" if second != "-" else "-", "--svg", second)
    assert (code, out) == (2, "")
    assert err == f"regard: --json and --svg are both {Path(second)}: name a file for each, or leave one out\n"


def test_help_is_enough(command):
    code, out, _ = command("--help")
    assert code == 0
    for word in ("--threads", "--rounds", "--json", "--svg", "under a minute", "NumPy's textbook", "Exit codes"):
        assert word in out
