"""The pages on speed show what the file of a run says, with made-up numbers, and say what is not there."""

import importlib
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from regard import bench

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from benchmarks import growth, table  # noqa: E402
from benchmarks.goals import Costs, Faster, reached  # noqa: E402
from benchmarks.race import PATIENCE_S  # noqa: E402

FIGURES = {
    "performance": ("prefill", "short", "covered", "decode", "threads", "missed", "reached", "times", "left_out",
                    "conditions", "elsewhere"),
    "growth": ("full", "causal", "window", "memory_full", "memory_window", "times", "peaks", "fits",
               "sizes", "times_by_size", "widths", "times_by_width"),
    "roofline": ("ceilings", "counted", "asked", "roof"),
}  # fmt: skip
LONG, HEAD = (1, 8, 2048, 64), (1, 32, 1, 128)
PROBLEMS = (
    bench.Problem("float32 (1,8,2048,64)", "r", LONG, LONG, goals=(Faster("best", 1.25, 1.4),)),
    bench.Problem("a causal one", "r", LONG, LONG, mask=bench.Causal(), goals=(Faster("torch sdpa", 3.0, 4.0),)),
    bench.Problem("a window", "r", LONG, LONG, mask=bench.Window(9), goals=(Costs("regard, plain", 1.2, 1.05),)),
    bench.Problem("one query", "r", HEAD, (1, 8, 512, 128)),
    bench.Problem("a short one", "r", (1, 1, 16, 64), (1, 1, 16, 64)),
    bench.Problem("on two", "r", LONG, LONG, threads=2),
)
CEILINGS = {
    "FMA in registers, avx2": 100.0, "exp, avx2": 2.0, "reading 1 MiB": 50.0, "reading 32 MiB": 20.0,
    "reading 512 MiB": 10.0,
}  # fmt: skip


def wide(found, name):
    """The same with one of torch's middle halves wide, on a machine that had other things to do."""
    found["problems"][name]["contestants"]["torch sdpa"] |= {"low_ms": 90.0, "high_ms": 300.0}
    found["machine"]["load_before"] = 0.9
    return found


def row(ms, over, *, outside=True, rounds=11):
    told = {f"{key}_ms": value for key, value in bench.spread([ms]).items()}
    return told | {
        "outside": outside, "rounds": rounds, "stopped": rounds < 11, "gflops": 1.0, "ratio": bench.spread([over]),
        "max_abs_error": 2.5e-7,
    }  # fmt: skip


def outcome(problem):
    rows = {"regard": row(100.0, 1.0, outside=False), "torch sdpa": row(150.0, 1.5, rounds=3)}
    if problem.mask == bench.Window(9):
        rows["regard, plain"] = row(125.0, 1.25, outside=False)
    work = bench.Work(8_000_000_000, 33_000_000, 16_000_000)
    return {
        "reason": "r", "problem": problem.facts, "work": work.facts, "contestants": rows,
        "absent": {"JAX": "not installed: jax"}, "refused": {"ONNX Runtime": "a row is off"},
        "goals": reached(problem.goals, rows),
    }  # fmt: skip


def series(values, key, along="length", **more):
    rows = {str(n): {key: value, **more} for n, value in values.items()}
    fit = {"exponent": 1.987, "from": 1024, "to": 4096, "steps": 3}
    return {
        "reason": "r",
        "along": along,
        "length": 0,
        "size": 64,
        "growth": 2,
        "absent": {},
        "contestants": {"regard": rows},
        "fits": {"regard": fit},
    }


def ceiling(value):
    return {"unit": "u", **bench.spread([value]), "medians": [value / 2, value]}


