"""Programs that show a fault and need only NumPy: the arrays, the right answer spelled out, and the call."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._oracle import RIGHT
from regard.check.answers._tolerance import Refused
from regard.check.candidate._candidate import Candidate

from ._finding import Example, is_identity

WEIGHTS = '''
def weights(query, key, keep, scale, softcap=None, bias=0.0):
    """Weights of attention in float64, (batch, head, query, key)."""
    q, k = np.asarray(query, np.float64), np.asarray(key, np.float64)
    scores = scale * (q @ np.repeat(k, q.shape[1] // k.shape[1], axis=1).swapaxes(-1, -2))
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    scores = np.where(keep, scores + bias, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)
'''
_RIGHT = f'''
{WEIGHTS.strip()}


def right(query, key, value, keep, scale, softcap=None, bias=0.0):
    """Attention in float64, (batch, head, position, feature)."""
    p, v = weights(query, key, keep, scale, softcap, bias), np.asarray(value, np.float64)
    return p @ np.repeat(np.where(np.isfinite(v), v, 0), p.shape[1] // v.shape[1], axis=1)
'''
_LAYER = '''
def layer(x, wq, wk, wv, wo, heads, keep):
    """A multi-head layer: project, split, attend, merge, project."""
    def split(y):
        return y.reshape(*y.shape[:2], heads, -1).swapaxes(1, 2)

    x, wq, wk, wv, wo = (np.asarray(a, np.float64) for a in (x, wq, wk, wv, wo))
    q, k, v = split(x @ wq), split(x @ wk), split(x @ wv)
    out = right(q, k, v, keep, q.shape[-1] ** -0.5)
    return out.swapaxes(1, 2).reshape(*x.shape[:2], -1) @ wo
'''
_COMPARE = """
with np.errstate(all="ignore"):
    try:
        got = np.asarray(call(), np.float64)
    except Exception as error:
        got = np.full(expected.shape, np.nan)
        print("it refuses:", error)
print("expected", expected.tolist())
print("yours   ", got.tolist())
if got.shape != expected.shape:
    sys.exit(f"FAULT {name}: shape {got.shape} in place of {expected.shape}")
if not np.allclose(got, expected, rtol, rtol, equal_nan=True):
    sys.exit(f"FAULT {name}: off by {np.abs(got - expected).max():.6g}")
print(f"no sign of {name}: mended")
"""
_RELATIVE = {"float64": 1e-9, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
IMPORTS = "import sys\n\nimport numpy as np\n\nnan, inf = np.nan, np.inf"


def script(name: str, does: str, candidate: Candidate, example: Example) -> str:
    """Write the program for an example."""
    case = example.case
    parts = [
        f'"""{name}: {does}. Exit code 1 while the fault is there."""',
        IMPORTS,
        f"name, rtol = {name!r}, {tolerance(example, candidate)}",
    ]
    if case.dropout is not None:
        parts += [_dropout(candidate, case, example)]
    elif case.layer:
        parts += [
            layer_lines(case, candidate.dtype),
            _RIGHT.strip(),
            "",
            _LAYER.strip(),
            "",
            f"expected = layer(x, wq, wk, wv, wo, {case.layer.heads}, keep)",
        ]
        parts += [_call(candidate, case, (), example)]
    else:
        where = _worst(candidate, example)
        parts += [array_lines(case, candidate.dtype), _RIGHT.strip(), "", _expected(case, where, candidate)]
        parts += [_call(candidate, case, where, example)]
    return "\n".join([*parts, _COMPARE.strip(), ""])


def tolerance(example: Example, candidate: Candidate) -> float:
    """Fine enough for the example: a fault that is smaller than the dtype's usual tolerance is shown all the same."""
    usual = _RELATIVE[candidate.dtype]
    if isinstance(example.got, Refused) or example.got.shape != example.expected.shape:
        return usual
    if example.case.dropout is not None:
        return 0.03
    off = np.abs(np.where(np.isfinite(example.got), example.got - example.expected, 1)).max(initial=0)
    return float(f"{min(usual, off / 4):.1e}")


def array_lines(case: Case, dtype: str) -> str:
    lines = [f"{name} = {literal(getattr(case, name), dtype)}" for name in ("query", "key", "value")]
    if case.mask is not None:
        lines.append(f"mask = {literal(case.mask, 'bool')}  # True: may attend")
    if case.bias is not None:
        lines.append(f"bias = {literal(case.bias, dtype)}")
    if case.alibi is not None:
        queries, keys = case.query.shape[2], case.key.shape[2]
        first = 0 if case.from_start else keys - queries
        lines.append(f"slopes = {literal(case.alibi, 'float32')}")
        lines.append(f"distance = np.arange({keys}) - np.arange({queries})[:, None] - {first}")
        lines.append("bias = -slopes[:, None, None] * abs(distance)")
    return "\n".join([*lines, _keep(case, case.query.shape[2], case.key.shape[2])]) + "\n\n"


