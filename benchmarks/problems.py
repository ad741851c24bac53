"""Reads problems.toml, draws the arrays of a problem, and knows its exact answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import regard as rg
from benchmarks.covers import as_bias, as_mask
from benchmarks.goals import goals_of

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

FILE = Path(__file__).with_name("problems.toml")
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
KEYS = {
    "name", "reason", "query", "key", "dtype", "mask", "bias", "threads", "target", "repeat", "peers", "faster",
    "costs", "microseconds",
}  # fmt: skip


class Given(NamedTuple):
    """What every contestant of a problem is given."""

    q: Any
    k: Any
    v: Any


@dataclass(frozen=True)
class Problem:
    """One entry of problems.toml.

    Shapes are (batch, heads, length, head size). `repeat` calls are timed as one, where one alone is too short for the
    clock. `target` is an instruction set that regard is held to.
    """

    name: str
    reason: str
    query: tuple[int, ...]
    key: tuple[int, ...]
    dtype: str = "float32"
    mask: Any = None
    bias: Any = None
    threads: int = 1
    target: str | None = None
    repeat: int = 1
    peers: tuple[str, ...] = ()
    goals: tuple[Any, ...] = ()

    @property
    def group(self):
        """Query heads per kv head."""
        return self.query[1] // self.key[1]

    @property
    def lengths(self):
        return self.query[2], self.key[2]

    @cached_property
    def flops(self):
        """Of both products, over the pairs that the mask keeps."""
        queries, keys = self.lengths
        pairs = queries * keys if self.mask is None else int(self.mask.dense(queries, keys).sum())
        return 4 * self.query[0] * self.query[1] * pairs * self.query[3]

    @property
    def bytes_of_kv(self):
        return 2 * math.prod(self.key) * np.dtype(DTYPES[self.dtype]).itemsize

    def draw(self, seed=0):
        """Random normal numbers. Zeros would be faster than any user's: clocks depend on the bits that change."""
        rng = np.random.default_rng(seed)
        shapes = self.query, self.key, self.key
        return Given(*(rng.standard_normal(shape, dtype=np.float32).astype(DTYPES[self.dtype]) for shape in shapes))

    def exact(self, given):
        """The answer in float64, some rows at a time so that the scores fit."""
        queries, keys = self.lengths
        mask = None if self.mask is None else self.mask.dense(queries, keys)
        bias = None if self.bias is None else self.bias.dense(queries, keys)
        step = max(1, 2**24 // (self.query[0] * self.query[1] * keys))
        parts = []
        for start in range(0, queries, step):
            rows = slice(start, start + step)
            parts.append(
                rg.reference.attention(
                    given.q[:, :, rows], given.k, given.v, mask=None if mask is None else mask[rows],
                    bias=None if bias is None else bias[None, :, rows],
                )
            )  # fmt: skip
        return np.concatenate(parts, axis=2)


def as_problem(entry, groups):
    """A Problem of an entry of problems.toml; refuses what it does not know."""
    name = entry.get("name", "a problem without a name")
    if unknown := entry.keys() - KEYS:
        raise ValueError(f"{name}: {', '.join(sorted(unknown))} unknown; an entry has {', '.join(sorted(KEYS))}")
    if missing := {"name", "reason", "query", "peers"} - entry.keys():
        raise ValueError(f"{name} has no {', '.join(sorted(missing))}")
    if entry["peers"] not in groups:
        raise ValueError(f"{name}: peers = {entry['peers']!r}; the groups of [peers] are {', '.join(groups)}")
    query = tuple(entry["query"])
    key = tuple(entry.get("key", query))
    options = {k: entry[k] for k in ("dtype", "threads", "target", "repeat") if k in entry}
    if options.get("dtype", "float32") not in DTYPES:
        raise ValueError(f"{name}: dtype = {options['dtype']!r}; it is one of {', '.join(DTYPES)}")
    return Problem(
        name, entry["reason"], query, key, mask=as_mask(entry.get("mask"), query[2], key[2]),
        bias=as_bias(entry.get("bias"), query[1]), peers=tuple(groups[entry["peers"]]), goals=goals_of(entry),
        **options,
    )  # fmt: skip


def load(pattern="", path=FILE):
    """The problems whose names hold the pattern (``*`` is anything), in their order."""
    whole = tomllib.loads(path.read_text(encoding="utf-8"))
    problems = [as_problem(entry, whole["peers"]) for entry in whole["problem"]]
    names = [problem.name for problem in problems]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two problems are named {', '.join(sorted(twice))}")
    chosen = [problem for problem in problems if fnmatchcase(problem.name, f"*{pattern}*")]
    if not chosen:
        raise ValueError(f"no problem's name holds {pattern!r}; the names are:\n" + "\n".join(names))
    return chosen
