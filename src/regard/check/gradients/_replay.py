"""Programs that show wrong gradients: the arrays, the right gradients spelled out, and the way back."""

from __future__ import annotations

from regard.check.answers._oracle import RIGHT
from regard.check.answers._tolerance import Refused
from regard.check.candidate._candidate import Candidate
from regard.check.findings._replay import (
    IMPORTS,
    WEIGHTS,
    array_lines,
    import_line,
    index,
    layer_lines,
    layer_words,
    literal,
    passed,
    swap,
    tolerance,
)

from ._backward import Backward, ByLibrary, ByVjp
from ._example import GradientExample

_RIGHT = f'''
{WEIGHTS.strip()}


def right(grad_out, query, key, value, keep, scale, softcap=None, bias=0.0):
    """Gradients of attention in float64, (batch, head, position, feature)."""
    do, q, k, v, b = (np.asarray(x, np.float64) for x in (grad_out, query, key, value, bias))
    group = q.shape[1] // k.shape[1]
    p = weights(q, k, keep, scale, softcap, b)
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    dp = do @ v.swapaxes(-1, -2)
    added = ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    if softcap is not None:
        ds = ds * (1 - np.tanh(scale * (q @ k.swapaxes(-1, -2)) / softcap) ** 2)
    shared = tuple(i for i, n in enumerate(b.shape) if n == 1)
    dk, dv = scale * (ds.swapaxes(-1, -2) @ q), p.swapaxes(-1, -2) @ do
    dk, dv = (x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(axis=2) for x in (dk, dv))
    return {{"query": scale * (ds @ k), "key": dk, "value": dv, "bias": added.sum(axis=shared, keepdims=True)}}
'''
_LAYER = '''
def layer(grad_out, x, wq, wk, wv, wo, heads, keep):
    """Gradients of a multi-head layer: through the last matrix, the heads, and the first three."""
    def split(y):
        return y.reshape(*y.shape[:2], heads, -1).swapaxes(1, 2)

    def merge(y):
        return y.swapaxes(1, 2).reshape(*x.shape[:2], -1)

    do, x, wq, wk, wv, wo = (np.asarray(a, np.float64) for a in (grad_out, x, wq, wk, wv, wo))
    q, k, v = split(x @ wq), split(x @ wk), split(x @ wv)
    scale = q.shape[-1] ** -0.5
    out = merge(weights(q, k, keep, scale) @ v)
    back = right(split(do @ wo.T), q, k, v, keep, scale)
    dq, dk, dv = (merge(back[name]) for name in ("query", "key", "value"))
    pairs = {"wq": (x, dq), "wk": (x, dk), "wv": (x, dv), "wo": (out, do)}
    found = {name: np.einsum("bsi,bso->io", *pair) for name, pair in pairs.items()}
    return {"x": dq @ wq.T + dk @ wk.T + dv @ wv.T, **found}
'''
_COMPARE = """
with np.errstate(all="ignore"):
    try:
        got = {name: np.asarray(x, np.float64) for name, x in back().items() if name in expected}
    except Exception as error:
        sys.exit(f"FAULT {fault}: it refuses: {error}")
wrong = []
for name, want in expected.items():
    print(f"gradient of {name}, expected", want.tolist())
    print(f"gradient of {name}, yours   ", got[name].tolist() if name in got else "is not returned")
    if name not in got or got[name].shape != want.shape or not np.allclose(got[name], want, rtol, rtol):
        wrong.append(name)
sys.exit(f"FAULT {fault}: wrong for {', '.join(wrong)}" if wrong else None)
"""
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
    parts = [
        f'"""{name}: {does}. Exit code 1 while the fault is there."""',
        IMPORTS,
        f"fault, rtol = {name!r}, {tolerance(example, candidate)}",
        *(_of_layer if example.case.layer else _of_attention)(candidate, example),
        f"expected = {{name: expected[name] for name in {tuple(example.right)!r}}}",
        _back(candidate, backward, example),
        _COMPARE.strip(),
    ]
    return "\n".join([*parts, ""])


def _of_attention(candidate: Candidate, example: GradientExample) -> list[str]:
    case, kind = example.case, candidate.dtype
    more = "" if case.softcap is None else f", softcap={case.softcap}"
    more += "" if case.bias is None else ", bias=bias"
    return [
        array_lines(case, kind).rstrip(),
        f"grad_out = {literal(example.grad_out, kind)}\n",
        _RIGHT.strip(),
        f"\nexpected = right(grad_out, query, key, value, keep, {RIGHT.scale(case, *RIGHT.operands(case))!r}{more})",
    ]


