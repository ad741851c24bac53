"""Judges of gradients that know no formula of them: differences, and laws. test_reference_gradients has them say no."""

import numpy as np

import regard as rg

# Error of a difference: h^2 of the third derivative, and 1e-16 / h of rounding.
STEP = 1e-5


def loss(grad_out, operands, options):
    """Sum of output · grad_out."""
    return float((rg.reference.attention(*operands, **options) * grad_out).sum())


def assert_slopes(found, grad_out, operands, options, seed=0):
    """Along random directions of each array the loss grows as its gradient says."""
    rng = np.random.default_rng(seed)
    arrays = dict(zip(("query", "key", "value"), operands, strict=True))
    arrays |= {n: options[n] for n in ("bias", "sinks") if isinstance(options.get(n), np.ndarray)}
    for name, x in arrays.items():
        way, got = rng.standard_normal(x.shape), getattr(found, name)
        assert got.shape == x.shape, name
        ends = []
        for h in (STEP, -STEP):
            moved = {**arrays, name: x + h * way}
            inner = {**options, **{n: moved[n] for n in ("bias", "sinks") if n in moved}}
            ends.append(loss(grad_out, [moved[n] for n in ("query", "key", "value")], inner))
        slope, said = (ends[0] - ends[1]) / (2 * STEP), float((got * way).sum())
        size = 1 + abs(ends[0]) + float(np.abs(got * way).sum())
        assert abs(slope - said) < 1e-6 * size, f"{name}: the loss grows by {slope}, its gradient says {said}"


def assert_laws(found, grad_out, operands, options):
    """Equalities that hold whatever the numbers are, for grouped heads too."""
    query, key, value = operands
    out = rg.reference.attention_forward(*operands, **options)
    pull = np.asarray((out.out * grad_out).sum())
    size = 1 + max(float(np.abs(x * g).sum()) for x, g in zip(operands, found[:3], strict=True))
    sides = {
        "<q, dq> = <k, dk>": ((query * found.query).sum(), (key * found.key).sum()),
        "<v, dv> = <o, do>": ((value * found.value).sum(), pull),
    }
    if "sinks" not in options:
        kept = np.where(np.isneginf(out.lse)[..., None], 0, grad_out)
        group = query.shape[-3] // key.shape[-3]
        sent = kept.reshape(*kept.shape[:-3], -1, group, *kept.shape[-2:]).sum(axis=(-3, -2))
        sides["sum dv = sum do"] = (found.value.sum(axis=-2), sent)
        if "softcap" not in options:
            sides["sum dk = 0"] = (found.key.sum(axis=-2), 0.0)
    broken = [law for law, (a, b) in sides.items() if not np.abs(a - b).max(initial=0) < 1e-12 * size]
    assert not broken, f"broken: {', '.join(broken)}"
