"""Random problems for minutes on end, every usable target, the outcome kept: `make soak`.

Problems are those of tests/test_agree.py over all options, with the masks of tests/masks_random.py among them. A seed
is a batch of them, so a failure is repeated, and made smaller, by its seed and target alone::

    python tools/soak.py --minutes 10
    python tools/soak.py --seed 1234 --target avx2

Each result is held to the bound, output, logsumexp and weights; and its bits to those of other threads, other strides
and one row alone. Exit code 1 if anything failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
import traceback
import warnings
from collections import defaultdict
from pathlib import Path

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import judges  # noqa: E402
import masks_random  # noqa: E402
import regard as rg  # noqa: E402
import test_agree  # noqa: E402
from regard import _runtime  # noqa: E402
from regard._plan import make_problem  # noqa: E402
from regard.biases import as_bias  # noqa: E402
from regard.masks import Dense  # noqa: E402

KEPT = ROOT / "tests" / "data" / "soak"
BATCH = 25
MAX_REPORTED = 20
PARTS = ("out", "lse", "weights")


@st.composite
def problems(draw):
    """Problems of test_agree; in half of those that may have a mask, an expression of any leaves."""
    arrays, options = draw(test_agree.problems())
    if "q_offset" in options and draw(st.booleans()):
        plain = make_problem(*arrays, q_offset=options["q_offset"])
        rng = draw(masks_random.GENERATORS)
        leaves = masks_random.CLOSED + masks_random.OPEN * draw(st.booleans())
        options["mask"] = masks_random.expression(rng, plain.geometry, draw(st.integers(0, 4)), leaves)
    return arrays, options


def free_path():
    """Today's file, or today's next: a kept run is never written over."""
    today = datetime.date.today().isoformat()
    names = [f"{today}.json", *(f"{today}-{n}.json" for n in range(2, 1000))]
    return next(KEPT / name for name in names if not (KEPT / name).exists())


class Tally:
    """Counts, and the worst error in units of the bound, for each target and dtype."""

    def __init__(self):
        self.count = defaultdict(int)
        self.worst = defaultdict(lambda: dict.fromkeys(PARTS, 0.0))
        self.seed = {}
        self.now = None  # (target, dtype), seed
        self.problem = None  # the last one
        self.part = 0

    def begin(self, target, dtype, seed):
        """Count a problem; the next three comparisons are its output, logsumexp and weights."""
        self.now, self.part = ((target, dtype), seed), 0
        self.count[target, dtype] += 1

    def compare(self, got, want, bound):
        """Note the largest error of one part; the judge has the word."""
        (key, seed), name = self.now, PARTS[self.part]
        self.part += 1
        precise = np.result_type(np.asarray(want).dtype, np.float64)
        with np.errstate(all="ignore"):
            error = np.abs(np.asarray(got).astype(precise) - want) / np.broadcast_to(bound, np.shape(want))
        worst = float(np.nanmax(error, initial=0))
        if worst > self.worst[key][name]:
            self.worst[key][name] = worst
            self.seed[key] = seed
        judge(got, want, bound)


judge = judges.assert_close


def check(tally, target, seed, problem):
    """One problem: within the bound, and the same bits however it is asked."""
    arrays, options = problem
    tally.begin(target, np.dtype(arrays[0].dtype).name, seed)
    tally.problem = problem
    with rg.config(target=target, num_threads=2):
        result = rg.attention_forward(*arrays, **options)
        judges.assert_agrees(result, *arrays, **options)
    with rg.config(target=target, num_threads=1):
        judges.assert_same_bits(rg.attention(*arrays, **options), result.out)
        turned = [np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) for x in arrays]
        room = np.empty((*result.out.shape[:-1], 2 * result.out.shape[-1]), result.out.dtype)[..., ::-2]
        judges.assert_same_bits(rg.attention(*turned, **options, out=room), result.out)
        check_row(arrays, options, result)


def check_row(arrays, options, result):
    """The middle row alone, where the mask is not about rows of an array and the offset is one number."""
    q, k, v = arrays
    offset, i = options.get("q_offset", 0), q.shape[-2] // 2
    if not isinstance(offset, int) or not formulas(options["mask"]):
        return
    alone = dict(options, q_offset=offset + i)
    if "bias" in options:
        alone["bias"] = as_bias(options["bias"]).with_arrays(lambda x: x if x.shape[-2] == 1 else x[..., i : i + 1, :])
    got = rg.attention_forward(q[..., i : i + 1, :], k, v, **alone)
    judges.assert_same_bits(got.out[..., 0, :], result.out[..., i, :])
    judges.assert_same_bits(got.lse[..., 0], result.lse[..., i])


def formulas(mask):
    """No leaf of the mask is a table over query rows."""
    if mask is None:
        return True
    if mask.parts:
        return all(formulas(part) for part in mask.parts)
    return not isinstance(mask, Dense | rg.Documents | rg.Blocks)


def run(tally, target, seed, *, shrink=False):
    """Run the batch of one seed; raise what the first failure raised."""

    @hypothesis.seed(seed)
    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(problem=problems())
    def batch(problem):
        check(tally, target, seed, problem)

    with warnings.catch_warnings():
        warnings.simplefilter("default" if shrink else "ignore", HypothesisWarning)
        batch()


def first_seed():
    """One after the last seed of the kept runs."""
    return 1 + max((json.loads(path.read_text())["seeds"]["last"] for path in KEPT.glob("*.json")), default=0)


def failure(seed, target, problem, error):
    """What failed, where, and the command that repeats it."""
    arrays, options = problem
    last = traceback.extract_tb(error.__traceback__)[-1]
    return {
        "seed": seed,
        "target": target,
        "replay": f"python tools/soak.py --seed {seed} --target {target}",
        "error": f"{type(error).__name__}: {error}"[:1000],
        "at": f"{Path(last.filename).name}:{last.lineno} in {last.name}",
        "arrays": [f"{x.dtype} {x.shape}" for x in arrays],
        "options": {
            name: f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else repr(x)[:500] for name, x in options.items()
        },
    }


def soak(minutes, targets, first, console):
    """Seed after seed, target after target, until the time is over."""
    tally, failures, seed = Tally(), [], first - 1
    judges.assert_close = tally.compare
    started = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("of {task.fields[of]:g} min"),
    )
    try:
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("soaking", total=minutes * 60, of=minutes)
            while time.monotonic() - started < minutes * 60:
                seed += 1
                for target in targets:
                    try:
                        run(tally, target, seed)
                    except Exception as error:
                        failures.append(failure(seed, target, tally.problem, error))
                        progress.console.print(f"[red]failed[/red]: {failures[-1]['replay']}")
                count, failed = sum(tally.count.values()), len(failures)
                text = f"seed {seed}, {count} problems, {failed} failed"
                progress.update(bar, completed=time.monotonic() - started, description=text)
    except KeyboardInterrupt:
        console.print("interrupted; what was done is kept")
    finally:
        judges.assert_close = judge
    return tally, failures, max(seed, first), time.monotonic() - started


def report(tally, failures, first, last, seconds):
    """Put the outcome in words that a later run, or a reader, can use."""
    git = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run(
        ["git", "-C", ROOT, "status", "--porcelain", "src", "native"], capture_output=True, text=True
    )
    return {
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "commit": git.stdout.strip() + (" and changes" if changed.stdout else ""),
        "machine": {"processor": platform.processor() or platform.machine(), "processors": os.cpu_count()},
        "versions": {
            "regard": rg.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "hypothesis": hypothesis.__version__,  # seeds mean the same only with this one
        },
        "seconds": round(seconds),
        "seeds": {"first": first, "last": last, "problems_each": BATCH},
        "problems": sum(tally.count.values()),
        "results": [
            {"target": target, "dtype": dtype, "problems": count,
             "worst_error_in_bounds": {part: round(x, 4) for part, x in tally.worst[target, dtype].items()},
             "worst_seed": tally.seed.get((target, dtype))}
            for (target, dtype), count in sorted(tally.count.items())
        ],
        "failed": len(failures),
        "failures": failures[:MAX_REPORTED],
    }  # fmt: skip


def show(outcome, console):
    """Print the outcome as a table."""
    table = Table(title=f"{outcome['problems']} problems, {outcome['failed']} seeds failed")
    for name in ("target", "dtype", "problems", *(f"worst {part} / bound" for part in PARTS), "seed"):
        table.add_column(name)
    for row in outcome["results"]:
        worst = [f"{row['worst_error_in_bounds'][part]:.3g}" for part in PARTS]
        table.add_row(row["target"], row["dtype"], str(row["problems"]), *worst, str(row["worst_seed"]))
    console.print(table)
    for failure in outcome["failures"]:
        console.print(failure["replay"], failure["error"].splitlines()[0], sep="\n    ", markup=False)


def main():
    usable = [info.name for info in _runtime.describe() if info.usable]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--target", choices=usable, help="only this one")
    parser.add_argument("--first", type=int, default=None, help="first seed; default: after the kept runs' last")
    parser.add_argument("--seed", type=int, help="repeat this seed, and make what fails smaller")
    parser.add_argument("--out", type=Path, help="file for the outcome; default: a new one in tests/data/soak")
    given_ = parser.parse_args()
    targets = [given_.target] if given_.target else usable
    if given_.seed is not None:
        for target in targets:
            run(Tally(), target, given_.seed, shrink=True)
        return 0
    console = Console()
    first = first_seed() if given_.first is None else given_.first
    tally, failures, last, seconds = soak(given_.minutes, targets, first, console)
    outcome = report(tally, failures, first, last, seconds)
    path = given_.out or free_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(outcome, indent=1) + "\n")
    show(outcome, console)
    console.print(f"kept in {path}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
