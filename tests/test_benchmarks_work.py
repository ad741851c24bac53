"""regard.bench: work is counted, and what bounds it is found among the ceilings."""

import pytest

from regard import bench
from test_docs_speed import CEILINGS, made

NEAREST = [(1, 50), (1 << 20, 50), ((1 << 20) + 1, 50), (5 << 20, 50), (6 << 20, 20), (1 << 26, 20), (1 << 28, 10),
           (1 << 40, 10)]  # fmt: skip


@pytest.mark.parametrize(
    ("work", "bound", "least"),
    [
        (bench.Work(10**9, 10**6, 10**6), "products", 10 + 0.5),
        (bench.Work(10**9, 10**8, 10**6), "exp", 10 + 50),
        (bench.Work(10**6, 10**3, 10**9), "reading", 100),
    ],
)
def test_what_bounds_a_call(work, bound, least):
    rates = bench.Rates(100.0, 2.0, 10.0)
    assert work.bound(rates) == bound
    assert work.least_ms(rates) == pytest.approx(least)


@pytest.mark.parametrize(("size", "rate"), NEAREST)
def test_reading_is_that_of_the_nearest_buffer(size, rate):
    ceilings = {name: {"median": value} for name, value in CEILINGS.items()}
    assert bench.Rates.of(ceilings, "avx2", "float32", size) == bench.Rates(100, 2, rate)
    assert bench.Rates.of(ceilings, "avx512", "float32", size) is None
    assert bench.Rates.of({}, "avx2", "float32", size) is None


@pytest.mark.parametrize(("ms", "rate"), [(10.0, 20), (1.0, 67.108864)])
def test_a_loop_over_the_same_keys_and_values_is_a_ceiling_if_it_is_faster(ms, rate):
    problem = bench.Problem("decode", "r", (1, 32, 1, 64), (1, 32, 4096, 64))
    work = bench.Work(1, 1, problem.bytes_of_kv + 2 * 32 * 64 * 4)
    ran = {"problem": problem.facts, "work": work.facts, "contestants": {bench.READ: {"median_ms": ms}}}
    assert bench.Rates.for_outcome(made(), ran).reading == pytest.approx(rate)


def test_work_is_counted_from_visited_tiles():
    whole, causal, window = (
        bench.work(p, p.draw()) for p in (
            bench.Problem("x", "r", (1, 2, 960, 16), (1, 2, 960, 16), mask=mask)
            for mask in (None, bench.Causal(), bench.Window(30))
        )
    )  # fmt: skip
    assert whole.facts == {"flops": 4 * 2 * 960**2 * 16, "exps": 2 * 960**2, "bytes": 4 * 4 * 2 * 960 * 16}
    kept = bench.Causal().pairs(1, 960, 960) / 960**2
    assert kept < causal.flops / whole.flops < kept + 0.1
    assert window.flops < causal.flops / 2
    decode = bench.Problem("x", "r", (1, 8, 1, 16), (1, 2, 960, 16))
    assert bench.work(decode, decode.draw()).flops == 4 * 8 * 960 * 16