def made():
    machine = {
        "date": "2026-11-30", "cpu": "a machine", "caches": {"L1 Data": "32K"}, "memory_gib": 7.5, "processors": 2,
        "load_before": 0.25, "load_after": 0.75, "system": "x", "python": "3.11", "numpy": "2.4", "blas": ["openblas "],
        "torch": "9.9", "jax": None, "onnxruntime": None, "openvino": None, "regard": "0.1.0", "commit": "abc",
        "target": "avx2",
    }  # fmt: skip
    times = {16: 0.01, 1024: 5.0, 2048: 20.0, 4096: 80.0}
    return {
        "format": bench.FORMAT, "machine": machine, "rounds": 11, "took_s": 1200.0,
        "ceilings": {name: ceiling(value) for name, value in CEILINGS.items()},
        "problems": {problem.name: outcome(problem) for problem in PROBLEMS} | {"gone": {"skipped": "no processors"}},
        "growth": {
            "full": series(times, "median", rounds=1), "causal window 256": series(times, "median", rounds=5),
            "full, head size": series({32: 1.0, 64: 1.5}, "median", "size", rounds=5),
            "causal window, its width": series({256: 2.0, 512: 4.0}, "median", "window", rounds=5),
        },
        "memory": {"full": series({n: 2**10 * n for n in times}, "bytes")},
    }  # fmt: skip


@pytest.fixture
def figure(monkeypatch, tmp_path):
    """A function of docs/figures, on a result that is written here."""
    kept = importlib.import_module("figures._bench")
    monkeypatch.setattr(kept, "RESULTS", tmp_path)

    def make(name, result):
        bench.write(result, tmp_path / "made.json")
        module, _, function = name.partition(".")
        return getattr(importlib.import_module(f"figures.{module}"), function)()

    return make


def cells(found):
    return [" | ".join(line).replace("\N{NO-BREAK SPACE}", " ") for line in found.rows]


@pytest.mark.parametrize("name", [f"{module}.{name}" for module, names in FIGURES.items() for name in names])
def test_the_page_is_whole_with_the_result_that_is_kept(name):
    """Every picture and table of the two pages has something to show."""
    module, _, function = name.partition(".")
    shown = getattr(importlib.import_module(f"figures.{module}"), function)()
    assert "not in this result" not in (shown.svg() if hasattr(shown, "svg") else " ".join(map(" ".join, shown.rows)))


def test_every_must_that_is_missed_is_said(figure):
    assert cells(figure("performance.missed", made())) == [
        "a causal one | torch sdpa | 1.5 | ≥ 3 | 193 %: more than there is"
    ]
    reached_ = cells(figure("performance.reached", made()))
    assert reached_[0] == "float32 (1,8,2048,64) | best (torch sdpa) | 1.5 | ≥ 1.25 | ≥ 1.4 | goal reached"
    assert reached_[1].endswith("| ≥ 3 | ≥ 4 | **must missed**")
    assert reached_[2].endswith("0.8 | ≤ 1.2 | ≤ 1.05 | goal reached")
    good = made()
    good["problems"]["a causal one"]["goals"] = []
    assert cells(figure("performance.missed", good)) == ["none |  |  |  | "]
    good["problems"]["gone"]["goals"] = reached((Faster("best", 1, 1),), {})
    assert cells(figure("performance.reached", good))[-1] == "gone | best |  | ≥ 1 | ≥ 1 | not raced"


@pytest.mark.parametrize(
    ("part", "name"),
    [("prefill", "a causal one"), ("covered", "a window"), ("decode", "one query"), ("short", "a short one"),
     ("threads", "on two")],
)  # fmt: skip
def test_each_problem_is_in_one_picture(figure, part, name):
    for other in ("prefill", "covered", "decode", "short", "threads"):
        assert (name in figure(f"performance.{other}", made()).texts) == (other == part)


def test_bars_have_their_lengths_and_marks(figure):
    drawn = ElementTree.fromstring(figure("performance.prefill", made()).svg())
    words = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "1.5 ×" in words
    assert "1.5 ×, must 3: missed" in words
    bars = [r for r in drawn.iter("{http://www.w3.org/2000/svg}rect") if r.get("class") == "full"]
    assert len({bar.get("width") for bar in bars}) == 1
    assert len(bars) == 2
    described = drawn.find("{http://www.w3.org/2000/svg}desc").text
    assert "a causal one: torch sdpa 1.5 ×, must 3: missed" in described


