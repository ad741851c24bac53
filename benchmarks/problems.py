"""Reads problems.toml."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.covers import as_bias, as_mask
from benchmarks.goals import goals_of
from regard.bench import DTYPES, Problem

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

FILE = Path(__file__).with_name("problems.toml")
KEYS = {
    "name", "reason", "query", "key", "dtype", "mask", "bias", "threads", "target", "repeat", "by_token", "peers",
    "faster", "costs", "microseconds",
}  # fmt: skip


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
    options = {k: entry[k] for k in ("dtype", "threads", "target", "repeat", "by_token") if k in entry}
    if options.get("dtype", "float32") not in DTYPES:
        raise ValueError(f"{name}: dtype = {options['dtype']!r}; it is one of {', '.join(DTYPES)}")
    if options.get("by_token") and (entry.get("mask") != "causal" or query[2] != key[2]):
        raise ValueError(f"{name}: by_token is for mask = 'causal' and as many keys as queries")
    if (lengths := isinstance(entry.get("mask"), dict) and entry["mask"].get("lengths")) and len(lengths) != query[0]:
        raise ValueError(f"{name}: lengths = {lengths}; its batch has {query[0]} entries")
    return Problem(
        name, entry["reason"], query, key, mask=as_mask(entry.get("mask"), query[2], key[2]),
        bias=as_bias(entry.get("bias"), query[1]), peers=tuple(groups[entry["peers"]]), goals=goals_of(entry),
        **options,
    )  # fmt: skip


def read(path=FILE):
    """The file as it is."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def load(pattern="", path=FILE):
    """The problems whose names hold the pattern (``*`` is anything), in their order."""
    whole = read(path)
    problems = [as_problem(entry, whole["peers"]) for entry in whole["problem"]]
    names = [problem.name for problem in problems]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two problems are named {', '.join(sorted(twice))}")
    chosen = [problem for problem in problems if fnmatchcase(problem.name, f"*{pattern}*")]
    if not chosen:
        raise ValueError(f"no problem's name holds {pattern!r}; the names are:\n" + "\n".join(names))
    return chosen