def _of_layer(candidate: Candidate, example: GradientExample) -> list[str]:
    case, kind = example.case, candidate.dtype
    assert case.layer
    return [
        layer_lines(case, kind).rstrip(),
        f"grad_out = {literal(example.grad_out, kind)}\n",
        f"{_RIGHT.strip()}\n\n",
        _LAYER.strip(),
        f"\nexpected = layer(grad_out, x, wq, wk, wv, wo, {case.layer.heads}, keep)",
    ]


def _back(candidate: Candidate, backward: Backward, example: GradientExample) -> str:
    """Write the function that goes back; what it answered, where it cannot be imported or is called in parts."""
    source, case = import_line(candidate.fn), example.case
    looped = [n for axis, n in zip("bh", case.query.shape, strict=False) if axis not in candidate.words.layout]
    looped = [] if case.layer else looped
    way = None
    if all(n == 1 for n in looped) and isinstance(backward, ByVjp | ByLibrary):
        where = (0,) * len(looped)
        if isinstance(backward, ByVjp):
            way = _by_vjp(backward, source, example, where)
        else:
            way = _by_library(backward, source, example, where)
    return way or _recorded(example)


def _words(candidate: Candidate, example: GradientExample, where: tuple[int, ...]) -> tuple[dict[str, str], str]:
    """Spell what the function is called with, by role, and the gradient of its output, as it takes them."""
    if example.case.layer:
        turned = ".swapaxes(0, 1)" if candidate.words.layout == "sbe" else ""
        return layer_words(candidate, example.case), f"grad_out{turned}"
    return passed(candidate, example.case, where), f"grad_out{index(where)}{swap(candidate)}"


def _by_vjp(backward: ByVjp, source: str | None, example: GradientExample, where: tuple[int, ...]) -> str | None:
    candidate = backward.candidate
    line = import_line(backward.vjp)
    if line is not None:
        line = line.removesuffix("attention") + "vjp"
    elif source is not None and getattr(candidate.fn, "vjp", None) is backward.vjp:
        line = f"{source}\n\nvjp = attention.vjp"
    else:
        return None
    words, grad = _words(candidate, example, where)
    positional, keywords = candidate.signature.place(words)
    text = ", ".join([grad, *map(str, positional), *(f"{name}={value}" for name, value in keywords.items())])
    return f"""{line}


def back():
    found = vjp({text})
    {_by_role(backward)}
    return {_unturned(candidate, where)}


"""


def _by_role(backward: ByVjp) -> str:
    """Write which gradient belongs to what, as it was seen."""
    if not backward.names:
        return f"found = dict(zip({backward.order!r}, found))"
    return f"roles = {backward.names!r}\n    found = {{roles[name]: x for name, x in found.items() if name in roles}}"


def _by_library(
    backward: ByLibrary, source: str | None, example: GradientExample, where: tuple[int, ...]
) -> str | None:
    candidate = backward.candidate
    pull = _PULL.get(candidate.arrays.name)
    if source is None or pull is None:
        return None
    start, give, read = candidate.arrays.words(candidate.dtype)
    plain = candidate.arrays.words("float32")[1]
    spelled, grad = _words(candidate, example, where)
    known = {*candidate.signature.positional, *candidate.signature.named}
    roles = [role for role in backward.roles if role in spelled and role in known]
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
    found = pulled([{leaves}], {grad})
    found = dict(zip({tuple(roles)!r}, ({read} for x in found)))
    return {_unturned(candidate, where)}


"""


def _unturned(candidate: Candidate, where: tuple[int, ...]) -> str:
    """Gradients in the layout of ``expected``, without those that are not compared."""
    turned = f"(x if name == 'bias' else x{swap(candidate)})" if swap(candidate) else "x"
    if candidate.words.layout == "sbe":
        turned = "(x.swapaxes(0, 1) if name == 'x' else x)"
    return f"{{name: {turned}{'[None]' * len(where)} for name, x in found.items() if name in expected}}"


def _recorded(example: GradientExample) -> str:
    said = "# The function cannot be imported by name: this is what it answered. Put your own call in its place."
    if isinstance(example.answer, Refused):
        return f"{said}\n\n\ndef back():\n    raise ValueError({example.answer.message!r})\n\n"
    gave = {name: x for name, x in example.answer.items() if name in example.right}
    lines = ", ".join(f'"{name}": {literal(x, "float64")}' for name, x in gave.items())
    return f"{said}\n\n\ndef back():\n    return {{{lines}}}\n\n"