def test_what_regard_may_cost_is_a_mark_on_the_scale_of_the_others(figure):
    """At most 1.2 times regard's plain call is a bar of at least 1 / 1.2."""
    (group,) = bench.groups({"a window": made()["problems"]["a window"]})
    (plain,) = (bar for bar in group.bars if bar.name == "regard, plain")
    assert (plain.value, plain.must, plain.goal) == (1.25, pytest.approx(1 / 1.2), pytest.approx(1 / 1.05))
    assert plain.own
    assert plain.told == "1.25 ×"
    assert "goal" in bench.bars([group], "t")
    assert "goal" not in bench.bars([bench.Group("g", "", (bench.Bar("x", 2, 2, 2),))], "t")
    assert "must 0.833: missed" in bench.Bar("x", 0.8, 0.8, 0.8, must=1 / 1.2).told


def test_all_times_and_who_was_left_out(figure):
    rows = cells(figure("performance.times", made()))
    assert "one query | torch sdpa | 150 (150 – 150) | 1.50 | 2.5e−7 | 3, stopped" in rows
    assert len(rows) == 2 * len(PROBLEMS) + 1
    assert cells(figure("performance.left_out", made())) == [
        "JAX | not installed: jax | 6", "ONNX Runtime | a row is off | 6", "gone | no processors | the whole",
    ]  # fmt: skip
    told = " ".join(cells(figure("performance.conditions", made())))
    for part in ("2026-11-30", "a machine, 2 processors", "0.1.0, commit abc", "0.2 before, 0.8 after", "rounds | 11",
                 "20 minutes", "torch 9.9"):  # fmt: skip
        assert part in told, part


def test_other_results_are_beside_the_newest(figure, tmp_path):
    old = made()
    old["machine"] |= {"date": "2026-10-01", "cpu": "an older machine", "target": "avx512"}
    del old["problems"]["a window"]
    bench.write(old, tmp_path / "old.json")
    bench.write(old | {"partial": True}, tmp_path / "partial.json")
    told = figure("performance.elsewhere", made())
    assert told.head == ["problem", "a machine, target avx2, 2026-11-30", "an older machine, target avx512, 2026-10-01"]
    rows = {row[0]: row[1:] for row in told.rows}
    assert rows["a causal one"] == ["1.50 (torch sdpa)"] * 2
    assert rows["a window"] == ["1.50 (torch sdpa)", ""]
    assert "gone" not in rows


def test_growth(figure):
    times = figure("growth.times", made())
    assert times.head == ["length", "full: regard", "causal window 256: regard"]
    assert cells(times) == [r"1,024 | 5 ms\* | 5 ms", r"2,048 | 20 ms\* | 20 ms", r"4,096 | 80 ms\* | 80 ms"]
    assert cells(figure("growth.peaks", made())) == ["1,024 | 1 MiB", "2,048 | 2 MiB", "4,096 | 4 MiB"]
    assert cells(figure("growth.fits", made()))[0] == "time | full | regard | n | 1.99 | 1,024 to 4,096 | 2"
    assert cells(figure("growth.fits", made()))[2].startswith("time | full, head size | regard | d | 1.99")
    assert cells(figure("growth.times_by_size", made())) == ["32 | 1 ms", "64 | 1.5 ms"]
    widths = figure("growth.times_by_width", made())
    assert (widths.head[0], cells(widths)) == ("keys that a query sees", ["256 | 2 ms", "512 | 4 ms"])
    assert "keys that a query sees" in figure("growth.widths", made()).svg()
    drawn = ElementTree.fromstring(figure("growth.full", made()).svg())
    (line,) = drawn.iter("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.02)  # twice the length, and four times the time, are equal steps
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.02)
    assert y0 > y1 > y2


def test_constants_and_names_in_the_text_are_those_of_the_benchmark():
    text = " ".join((ROOT / "docs" / "performance.md").read_text().split())
    for said in (
        f"took more than {PATIENCE_S:g} seconds in all", f"more than {growth.ONCE_S:g} seconds is timed once",
        "nothing runs for a tenth of a second", f"is {growth.FAR} times that of a call of {growth.SHORTEST} keys",
    ):  # fmt: skip
        assert said in text
    assert bench.rest_s(2) == 0.1
    window = next(series for series in growth.load("growth") if series.mask not in (None, "causal"))
    assert f"fitted from {window.start // window.mask['window']} windows on" in text
    size, width = (next(s for s in growth.load("growth") if s.along == along) for along in ("size", "window"))
    assert f"its width from {width.start} on" in text
    for said in (f"{size.length} queries and keys", f"{width.length} queries and keys, head size {width.size}"):
        assert said in text
    assert growth.FAR_BYTES == 1 << 20
    source = (ROOT / "docs" / "figures" / "growth.py").read_text()
    for kind in ("growth", "memory"):
        assert all(f'"{series.name}"' in source for series in growth.load(kind))


