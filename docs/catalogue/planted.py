"""For each name a function that has it: those of the tests, and a few more; and their source, where it can be shown."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import regard as rg
from regard.check import Finding, Report, check_apart
from regard.check.answers._case import Case
from regard.check.answers._fault import planted
from regard.check.gradients import CATALOGUE as GRADIENTS
from regard.check.gradients._oracle import GradientOracle
from regard.check.report._names import Entry

TESTS = Path(__file__).parents[2] / "tests"
sys.path.append(str(TESTS))

import check_mutants  # noqa: E402
import test_check_laws  # noqa: E402
import test_check_mutants  # noqa: E402
from check_power import distance as distance  # noqa: E402
from check_right import softmax, textbook  # noqa: E402
from check_wrong import WRONG  # noqa: E402

# What nobody waits for must not depend on the machine's speed.
_NO_HURRY = 1e6


@dataclass(frozen=True)
class Planted:
    """A function, what is declared of it, and what of it is shown."""

    fn: Callable[..., Any]
    declared: dict[str, Any] = field(default_factory=dict)
    shown: Callable[..., Any] | None = None

    def report(self) -> Report:
        """Ask check."""
        return rg.check(self.fn, budget_s=_NO_HURRY, **self.declared)

    @property
    def source(self) -> str:
        """Spell what is shown, with the values that it takes from around it."""
        if self.shown is None:
            return ""
        text = textwrap.dedent(inspect.getsource(self.shown)).replace("def _", "def ")
        if self.shown.__name__ == "<lambda>":
            text = f"attention = {_lambda(text)}"
        lines = [line for line in text.splitlines() if not line.startswith("@")]
        around = inspect.getclosurevars(self.shown).nonlocals
        return "\n".join([*(f"{name} = {value!r}" for name, value in around.items()), *lines])


@dataclass(frozen=True)
class Hostile(Planted):
    """A function that ends its process: it is asked in another one."""

    def report(self) -> Report:
        """Ask check, in a process of its own."""
        return check_apart(f"{TESTS / 'check_hostile.py'}:{self.fn.__name__}", timeout_s=1).report


@dataclass(frozen=True)
class OfTorch(Planted):
    """A function on torch's tensors, which the build does not have: it is shown, and not asked about."""

    finding: Finding | None = None
    text: str = ""

    def report(self) -> Report:
        """Say what is known of it."""
        assert self.finding
        return Report("attention", (self.finding,), ())

    @property
    def source(self) -> str:
        """Give the text."""
        return self.text


def planted_for(entry: Entry) -> Planted:
    """Return a function that has what a name stands for."""
    if entry.name in _TORCH:
        said = Finding(entry.name, entry.level, "seen", entry.does, entry.why, entry.mend)
        return OfTorch(_unasked, finding=said, text=_TORCH[entry.name])
    if entry.name in _OWN:
        return _OWN[entry.name]()
    if entry.group == "gradients":
        fault = next(fault for fault in GRADIENTS if fault.name == entry.name)
        steps = next(iter(fault.variants.values()))
        return Planted(_right, {"vjp": _way_back(steps)})
    if entry.kind == "fault":
        declared = test_check_mutants.DECLARED.get(entry.name, {})
        return Planted(test_check_mutants.FIRST[entry.name][1], dict(declared))
    made = {f"LAW_{name}": fn for name, fn in test_check_laws.BREAKS.items()} | test_check_laws.SHOWS
    if entry.name in made:
        return Planted(made[entry.name], test_check_laws.DECLARED.get(entry.name, {}), made[entry.name])
    fn, declared = next((fn, declared) for fn, names, declared in WRONG if entry.name in names)
    return Planted(fn, declared, fn)


def _lambda(text: str) -> str:
    """Cut a lambda out of an entry of a dict."""
    tree = ast.parse("{" + text.strip() + "}")
    return next(ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Lambda))


def _right(query, key, value, mask=None, causal=False, scale=None, softcap=None, bias=None, window=None):
    """Without dropout, which the way back does not know."""
    return check_mutants.as_function()(query, key, value, mask, causal, scale, softcap, bias, window)


def _way_back(*steps: Any) -> Callable[..., Any]:
    """Gradients of the right function, with steps replaced."""
    oracle = planted(GradientOracle, *steps)

    def vjp(grad_out, query, key, value, mask=None, bias=None, **options):
        q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
        case = Case("call", q, k, v, mask=check_mutants._four(mask), bias=check_mutants._four(bias), **options)
        found = oracle(case, np.asarray(grad_out))
        return {name: x.astype(np.result_type(query, np.float32)) for name, x in found.items()}

    return vjp


right_vjp = _way_back()


# Shown on the pages as they are.


def _with_weights(q, k, v):
    return textbook(q, k, v), None


def _gates_the_output(q, k, v):
    return textbook(q, k, v) * np.tanh(q[..., :1])


def _cubes_values(q, k, v):
    return textbook(q, k, v**3)


