"""Programs that show wrong gradients: the arrays, the right gradients spelled out, and the way back."""

from __future__ import annotations

import numpy as np

from regard.check.answers._oracle import RIGHT
from regard.check.answers._tolerance import Refused
from regard.check.candidate._candidate import Candidate
from regard.check.findings._replay import IMPORTS, array_lines, import_line, index, literal, passed, swap

from ._backward import Backward, ByLibrary, ByVjp
from ._example import GradientExample

_RIGHT = '''
def right(grad_out, query, key, value, keep, scale, softcap=None, bias=0.0):
    """Gradients of attention in float64, (batch, head, position, feature)."""
    do, q, k, v, b = (np.asarray(x, np.float64) for x in (grad_out, query, key, value, bias))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    s, slope = scale * (q @ k.swapaxes(-1, -2)), 1.0
    if softcap is not None:
        s, slope = softcap * np.tanh(s / softcap), 1 - np.tanh(s / softcap) ** 2
    s = np.where(keep, s + b, -np.inf)
    top = s.max(axis=-1, keepdims=True)
    e = np.exp(s - np.where(np.isinf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    p = e / np.where(total == 0, 1, total)
    dp = do @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    shared = tuple(i for i, n in enumerate(b.shape) if n == 1)
    dk, dv = scale * ((ds * slope).swapaxes(-1, -2) @ q), p.swapaxes(-1, -2) @ do
    dk, dv = (x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(axis=2) for x in (dk, dv))
    dq = scale * ((ds * slope) @ k)
    return {"query": dq, "key": dk, "value": dv, "bias": ds.sum(axis=shared, keepdims=True)}
'''
_COMPARE = """
with np.errstate(all="ignore"):
    try:
        got = {name: np.asarray(x, np.float64) for name, x in back().items() if name in expected}
    except Exception as error:
        sys.exit(f"FAULT {fault}: it refuses: {error}")
wrong = []
for name, want in expected.items():
    if name not in got:
        continue
    print(f"gradient of {name}, expected", want.tolist())
    print(f"gradient of {name}, yours   ", got[name].tolist())
    if got[name].shape != want.shape or not np.allclose(got[name], want, rtol, rtol):
        wrong.append(name)
sys.exit(f"FAULT {fault}: wrong for {', '.join(wrong)}" if wrong else None)
"""
_RELATIVE = {"float64": 1e-9, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
# From leaves and a call that takes them to gradients, by library.
_PULL = {
    "torch": """
    out = call(*[x.requires_grad_() for x in leaves])
    out.backward(give(grad))
    return [x.grad for x in leaves]""",
    "jax": """
    out, pull = jax.vjp(call, *leaves)
    return pull(give(grad).astype(out.dtype))""",
}


def gradient_script(name: str, does: str, candidate: Candidate, backward: Backward, example: GradientExample) -> str:
    """Write the program for an example."""
    case, kind = example.case, candidate.dtype
    scale = RIGHT.scale(case, *RIGHT.operands(case))
    more = "" if case.softcap is None else f", softcap={case.softcap}"
    more += "" if case.bias is None else ", bias=bias"
    parts = [
        f'"""{name}: {does}. Exit code 1 while the fault is there."""',
        IMPORTS,
        f"fault, rtol = {name!r}, {_tolerance(example, candidate)}",
        array_lines(case, kind).rstrip(),
        f"grad_out = {literal(example.grad_out, kind)}",
        "",
        _RIGHT.strip(),
        "",
        f"expected = right(grad_out, query, key, value, keep, {scale!r}{more})",
        "" if case.bias is not None else 'del expected["bias"]',
        _back(candidate, backward, example),
        _COMPARE.strip(),
    ]
    return "\n".join([*parts, ""])


def _tolerance(example: GradientExample, candidate: Candidate) -> float:
    """Fine enough for the example, as for outputs."""
    usual = _RELATIVE[candidate.dtype]
    if isinstance(example.got, Refused) or example.got.shape != example.expected.shape:
        return usual
    off = np.abs(np.where(np.isfinite(example.got), example.got - example.expected, 1)).max(initial=0)
    return float(f"{min(usual, off / 4):.1e}")


def _back(candidate: Candidate, backward: Backward, example: GradientExample) -> str:
    """Write the function that goes back; what it answered, where it cannot be imported or is called in parts."""
    source, case = import_line(candidate.fn), example.case
    looped = [n for axis, n in zip("bh", case.query.shape, strict=False) if axis not in candidate.words.layout]
    way = None
    if all(n == 1 for n in looped) and isinstance(backward, ByVjp | ByLibrary):
        where = (0,) * len(looped)
        if isinstance(backward, ByVjp):
            way = _by_vjp(backward, source, example, where)
        else:
            way = _by_library(backward, source, example, where)
    return way or _recorded(example)


def _by_vjp(backward: ByVjp, source: str | None, example: GradientExample, where: tuple[int, ...]) -> str | None:
    candidate = backward.candidate
    line = import_line(backward.vjp)
    if line is not None:
        line = line.removesuffix("attention") + "vjp"
    elif source is not None and getattr(candidate.fn, "vjp", None) is backward.vjp:
        line = f"{source}\n\nvjp = attention.vjp"
    else:
        return None
    positional, keywords = candidate.signature.place(passed(candidate, example.case, where))
    grad = f"grad_out{index(where)}{swap(candidate)}"
    text = ", ".join([grad, *map(str, positional), *(f"{name}={value}" for name, value in keywords.items())])
    return f"""{line}


def back():
    found = vjp({text})
    if isinstance(found, dict):  # by names such as query, q, dq, grad_q: the first letter tells
        letters = {{role[0]: role for role in {backward.order!r}}}
        found = {{letters[name.lower().removeprefix("grad").strip("d_")[0]]: x for name, x in found.items()}}
    else:
        found = dict(zip({backward.order!r}, found))
    return {_unturned(candidate, where)}


"""


def _by_library(
    backward: ByLibrary, source: str | None, example: GradientExample, where: tuple[int, ...]
) -> str | None:
    candidate = backward.candidate
    pull = _PULL.get(candidate.arrays.name)
    if source is None or pull is None:
        return None
    start, give, read = candidate.arrays.words(candidate.dtype)
    plain = candidate.arrays.words("float32")[1]
    spelled = passed(candidate, example.case, where)
    roles = [role for role in ("query", "key", "value", "bias") if role in spelled]
    values = spelled | {role: role for role in roles}
    if "mask" in values:
        values["mask"] = f"give({values['mask']})"
    positional, keywords = candidate.signature.place(values)
    text = ", ".join([*map(str, positional), *(f"{name}={value}" for name, value in keywords.items())])
    element = "" if candidate.words.element is None else f"[{candidate.words.element!r}]"
    leaves = ", ".join(f"give({spelled[role]})" for role in roles)
    return f"""{start}
{source}


def give(x):
    return {plain} if x.dtype == bool else {give}


def call({", ".join(roles)}):
    return attention({text}){element}


def pulled(leaves, grad):{pull}


def back():
    found = pulled([{leaves}], grad_out{index(where)}{swap(candidate)})
    found = dict(zip({tuple(roles)!r}, ({read} for x in found)))
    return {_unturned(candidate, where)}


"""


def _unturned(candidate: Candidate, where: tuple[int, ...]) -> str:
    """Gradients in the layout of ``expected``."""
    turned = f"(x if name == 'bias' else x{swap(candidate)})"
    return f"{{name: {turned}{'[None]' * len(where)} for name, x in found.items()}}"


def _recorded(example: GradientExample) -> str:
    said = "# The function cannot be imported by name: this is what it answered. Put your own call in its place."
    if isinstance(example.got, Refused):
        return f"{said}\n\n\ndef back():\n    raise ValueError({example.got.message!r})\n\n"
    return f'{said}\n\n\ndef back():\n    return {{"{example.of}": {literal(example.got, "float64")}}}\n\n'