def _keep(case: Case, queries: int, keys: int) -> str:
    keep = RIGHT.visible(case, queries, keys)
    return "keep = True" if keep.all() else f"keep = {literal(keep, 'bool')}"


def layer_lines(case: Case, dtype: str) -> str:
    assert case.layer
    named = {
        "x": case.query,
        "wq": case.layer.query,
        "wk": case.layer.key,
        "wv": case.layer.value,
        "wo": case.layer.out,
    }
    lines = [f"{name} = {literal(x, dtype)}" for name, x in named.items()]
    if case.mask is not None:
        lines.append(f"mask = {literal(case.mask, 'bool')}  # True: may attend")
    positions = case.query.shape[1]
    return "\n".join([*lines, _keep(case, positions, positions)]) + "\n\n"


def literal(x: Array, dtype: str) -> str:
    """Spell an array as Python."""
    kind = dtype if dtype in ("bool", "float32", "float64", "float16") else "float32"
    x = np.asarray(x, kind)
    if is_identity(x):
        return f"np.eye({len(x)}, dtype=np.{kind})"
    if kind != "bool" and x.size and np.isfinite(x).all() and np.ptp(x) == 0:
        return f"np.full({x.shape}, {x.flat[0]!s}, np.{kind})"
    shape = "" if x.size else f".reshape{x.shape}"
    return f"np.array({_nested(x)}, {'bool' if kind == 'bool' else f'np.{kind}'}){shape}"


def _nested(x: Array) -> str:
    """Nested lists with the shortest decimals that give the same numbers back in their dtype."""
    return str(x[()]) if x.ndim == 0 else f"[{', '.join(_nested(part) for part in x)}]"


def _worst(candidate: Candidate, example: Example) -> tuple[int, ...]:
    """Find the call that shows it best, of a function that is called once per batch entry or head."""
    axes = [axis for axis, name in enumerate("bh") if name not in candidate.words.layout]
    got = example.got
    if not axes or isinstance(got, Refused) or got.shape != example.expected.shape:
        return (0,) * len(axes)
    off = np.abs(np.where(np.isfinite(got), got - example.expected, 1e9))
    best = np.unravel_index(off.argmax(), off.shape)
    return tuple(int(best[axis]) for axis in axes)


def _expected(case: Case, where: tuple[int, ...], candidate: Candidate) -> str:
    scale = RIGHT.scale(case, *RIGHT.operands(case))
    more = "" if case.softcap is None else f", softcap={case.softcap}"
    more += "" if case.bias is None and case.alibi is None else ", bias=bias"
    return f"expected = right(query, key, value, keep, {scale!r}{more}){index(where)}{swap(candidate)}"


def index(where: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, where))}]" if where else ""


def swap(candidate: Candidate) -> str:
    return ".swapaxes(-2, -3)" if "sh" in candidate.words.layout else ""


def _call(candidate: Candidate, case: Case, where: tuple[int, ...], example: Example) -> str:
    """Write the function, and the call in its own words."""
    source = import_line(candidate.fn)
    if source is None:
        return _recorded(candidate, case, where, example)
    named = layer_words(candidate, case) if case.layer else passed(candidate, case, where)
    turned = ".swapaxes(0, 1)" if candidate.words.layout == "sbe" else ""
    return f"{source}{preamble(candidate)}\n\n\ndef call():\n    return {called(candidate, named)}{turned}\n\n"


def preamble(candidate: Candidate) -> str:
    """Say how arrays are given to the function's library and read from it; nothing of NumPy."""
    imports, give, read = candidate.arrays.words(candidate.dtype)
    if not imports:
        return ""
    return f"\n{imports}\n\n\ndef give(x):\n    return {give}\n\n\ndef read(x):\n    return {read}\n"


# Roles whose values are arrays.
_ARRAYS = {"query", "key", "value", "mask", "bias", "slopes", "x", "wq", "wk", "wv", "wo"}


def called(candidate: Candidate, named: dict[str, str]) -> str:
    """Write the call of ``attention`` with values by role, and the reading of its result."""
    own = bool(candidate.arrays.words(candidate.dtype)[0])
    values = {role: f"give({value})" if own and role in _ARRAYS else value for role, value in named.items()}
    positional, keywords = candidate.signature.place(values)
    text = ", ".join([*map(str, positional), *(f"{name}={value}" for name, value in keywords.items())])
    element = "" if candidate.words.element is None else f"[{candidate.words.element!r}]"
    return f"read(attention({text}){element})" if own else f"attention({text}){element}"


# From a mask of four axes to those that the function takes.
_CUT = {"qk": "[0, 0]", "bqk": "[:, 0]", "bk": "[:, 0, 0]"}


