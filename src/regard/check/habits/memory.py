"""How a function reads arrays: strides, permissions, dtypes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from regard.check.answers._tolerance import FAIL, Judge, Refused

from ._base import Behaviour, habit, largest


@habit(
    "STRIDES_IGNORED",
    "an array that is a view is read as if it were contiguous",
    "Transposed and sliced arrays are what head splitting gives.",
    "use the strides, or np.ascontiguousarray",
    fault=True,
)
def _strides(behaviour: Behaviour) -> str | None:
    want = behaviour.answer(behaviour.call()).astype(float)
    rounding = 1e-3 if behaviour.candidate.dtype in ("float32", "float64") else 0.1
    plain = behaviour.call().arguments
    views = [behaviour.candidate.arrays.views(x) if hasattr(x, "shape") else {} for x in plain]
    for named in views[0]:
        call = replace(behaviour.call(), arguments=[v.get(named, x) for v, x in zip(views, plain, strict=True)])
        got = behaviour.answer(call).astype(float)
        if got.shape != want.shape or largest(got - want) > rounding * largest(want):
            return f"with {named} the result is another"
    return None


@habit(
    "READ_ONLY_REFUSED",
    "arrays that cannot be written are refused, or written to",
    "Memory-mapped weights and broadcast views are read-only.",
    "do not write into inputs",
)
def _read_only(behaviour: Behaviour) -> str | None:
    call = behaviour.call()
    for x in call.arrays:
        if isinstance(x, np.ndarray):
            x.setflags(write=False)
    behaviour.run(call)
    return None


@habit(
    "OUT_DTYPE",
    "the output has another dtype than the inputs",
    "float32 becomes float64 down the whole model, twice as large and slow; or digits are lost.",
    "return result.astype(value.dtype)",
)
def _dtype(behaviour: Behaviour) -> str | None:
    call = behaviour.call()
    out, given = behaviour.answer(call), behaviour.read(call)[0].dtype
    return None if out.dtype == given else f"{given} in, {out.dtype} out"


@habit(
    "DTYPE_DOWNCAST",
    "float64 is computed in lower precision",
    "Gradient checks and scientific users need the digits that they pass.",
    "compute in the dtype of the inputs",
)
def _downcast(behaviour: Behaviour) -> str | None:
    wide = replace(behaviour, candidate=replace(behaviour.candidate, dtype="float64"))
    case, usual = behaviour.case, behaviour.error(behaviour.case)
    got = wide.candidate(case)
    judge = Judge.of(case, "float64")
    if usual > FAIL or isinstance(got, Refused) or judge.error(got) <= 1e4:
        return None
    return f"float64 inputs have an error of {largest(got - judge.right):.1e}"


@habit(
    "INT_INPUT_TRUNCATED",
    "integers give integers: the output is cut off",
    "Small examples are written with integers.",
    "convert to a float dtype first, or refuse integers",
)
def _integers(behaviour: Behaviour) -> str | None:
    call = behaviour.call()
    arrays = behaviour.candidate.arrays
    whole = [
        arrays.send(np.round(3 * arrays.read(x)).astype(int)) if hasattr(x, "shape") else x for x in call.arguments
    ]
    try:
        out = behaviour.answer(replace(call, arguments=whole))
    except Exception:
        return None  # refusing is right
    return f"integers in, {out.dtype} out" if out.dtype.kind in "iu" else None