def test_ceilings_are_shown_as_they_were_at_the_start_and_at_the_end(figure):
    first = cells(figure("roofline.ceilings", made()))[0]
    assert first == "FMA in registers, avx2 | u | 100 | 100 – 100 | 50, 100"
    old = made()
    del old["ceilings"]["exp, avx2"]["medians"]
    assert cells(figure("roofline.ceilings", old))[1].endswith("| 2")


def test_roofline(figure):
    head, first, *rest = [figure("roofline.counted", made()).head, *cells(figure("roofline.counted", made()))]
    # 8 GFLOP at 100 are 80 ms, 33 million exps at 2 billion 16.5; 16 MB at the 20 GB/s of 32 MiB 0.8.
    assert first == "1. float32 (1,8,2048,64) | 8 | 33 | 16 | 80 + 16.5 | 0.8 | products | 100 | 96 %"
    assert head[-1] == "share"
    assert not any("on two" in line for line in rest)  # the loops have one thread
    assert len(rest) == len(PROBLEMS) - 2
    assert "96 %" in figure("roofline.roof", made()).alt


def test_what_a_missed_must_asks_for(figure):
    # 150 ms of torch over a must of 3 are 50 ms, where the ceilings allow 96.5.
    assert cells(figure("roofline.asked", made())) == ["2. a causal one | torch sdpa | 100 | 50 | 96.5 | 96 % | 193 %"]
    good = made()
    good["problems"]["a causal one"]["goals"] = []
    assert cells(figure("roofline.asked", good))[0].startswith("none")


@pytest.mark.parametrize("name", [f"{module}.{name}" for module, names in FIGURES.items() for name in names])
def test_a_result_without_a_part_says_so(figure, name):
    """A run of some problems has no lengths, an old one no goals, no work and no ceilings."""
    old = made()
    for part in ("growth", "memory", "ceilings", "took_s"):
        del old[part]
    old["problems"] = {
        PROBLEMS[0].name: {"problem": PROBLEMS[0].facts, "contestants": {"regard": row(1, 1, outside=False)}}
    }
    drawn = figure(name, old)
    assert drawn.texts
    said = " ".join(drawn.texts)
    assert "not in this result" in said or name in (
        "performance.times",
        "performance.left_out",
        "performance.conditions",
    )
    assert figure(name, made()).texts


def test_the_readme_has_what_the_result_says():
    result = made()
    name = "float32 (1,8,2048,64)"
    line = f"| {name} | 100 (100 – 100) | torch sdpa: 150 (150 – 150) | 1.50 (1.50 – 1.50) | 1.25 | 2.5e-07 |"
    assert table.table(result).splitlines()[2:] == [line]
    outcome = result["problems"][name]
    outcome["contestants"] = {"NumPy textbook": row(900, 9.0)} | outcome["contestants"]
    outcome["goals"].insert(0, outcome["goals"][0] | {"peer": "NumPy textbook", "must": 7.5})
    assert table.table(result).splitlines()[2:] == [line]
    outcome["goals"][1]["mark"] = "missed"
    assert "| 1.50 (1.50 – 1.50) | 1.25: missed |" in table.table(result)
    assert table.peers(made()) == "Beside regard ran NumPy, torch 9.9. JAX, ONNX Runtime, OpenVINO did not run."
    said = "Whoever takes up to 0.5 s ran once untimed right before each timed call."
    assert table.peers(made() | {"twice_s": 0.5}).endswith(f"did not run. {said}")
    blocks = (f"<!-- bench:{name} -->old<!-- /bench -->" for name in ("machine", "peers", "missed", "table"))
    text = "a " + " b ".join(blocks)
    filled = table.filled(text, result)
    assert "a machine, target avx2, NumPy 2.4 with openblas, 2026-11-30 (load 0.2)" in filled
    assert "old" not in filled
    assert table.filled(filled, result) == filled
    with pytest.raises(ValueError, match="bench:peers"):
        table.filled(text.replace("bench:peers", "other"), result)


