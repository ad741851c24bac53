"""Programs that show a broken law or a habit and need only NumPy: two values that should be equal."""

from __future__ import annotations

from textwrap import indent

from regard.check.candidate._candidate import Candidate
from regard.check.faults.lse import GROUP as LOGSUMEXPS

from ._replay import IMPORTS, as_meant, called, import_line, preamble

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
        "def peak():\n    try:  # Linux; what getrusage says there is the parent's, if that was larger\n"
        "        lines = open('/proc/self/status').read().splitlines()\n"
        "        return 1024 * int(next(x.split()[1] for x in lines if x.startswith('VmHWM')))\n    except OSError:\n"
        "        import resource\n        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n\n"
        "one = (slice(1),) * (q.ndim - 2)\nlead = q[one].shape[:-2]\n"
        "q, k, v = (np.resize(x[one], (*lead, 4096, 12)) for x in (q, k, v))\n"
        "before = peak()\nf(q, k, v)\nsize = peak() - before\n"
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
# Those that need options: the code, and what is passed besides, by role. ``keep`` is the mask, True = may attend.
_MASK = {"mask": "shown(keep)"}
_HIDE = "keep = np.ones((11, 37), bool)\nkeep[:, -3:] = False\n"
_STALE = (
    "{first}f(q, k, v)\nk, v = -k, v + 1\ns = np.float64(q) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])\ns = {s}\n"
    "e = np.exp(s - s.max(axis=-1, keepdims=True))\ngot, want = f(q, k, v), e / e.sum(axis=-1, keepdims=True) @ v"
)
_LSE = (
    "s = np.float64(q) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])\ntop = s.max(axis=-1, keepdims=True)\n"
    "want = np.log(np.exp(s - top).sum(axis=-1)) + top[..., 0]\ngot = f(q, k, v).reshape(want.shape)"
)
_WITH: dict[str, tuple[str, dict[str, str], float]] = {
    "MASK_MUTATED": (
        _HIDE + "given = shown(keep)\nshown = lambda keep: given\nwant = given.copy()\nf(q, k, v)\ngot = given",
        _MASK | {"causal": "True"},
        0.0,
    ),
    "INF_MASKED": (
        _HIDE + "want = f(q, k, v)\nk[..., -1, :] = v[..., -1, :] = np.inf\ngot = f(q, k, v)",
        _MASK,
        1e-4,
    ),
    "LAW_MASKED_KEYS_ARE_NOTHING": (
        _HIDE + "got = f(q, k, v)\nkeep = np.ones((11, 34), bool)\nwant = f(q, k[..., :-3, :], v[..., :-3, :])",
        _MASK,
        1e-4,
    ),
    "CAUSAL_FUTURE_NAN": (
        "k, v = k[..., :11, :].copy(), v[..., :11, :].copy()\nwant = f(q, k, v)[..., :-1, :]\n"
        "k[..., -1, :] = v[..., -1, :] = np.nan\ngot = f(q, k, v)[..., :-1, :]",
        {"causal": "True"},
        1e-4,
    ),
    "LAW_FUTURE_IS_HIDDEN": (
        "k, v = k[..., :11, :].copy(), v[..., :11, :].copy()\nwant = f(q, k, v)[..., :-2, :]\n"
        "k[..., -2:, :], v[..., -2:, :] = 3, -5\ngot = f(q, k, v)[..., :-2, :]",
        {"causal": "True"},
        0.0,
    ),
    "SEED_IGNORED": ("got, want = f(q, k, v), f(q, k, v)", {"dropout": "0.5", "seed": "11", "rng": ""}, 0.0),
    "DROPOUT_ACTIVE_IN_EVAL": ("got, want = f(q, k, v), f(q, k, v)", {}, 1e-3),
    **{fault.name: (_LSE, {}, 1e-4) for fault in LOGSUMEXPS.faults},
    "STALE_CACHE": (_STALE.format(first="", s="s"), {}, 1e-4),
    "STALE_CACHE, with a mask": (
        _STALE.format(first=_HIDE, s="np.where(keep, s, -inf)").replace("k, v = -k", "keep = keep[:, ::-1]\nk, v = -k"),
        _MASK,
        1e-4,
    ),
}
_END = """
shown = np.array_equal(got, want) if rtol == 0 else np.allclose(got, want, rtol, rtol)
print("expected", want)
print("yours   ", got)
sys.exit(0 if shown else f"FAULT {name}")
"""


def demonstration(name: str, does: str, candidate: Candidate) -> str:
    """Write the program; empty where the function cannot be imported, or options are needed that it has not."""
    plain = ((group, rtol) for group, rtol in ((_LAWS, 1e-4), (_NEARLY, 1e-4), (_EXACT, 0.0)) if name in group)
    group, rtol = next(plain, ({name: ""}, 0.0))
    masked = f"{name}, with a mask"
    known = masked if masked in _WITH and candidate.answers("mask") else name
    lines, options, rtol = _WITH.get(known, (group[name], {}, rtol))
    source = import_line(candidate.fn)
    if not lines or source is None or candidate.signature.is_layer:
        return ""
    sizes = {"b": "3, ", "h": "4, "}
    lead = "".join(sizes[axis] for axis in "bh" if axis in candidate.words.layout)
    turned = ".swapaxes(-2, -3)" if "sh" in candidate.words.layout else ""
    values = {name: f"{name[0]}{turned}" for name in ("query", "key", "value")}
    values |= {role: candidate.arrays.drawing if role == "rng" else text for role, text in options.items()}
    if candidate.words.always_causal:
        values.pop("causal", None)
    as_mask = f"\n\ndef shown(keep):\n    return {_mask(candidate)}\n" if "mask" in options else ""
    kind = candidate.dtype if candidate.dtype != "bfloat16" else "float32"
    return f'''"""{name}: {does}. Exit code 1 while it is so."""
{IMPORTS}
{source}{preamble(candidate)}

name, rtol = {name!r}, {rtol}
rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal(({lead}n, 12)).astype(np.{kind}) for n in (11, 37, 37))

{as_mask}

def f(q, k, v):
    return {called(candidate, values)}{turned}


try:
{indent(lines, "    ")}
except Exception as error:
    sys.exit(f"FAULT {{name}}: it raises {{error}}")
{_END.strip()}
'''


def _mask(candidate: Candidate) -> str:
    """Spell ``keep``, queries by keys, as the function takes it."""
    lead = {"bqk": "(3, *keep.shape)", "bk": "(3, keep.shape[1])", "qk": "keep.shape"}
    full = {4: "(1, 1, *keep.shape)", 3: "keep.shape", 2: "keep.shape"}[len(candidate.words.layout)]
    rows = "keep[:1]" if candidate.words.mask_shape == "bk" else "keep"
    shape = lead.get(candidate.words.mask_shape, full)
    return as_meant(candidate, f"np.broadcast_to({rows}, {shape}).copy()")