def _slightly_large(q, k, v):
    return textbook(q, k, v) * np.float32(1.0001)


def _first_queries_only(q, k, v):
    out = textbook(q, k, v)
    out[..., 64:, :] = 0
    return out


def _returns_entropies(q, k, v):
    weights = softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
    return weights @ v, -(weights * np.log(weights)).sum(axis=-1)


def _not_yet_causal(q, k, v, causal=False):
    if causal:
        raise ValueError("causal comes later")
    return textbook(q, k, v)


def _no_way_back(grad_out, *arguments, **options):
    return {**right_vjp(grad_out, *arguments, **options), "query": None}


def _not_with_a_softcap(grad_out, *arguments, softcap=None, **options):
    if softcap is not None:
        raise ValueError("no gradient of the softcap yet")
    return right_vjp(grad_out, *arguments, **options)


def _zero_by_zero(grad_out, *arguments, mask=None, **options):
    found = right_vjp(grad_out, *arguments, mask=mask, **options)
    empty = 0 if mask is None else np.where(mask.any(-1), 0, np.nan).sum()
    return {name: x + empty for name, x in found.items()}


def _summed_by_chance(grad_out, *arguments, **options):
    found = right_vjp(grad_out, *arguments, **options)
    return {name: x * (1 + 1e-6 * np.random.default_rng().random(x.shape)) for name, x in found.items()}


def _in_half(grad_out, *arguments, **options):
    found = right_vjp(grad_out, *arguments, **options)
    return {name: x.astype(np.float16).astype(x.dtype) for name, x in found.items()}


def _clipped(grad_out, *arguments, **options):
    found = right_vjp(grad_out, *arguments, **options)
    return {name: np.clip(x, -0.2, 0.2) for name, x in found.items()}


def _drops(q, k, v, dropout=0.0, seed=0):
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    kept = np.random.default_rng(seed).random(weights.shape) >= dropout
    return (weights * kept / (1 - dropout)) @ v


def _drops_others(grad_out, q, k, v, dropout=0.0, seed=0):
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    kept = np.random.default_rng(seed + 1).random(weights.shape) >= dropout
    kept = kept / (1 - dropout)
    change = weights * kept * (grad_out @ v.swapaxes(-1, -2))
    change = (change - weights * change.sum(axis=-1, keepdims=True)) / q.shape[-1] ** 0.5
    return change @ k, change.swapaxes(-1, -2) @ q, (weights * kept).swapaxes(-1, -2) @ grad_out


def _back(vjp: Callable[..., Any]) -> Planted:
    return Planted(_right, {"vjp": vjp}, vjp)


def _hostile(name: str) -> Planted:
    import check_hostile

    fn = getattr(check_hostile, name)
    return Hostile(fn, {}, fn)


def _unasked(q, k, v):
    raise NotImplementedError


# Asked about by tests/heavy/test_docs_heavy.py.
_TORCH = {
    "THREAD_DEPENDENT": """
def one_part_per_thread(q, k, v):
    weights = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1)
    parts = torch.get_num_threads()
    return sum(weights[..., i::parts] @ v[..., i::parts, :] for i in range(parts))
""".strip()
}
_MISSING = {"expected": {"CAUSAL_TOP_LEFT": "as in torch"}, "strict": True}
_OWN: dict[str, Callable[[], Planted]] = {
    "LSE_WRONG": partial(Planted, _returns_entropies, {}, _returns_entropies),
    "RETURNS_TUPLE": partial(Planted, _with_weights, {}, _with_weights),
    "WEIGHTS_DO_NOT_SUM_TO_ONE": partial(Planted, _gates_the_output, {}, _gates_the_output),
    "UNKNOWN": partial(Planted, _cubes_values, {}, _cubes_values),
    "IMPRECISE": partial(Planted, _slightly_large, {}, _slightly_large),
    "WRONG_AT_SOME_SIZE": partial(Planted, _first_queries_only, {}, _first_queries_only),
    "REFUSES": partial(Planted, _not_yet_causal, {}, _not_yet_causal),
    "EXPECTED_NOT_FOUND": partial(Planted, textbook, _MISSING, textbook),
    "CRASHES": partial(_hostile, "crashes"),
    "HANGS": partial(_hostile, "hangs"),
    "EXITS": partial(_hostile, "leaves"),
    "GRAD_GRAPH_CUT": partial(_back, _no_way_back),
    "GRAD_REFUSES": partial(_back, _not_with_a_softcap),
    "GRAD_NAN_EMPTY_ROW": partial(_back, _zero_by_zero),
    "GRAD_NONDETERMINISTIC": partial(_back, _summed_by_chance),
    "GRAD_IMPRECISE": partial(_back, _in_half),
    "GRAD_UNKNOWN": partial(_back, _clipped),
    "DROPOUT_BWD_MASK_DIFFERS": partial(Planted, _drops, {"vjp": _drops_others}, _drops_others),
}
