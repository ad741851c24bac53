"""What a call must do at least, counted, and how long this machine's ceilings say that takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, NamedTuple

from regard._attention.forward import plan
from regard._runtime import WEIGHT_UNITS

from ._problem import DTYPES, Given, Problem

# What may bound a call, in the order in which they are told.
WAYS = ("products", "exp", "reading")
# Loops of products. Who rounds weights to bfloat16 multiplies by its pairs, or else by tiles.
FMA, PAIRS, AMX = "FMA in registers", "pairs of bfloat16", "AMX on random data"
PAIRS_OF = tuple(target for target, dtype in WEIGHT_UNITS if dtype == "bfloat16" and target != "amx")
# The contestant that reads a problem's keys and values, and does nothing else.
READ = "reading keys and values"
# Products of bfloat16 pieces that AMX makes in the place of one; of float16 four for q . k and five for weights times
# values, as many of either.
PIECES = {"bfloat16": 1, "float16": 4.5, "float32": 6}


class Loop(NamedTuple):
    """What a target's products of a dtype are made of: its name, its ceiling's, how many of its products make one."""

    name: str
    ceiling: str
    pieces: float = 1


def loop_of_products(target: str, dtype: str) -> Loop:
    """Find the loop of a target's products of a dtype."""
    if target == "amx":
        pieces = PIECES[dtype]
        return Loop(AMX + (f" / {pieces:g}" if pieces > 1 else ""), AMX, pieces)
    name = PAIRS if target in PAIRS_OF and dtype == "bfloat16" else FMA
    return Loop(name, f"{name}, {target}")


class Moment(NamedTuple):
    """Which of many measurements: the name of a rate's and of a time's."""

    rate: str
    ms: str


USUAL, FASTEST = Moment("median", "median_ms"), Moment("max", "min_ms")


@dataclass(frozen=True)
class Rates:
    """What the machine gives: GFLOP/s, billions of exp per second, GB/s; as a rule, or at its fastest."""

    products: float
    exp: float
    reading: float

    @classmethod
    def of(
        cls, ceilings: Mapping[str, Any], target: str, dtype: str, size: int, moment: Moment = USUAL
    ) -> Rates | None:
        """Take a target's loops for a dtype, and the reading of the buffer whose size is nearest to so many bytes.

        Nearest as a ratio. None where the loops were not run.
        """
        buffers = {int(name.split()[1]) << 20: row for name, row in ceilings.items() if name.startswith("reading ")}
        loop = loop_of_products(target, dtype)
        # The target amx has avx512's vectors.
        names = loop.ceiling, f"exp, {'avx512' if target == 'amx' else target}"
        if not buffers or not all(name in ceilings for name in names):
            return None
        reading = buffers[min(buffers, key=lambda buffer: abs(math.log(buffer / max(size, 1))))]
        products, exp = (ceilings[name][moment.rate] for name in names)
        return cls(products / loop.pieces, exp, reading[moment.rate])

    @classmethod
    def for_outcome(cls, result: Mapping[str, Any], outcome: Mapping[str, Any], moment: Moment = USUAL) -> Rates | None:
        """Take those for a problem of a run; None where they or its work are not known. The loops have one thread.

        Where a loop read the problem's own keys and values, and was faster than that of the buffer, its rate counts.
        """
        asked = outcome["problem"]
        if "work" not in outcome or asked["threads"] > 1:
            return None
        target = asked["target"] or result["machine"]["target"]
        rates = cls.of(result.get("ceilings", {}), target, asked["dtype"], outcome["work"]["bytes"], moment)
        loop = outcome["contestants"].get(READ)
        if rates is None or loop is None:
            return rates
        others = 2 * math.prod(asked["query"]) * DTYPES[asked["dtype"]].itemsize  # query and output
        read = (outcome["work"]["bytes"] - others) / loop[moment.ms] / 1e6
        return replace(rates, reading=max(rates.reading, read))


@dataclass(frozen=True)
class Work:
    """Operations of both products and exps over the tiles that are visited; bytes of q, k, v and the output, once."""

    flops: int
    exps: int
    bytes: int

    @property
    def facts(self) -> dict[str, int]:
        """Give them by name."""
        return asdict(self)

    def at(self, rates: Rates) -> dict[str, float]:
        """Milliseconds of each kind of work at the ceilings."""
        amounts = (self.flops, rates.products), (self.exps, rates.exp), (self.bytes, rates.reading)
        return {way: amount / rate / 1e6 for way, (amount, rate) in zip(WAYS, amounts, strict=True)}

    def least_ms(self, rates: Rates) -> float:
        """Least time: products and exps share the same units, so their times add; reading may go on beside them."""
        at = self.at(rates)
        return max(at["products"] + at["exp"], at["reading"])

    def bound(self, rates: Rates) -> str:
        """Which of them the least time is made of most."""
        at = self.at(rates)
        if at["reading"] >= at["products"] + at["exp"]:
            return "reading"
        return max(("products", "exp"), key=at.__getitem__)


def work(problem: Problem, given: Given) -> Work:
    """Count the work of regard's calls, from the tiles that their plans visit."""
    counted = [_of_one(*step) for step in problem.steps(given)]
    return Work(*(sum(kind) for kind in zip(*map(astuple, counted), strict=True)))


def _of_one(problem: Problem, given: Given) -> Work:
    tiles = plan(*given, **problem.own()).tiles
    assert tiles is not None  # a plan that a user asks for has counted
    share = tiles.visited / max(1, tiles.visited + tiles.skipped)
    pairs = share * problem.query[0] * problem.query[1] * math.prod(problem.lengths)
    size = DTYPES[problem.dtype].itemsize
    moved = 2 * math.prod(problem.query) * size + problem.bytes_of_kv
    return Work(round(4 * pairs * problem.query[3]), round(pairs), moved)
