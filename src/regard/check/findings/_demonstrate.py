"""Programs that show a broken law or a habit and need only NumPy: two values that should be equal."""

from __future__ import annotations

from textwrap import indent

from regard.check.candidate._candidate import Candidate

from ._replay import IMPORTS, called, import_line, preamble

# For each law and habit, code that sets got and want from f(q, k, v); axes are (..., position, feature).
_LAWS = {
    "LAW_ROWS_SUM_TO_ONE": "got, want = f(q, k, np.ones_like(v)), 1.0",
    "LAW_LINEAR_IN_VALUES": "w = v[..., ::-1, :].copy()\ngot, want = f(q, k, 2 * v + w), 2 * f(q, k, v) + f(q, k, w)",
    "LAW_SHIFT_OF_KEYS": "got, want = f(q, k + np.linspace(-1, 1, k.shape[-1], dtype=k.dtype), v), f(q, k, v)",
    "LAW_PERMUTE_KEYS": "got, want = f(q, k[..., ::-1, :].copy(), v[..., ::-1, :].copy()), f(q, k, v)",
    "LAW_PERMUTE_QUERIES": "got, want = f(q[..., ::-1, :].copy(), k, v), f(q, k, v)[..., ::-1, :]",
    "LAW_SCALING_CANCELS": "got, want = f(2 * q, k / 2, v), f(q, k, v)",
    "LAW_CONVEX": "got = f(q, k, v)\nwant = np.clip(got, v.min(axis=-2, keepdims=True), v.max(axis=-2, keepdims=True))",
}
_EXACT = {
    "LAW_BATCH_INDEPENDENT": "want = f(q, k, v)[:2]\nfor x in (q, k, v):\n    x[-1] *= -2\ngot = f(q, k, v)[:2]",
    "LAW_HEADS_INDEPENDENT": (
        "want = f(q, k, v)[..., :3, :, :]\nfor x in (q, k, v):\n    x[..., -1, :, :] *= -2\n"
        "got = f(q, k, v)[..., :3, :, :]"
    ),
    "INPUT_MUTATED": (
        "want = np.concatenate([x.ravel() for x in (q, k, v)])\nf(q, k, v)\n"
        "got = np.concatenate([x.ravel() for x in (q, k, v)])"
    ),
    "OUTPUT_ALIASES_INPUT": "out = f(q, k, v)\ngot, want = any(np.shares_memory(out, x) for x in (q, k, v)), False",
    "OUTPUT_BUFFER_REUSED": "got = f(q, k, v)\nwant = got.copy()\nf(q, k, -v)",
    "NONDETERMINISTIC": "got, want = f(q.copy(), k, v), f(q.copy(), k, v)",
    "VIEWS_REFUSED": "f(np.repeat(q, 2, axis=-1)[..., ::2], k, v)\ngot = want = f(q[..., ::-1], k, v)",
    "READ_ONLY_REFUSED": "for x in (q, k, v):\n    x.setflags(write=False)\ngot = want = f(q, k, v)",
    "OUT_DTYPE": "got, want = str(f(q, k, v).dtype), str(q.dtype)",
    "EMPTY_SHAPE_CRASH": (
        "got = np.stack([abs(f(q, k[..., :0, :], v[..., :0, :])).max(), f(q[..., :0, :], k, v).size])\nwant = [0, 0]"
    ),
    "INT_INPUT_TRUNCATED": (
        "whole = [np.round(3 * x).astype(int) for x in (q, k, v)]\ngot, want = f(*whole).dtype.kind in 'iu', False"
    ),
    "QUADRATIC_MEMORY": (
        "import resource\n\n"
        "one = (slice(1),) * (q.ndim - 2)\nlead = q[one].shape[:-2]\n"
        "q, k, v = (np.resize(x[one], (*lead, 4096, 12)) for x in (q, k, v))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nf(q, k, v)\n"
        "unit = 1 if sys.platform == 'darwin' else 1024\n"
        "size = unit * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
        'got, want = f"{size / 4096**2:.0f} bytes for each pair", "0 bytes for each pair"'
    ),
    "THREAD_DEPENDENT": (
        "q, k, v = (np.resize(x, (*x.shape[:-2], 150, 12)) for x in (q, k, v))\n"
        "torch.set_num_threads(1)\nwant = f(q, k, v)\ntorch.set_num_threads(2)\ngot = f(q, k, v)"
    ),
    "SILENT_BROADCAST": (
        "got, want = [], []\nfor count in (1, k.shape[-2] - 1):\n    try:\n        f(q, k, v[..., :count, :])\n"
        '        got = [f"{k.shape[-2]} keys with {count} values are answered"]\n    except Exception:\n        pass'
    ),
}
_NEARLY = {
    "STRIDES_IGNORED": (
        "wide, turned = np.repeat(q, 2, axis=-1)[..., ::2], q[..., ::-1].copy()[..., ::-1]\n"
        "got, want = np.stack([f(wide, k, v), f(turned, k, v)]), np.stack([f(q.copy(), k, v)] * 2)"
    ),
    "ONE_KEY_WRONG": "got, want = f(q[..., :1, :], k[..., :1, :], v[..., :1, :]), v[..., :1, :]",
    "DTYPE_DOWNCAST": (
        "q, k, v = (x.astype(np.float64) for x in (q, k, v))\ns = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])\n"
        "e = np.exp(s - s.max(axis=-1, keepdims=True))\n"
        "got, want, rtol = f(q, k, v), e / e.sum(axis=-1, keepdims=True) @ v, 1e-12"
    ),
}
_END = """
shown = np.array_equal(got, want) if rtol == 0 else np.allclose(got, want, rtol, rtol)
print("expected", want)
print("yours   ", got)
sys.exit(0 if shown else f"FAULT {name}")
"""


def demonstration(name: str, does: str, candidate: Candidate) -> str:
    """Write the program; empty where the function cannot be imported, or options are needed."""
    lines, rtol = next(
        ((group[name], rtol) for group, rtol in ((_LAWS, 1e-4), (_NEARLY, 1e-4), (_EXACT, 0.0)) if name in group),
        ("", 0.0),
    )
    source = import_line(candidate.fn)
    if not lines or source is None or candidate.signature.is_layer:
        return ""
    sizes = {"b": "3, ", "h": "4, "}
    lead = "".join(sizes[axis] for axis in "bh" if axis in candidate.words.layout)
    turned = ".swapaxes(-2, -3)" if "sh" in candidate.words.layout else ""
    values = {name: f"{name[0]}{turned}" for name in ("query", "key", "value")}
    kind = candidate.dtype if candidate.dtype != "bfloat16" else "float32"
    return f'''"""{name}: {does}. Exit code 1 while it is so."""
{IMPORTS}
{source}{preamble(candidate)}

name, rtol = {name!r}, {rtol}
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal(({lead}n, 12)).astype(np.{kind}) for n in (11, 37, 37))


def f(q, k, v):
    return {called(candidate, values)}{turned}


try:
{indent(lines, "    ")}
except Exception as error:
    sys.exit(f"FAULT {{name}}: it raises {{error}}")
{_END.strip()}
'''
