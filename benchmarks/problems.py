"""Reads problems.toml."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.covers import as_bias, as_mask
from benchmarks.goals import BEST, goals_of
from benchmarks.peers import PEERS
from regard._runtime import TARGETS
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
    check_peers(name, groups[entry["peers"]])
    check_numbers(name, entry)
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


def check_peers(name, peers):
    """Refuses contestants that there are none of: a race would find out in the middle of a run."""
    if unknown := [peer for peer in peers if peer not in PEERS]:
        raise ValueError(f"{name}: {', '.join(map(repr, unknown))} unknown; contestants are {', '.join(PEERS)}")


def is_count(value):
    return type(value) is int and value >= 1


def check_numbers(name, entry):
    """Refuses shapes, counts and goals that are none, and a target that is not known."""
    query, key = entry["query"], entry.get("key", entry["query"])
    for what, shape in (("query", query), ("key", key)):
        if not (isinstance(shape, list) and len(shape) == 4 and all(map(is_count, shape))):
            raise ValueError(f"{name}: {what} = {shape!r}; it is [batch, heads, length, head size], each 1 or more")
    if query[0] != key[0] or query[1] % key[1] or query[3] != key[3]:
        raise ValueError(f"{name}: query = {query} and key = {key}: batch, heads (or a multiple) and head size differ")
    for what in ("threads", "repeat"):
        if not is_count(entry.get(what, 1)):
            raise ValueError(f"{name}: {what} = {entry[what]!r}; it is 1 or more")
    if entry.get("target", TARGETS[0]) not in TARGETS:
        raise ValueError(f"{name}: target = {entry['target']!r}; it is one of {', '.join(TARGETS)}")
    for what in ("faster", "costs"):
        pairs = entry.get(what, {})
        if not (isinstance(pairs, dict) and all(map(is_aim, pairs.values()))):
            raise ValueError(f"{name}: {what} = {pairs!r}; it is a table of [must, goal] or goal, above 0, by peer")
        check_peers(name, [peer for peer in pairs if peer != BEST])
    if not is_positive(entry.get("microseconds", 1)):
        raise ValueError(f"{name}: microseconds = {entry['microseconds']!r}; it is above 0")


def is_aim(value):
    return is_positive(value) or (isinstance(value, list) and len(value) == 2 and all(map(is_positive, value)))


def is_positive(value):
    return type(value) in (int, float) and value > 0


def read(path=FILE):
    """The file as it is."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no TOML: {error}") from None


def load(pattern="", path=FILE):
    """The problems whose names hold the pattern (``*`` is anything), in their order."""
    whole = read(path)
    if missing := {"peers", "problem"} - whole.keys():
        raise ValueError(f"{path} has no {' and no '.join(sorted(missing))}")
    problems = [as_problem(entry, whole["peers"]) for entry in whole["problem"]]
    names = [problem.name for problem in problems]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two problems are named {', '.join(sorted(twice))}")
    chosen = [problem for problem in problems if fnmatchcase(problem.name, f"*{pattern}*")]
    if not chosen:
        raise ValueError(f"no problem's name holds {pattern!r}; the names are:\n" + "\n".join(names))
    return chosen