def test_what_was_disturbed_is_marked_on_every_page(figure):
    name = "float32 (1,8,2048,64)"
    calm, found = made(), wide(made(), name)
    assert "torch sdpa: 150 (90 – 300), disturbed |" in table.table(found)
    assert f"{name} | torch sdpa | 150 (90 – 300), disturbed | 1.50" in " ".join(
        cells(figure("performance.times", found))
    )
    said = "not quiet: load 0.9; the numbers mean little"
    assert said in table.machine(found)
    assert f"load average | 0.9 before, 0.8 after; {said}" in cells(figure("performance.conditions", found))
    shown = [table.table(calm), table.machine(calm), *cells(figure("performance.conditions", calm))]
    assert not [text for text in shown if "disturbed" in text or "not quiet" in text]
    for page in ("README.md", "docs/performance.md"):
        assert f"more than {bench.DISTURBED:g} times apart" in " ".join((ROOT / page).read_text().split())


def test_the_readme_says_which_musts_are_out_of_reach_and_what_was_not_raced():
    # 150 ms over a must of 3 are 50 ms, where the ceilings allow 96.5; a must of 1.5 asks for 100.
    assert table.missed(made()) == (
        "1 of the 3 are missed. 1 of these would take more than this machine's ceilings give: a causal one. "
        "Beside them 1 problem was not raced here."
    )
    result = made()
    causal, gone = result["problems"]["a causal one"], result["problems"]["gone"]
    causal["goals"][0] |= {"must": 1.51}
    gone["goals"] = reached((Faster("best", 1, 1), Faster("torch sdpa", 2, 3)), {})
    assert table.missed(result) == "1 of the 3 are missed. Beside them 1 problem was not raced here, with 2 musts."
    del result["problems"]["gone"]
    assert table.missed(result) == "1 of the 3 are missed."
    (asked,) = bench.asked(result)
    assert (asked.problem, asked.must_ms, asked.least_ms) == ("a causal one", 150 / 1.51, 96.5)
    causal["problem"]["threads"] = 2
    assert [each.share for each in bench.asked(result)] == [None]


def test_what_a_must_asks_for_is_told_by_the_fastest_moments():
    result = made()
    contestants = result["problems"]["a causal one"]["contestants"]
    contestants["regard"]["min_ms"], contestants["torch sdpa"]["min_ms"] = 90.0, 120.0
    result["ceilings"]["FMA in registers, avx2"]["max"], result["ceilings"]["exp, avx2"]["max"] = 200.0, 4.0
    (asked,) = bench.asked(result)
    assert (asked.took_ms, asked.must_ms, asked.least_ms) == (90, 40, 40 + 8.25)
    assert (asked.reached, asked.share) == (48.25 / 90, 48.25 / 40)


def test_results_come_before_what_is_missed():
    text = (ROOT / "docs" / "performance.md").read_text()
    assert text.index("performance.prefill") < text.index("performance.missed") < text.index("performance.reached")


def test_each_number_on_the_roof_has_a_place_of_its_own(figure):
    """Twenty problems at the same point."""
    result = made()
    one = result["problems"][PROBLEMS[0].name]
    result["problems"] = {f"problem {n}": one for n in range(20)}
    drawn = ElementTree.fromstring(figure("roofline.roof", result).svg())
    texts = [text for text in drawn.iter() if text.tag.endswith("text") and (text.text or "").isdigit()]
    places = {text.text: (float(text.get("x")), float(text.get("y"))) for text in texts if int(text.text) <= 20}
    placed = [places[f"{n}"] for n in range(1, 21)]
    for first, (x, y) in enumerate(placed):
        for at_x, at_y in placed[:first]:
            assert abs(x - at_x) >= 8 or abs(y - at_y) >= 10