def layer_words(candidate: Candidate, case: Case) -> dict[str, str]:
    assert case.layer
    values = {role: role for role in ("x", "wq", "wk", "wv", "wo")} | {"heads": str(case.layer.heads)}
    if candidate.words.layout == "sbe":
        values["x"] = "x.swapaxes(0, 1)"
    if case.causal and not candidate.words.always_causal:
        values["causal"] = "True"
    if case.mask is not None:
        values["mask"] = as_meant(candidate, "mask" + _CUT.get(candidate.words.mask_shape, ""))
    return values


def as_meant(candidate: Candidate, keep: str) -> str:
    """Spell a mask of what is kept with the meaning that the function has."""
    kind = candidate.dtype if candidate.dtype != "bfloat16" else "float32"
    forms = {"keep": keep, "drop": f"~{keep}", "additive": f"np.where({keep}, 0, -inf).astype(np.{kind})"}
    return forms[candidate.words.mask]


def passed(candidate: Candidate, case: Case, where: tuple[int, ...]) -> dict[str, str]:
    """Spell what is passed, as expressions of the arrays above."""
    operands = {name: f"{name}{index(where)}{swap(candidate)}" for name in ("query", "key", "value")}
    values = {**operands, **{name: repr(value) for name, value in case.options.items()}}
    if candidate.words.always_causal:
        values.pop("causal", None)
    if case.mask is not None:
        keep = f"mask{index(_fitting(case.mask, where))}"
        keep += "" if where else _CUT.get(candidate.words.mask_shape, "")
        values["mask"] = as_meant(candidate, keep)
    if case.bias is not None:
        values["bias"] = f"bias{index(_fitting(case.bias, where))}"
    if case.alibi is not None:
        values["alibi"] = "slopes"
    if case.window is not None and candidate.words.window == "left-inclusive":
        values["window"] = repr(case.window - 1)
    if case.query.shape[1] != case.key.shape[1]:
        values["enable_gqa"] = "True"
    return values


def _fitting(x: Array, where: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(at if size > 1 else 0 for at, size in zip(where, x.shape, strict=False))


def _recorded(candidate: Candidate, case: Case, where: tuple[int, ...], example: Example) -> str:
    got = example.got
    said = "# The function cannot be imported by name: this is what it answered. Put your own call in its place."
    if isinstance(got, Refused):
        return f"{said}\n\n\ndef call():\n    raise ValueError({got.message!r})\n\n"
    shown = got[where] if where else got
    shown = np.swapaxes(shown, -2, -3) if swap(candidate) and shown.ndim > 2 else shown
    return f"{said}\n\n\ndef call():\n    return {literal(shown, 'float64')}\n\n"


def _dropout(candidate: Candidate, case: Case, example: Example) -> str:
    """Statistics of many draws; the recorded ones where the function cannot be imported."""
    source = import_line(candidate.fn)
    expected = "# share of zeros, of 1/(1 - p), mean and spread of row sums, equal zeros of heads, of batch entries\n"
    expected += f"expected = {literal(example.expected, 'float64')}"
    if source is None:
        return f"{expected}\n{_recorded(candidate, case, (), example)}"
    where = (0,) * sum(name not in candidate.words.layout for name in "bh")
    values = {name: f"{name}{index(where)}{swap(candidate)}" for name in ("query", "key", "value")}
    values |= {"dropout": repr(case.dropout), "rng": candidate.arrays.drawing, "seed": "11"}
    kind = f"np.{candidate.dtype}" if candidate.dtype != "bfloat16" else "np.float32"
    shape, keys = case.query.shape, case.key.shape[2]
    value = "np.eye" if case.name == "dropout" else "np.ones"
    size = keys if case.name == "dropout" else (keys, case.value.shape[3])
    return f"""{expected}
{source}{preamble(candidate)}
rng = np.random.default_rng(0)
few = (rng.standard_normal((2, {shape[1]}, n, {shape[3]})) for n in ({shape[2]}, {keys}))
query, key = (np.tile(x, ({shape[0] // 2}, 1, 1, 1)).astype({kind}) for x in few)
value = np.tile({value}({size}), ({shape[0]}, {shape[1]}, 1, 1)).astype({kind})


def call():
    out = {called(candidate, values)}
    top = {1 / (1 - (case.dropout or 0))!r}
    sums = out.sum(axis=-1) / value[0, 0, 0].sum()
    found = [np.mean(out == 0), np.mean(abs(out - top) < 0.02), sums.mean(), sums.std(), 1, 1]
    if out.ndim == 4:
        found[4:] = [np.mean((a == 0) == (b == 0)) for a, b in ((out[:, :1], out[:, -1:]), (out[:-2], out[2:]))]
    return np.array(found)

"""


def import_line(fn: Callable[..., Any]) -> str | None:
    """How to import a function, if it can be; as ``attention``."""
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", "")
    found = sys.modules.get(module or "")
    if module in (None, "__main__", "builtins") or not name.isidentifier() or getattr(found, name, None) is not fn:
        return None
    return f"from {module} import {name} as attention"
