"""benchmarks/: what a comparison of two results calls a change, and what is read as a result."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import compare  # noqa: E402
from regard import bench  # noqa: E402
from regard.bench import spread  # noqa: E402


def made(regard, other, **machine):
    """A result with one problem, of these times."""
    rows = {"regard": regard, "NumPy textbook": other, "regard, plain": [1, 1, 1]}
    contestants = {}
    for name, times in rows.items():
        contestants[name] = {f"{key}_ms": value for key, value in spread(times).items()}
        contestants[name]["outside"] = not name.startswith("regard")
    return {"format": 2, "machine": {"cpu": "x"} | machine, "problems": {"p": {"contestants": contestants}}}


@pytest.mark.parametrize(
    ("regard", "other", "verdict"),
    [
        ([5, 5, 5], [30, 30, 30], "faster"),
        ([20, 20, 20], [30, 30, 30], "slower"),
        ([9, 9.9, 11], [30, 30, 30], "noise"),  # the middle halves touch
        ([5, 5, 5], [15, 15, 15], "noise"),  # the machine was faster: the other gained as much
        ([20, 20, 20], [60, 60, 60], "noise"),
        ([5, 5, 5], [60, 60, 60], "faster"),
    ],
)
def test_compare_tells_a_change_from_noise(regard, other, verdict):
    told = compare.changes(made([10, 10, 10], [30, 30, 30]), made(regard, other))
    assert told["p"]["verdict"] == verdict
    assert told["p"]["gain"]["median"] == 10 / np.median(regard)
    assert list(told["p"]["others"]) == ["NumPy textbook"]


def slowed(result, factor):
    """The same with all of regard's times so many times as long."""
    told = json.loads(json.dumps(result))
    for outcome in told["problems"].values():
        row = outcome["contestants"].get("regard", {})
        row |= {key: value * factor for key, value in row.items() if key.endswith("_ms") and key != "times_ms"}
    return told


@pytest.mark.parametrize(("factor", "verdict"), [(1.25, "slower"), (0.8, "faster")])
def test_a_quarter_more_or_less_is_seen_in_most_problems(factor, verdict):
    result = bench.read(bench.newest(ROOT / "benchmarks" / "results"))
    told = [change["verdict"] for change in compare.changes(result, slowed(result, factor)).values()]
    assert set(told) <= {verdict, "noise"}
    assert told.count(verdict) > 0.75 * len(told)


def test_the_drift_is_that_of_torch_and_the_ceilings():
    """NumPy's gigabytes come at another price in each run."""
    old, new = made([10], [30]), made([10], [10])
    for result, ms in ((old, [8.0, 9.0]), (new, [8.0, 9.0])):
        for name, each in zip(("torch sdpa", "FMA in registers"), ms, strict=True):
            result["problems"]["p"]["contestants"][name] = {
                "outside": True, "low_ms": each, "median_ms": each, "high_ms": each,
            }  # fmt: skip
    slower = slowed(new, 1.1)
    assert compare.changes(old, slower)["p"]["verdict"] == "slower"
    assert compare.changes(old, slower)["p"]["drift"]["median"] == 1
    assert compare.changes(old, new)["p"]["verdict"] == "noise"


def test_compare_says_what_else_changed():
    old, new = made([10], [30], numpy="1"), made([5], [30], numpy="2")
    old["problems"]["gone"] = {"contestants": {}}
    console = Console(width=120, file=io.StringIO())
    compare.show(old, new, console)
    text = console.file.getvalue()
    for part in ("numpy: 1 → 2", "2.00", "faster", "only in the old: gone"):
        assert part in text


def test_a_result_is_written_whole_and_the_run_before_is_kept(tmp_path):
    path = tmp_path / "new" / "bench.json"
    assert bench.set_aside(path) is None
    bench.write(made([1], [2]), path)
    before = bench.set_aside(path)
    bench.write(made([3], [4]), path)
    assert bench.read(before) == made([1], [2])
    assert bench.read(path) == made([3], [4])
    assert sorted(p.name for p in path.parent.iterdir()) == ["bench.before.json", "bench.json"]


def test_the_newest_result_is_that_of_the_latest_day(tmp_path):
    for name, date in (("b", "2026-02-01"), ("a", "2026-11-30"), ("c", "2025-12-31")):
        bench.write(made([1], [2], date=date), tmp_path / f"{name}.json")
    (tmp_path / "models.json").write_text('{"machine": {"date": "2027-01-01"}}')
    assert bench.newest(tmp_path) == tmp_path / "a.json"
    with pytest.raises(FileNotFoundError, match="holds no result"):
        bench.newest(tmp_path / "none")


def test_the_committed_result_is_read():
    result = bench.read(bench.newest(ROOT / "benchmarks" / "results"))
    ran = {name for name, outcome in result["problems"].items() if "skipped" not in outcome}
    assert set(compare.changes(result, result)) == ran
    assert {change["verdict"] for change in compare.changes(result, result).values()} == {"noise"}


def test_what_is_no_result_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"format": 3}')
    with pytest.raises(ValueError, match="no result of `make bench`"):
        bench.read(tmp_path / "x.json")
    with pytest.raises(SystemExit, match=r"benchmarks: .*no\.json"):
        command.main(["compare", str(tmp_path / "no.json"), str(tmp_path / "x.json")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 2', "no JSON, or was cut short: "),
        ("[2]", "no result of `make bench`"),
        ('{"format": 2}', "no whole result of .*: it has no machine"),
        ('{"format": 2, "machine": {}, "problems": []}', "it has no problems"),
        ('{"format": 2, "machine": {}, "problems": {"p": 1}}', "p has no contestants"),
        ('{"format": 2, "machine": {}, "problems": {"p": {"contestants": {"regard": {}}}}}', "p: regard has no times"),
    ],
)
def test_a_result_that_is_not_whole_is_named_and_stays(tmp_path, text, message):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=rf"^benchmarks: .*x\.json .*{message}"):
        command.main(["compare", str(path), str(path)])
    with pytest.raises(SystemExit, match=r"^benchmarks: .*x\.json is no "):
        command.main(["run", "--part", "growth", "-o", str(path)])
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]
