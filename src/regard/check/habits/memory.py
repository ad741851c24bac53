"""How a function reads arrays: strides, permissions, dtypes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from regard.check.answers._tolerance import FAIL, Judge, Refused
from regard.check.candidate._candidate import Call, refused

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
    for named in _views(behaviour):
        if _refusal(behaviour, _viewed(behaviour, named)):
            continue
        got = behaviour.answer(_viewed(behaviour, named)).astype(float)
        if got.shape != want.shape or largest(got - want) > rounding * largest(want):
            return f"with {named} the result is another"
    return None


def _views(behaviour: Behaviour) -> list[str]:
    """Name the views that the library has; none of operands that are passed by name."""
    arguments = behaviour.call().arguments
    return list(behaviour.candidate.arrays.views(arguments[0])) if arguments else []


def _viewed(behaviour: Behaviour, named: str) -> Call:
    """Make a call with views of the arguments."""
    plain, views = behaviour.call(), behaviour.candidate.arrays.views
    return replace(plain, arguments=[views(x)[named] if hasattr(x, "shape") else x for x in plain.arguments])


@habit(
    "VIEWS_REFUSED",
    "arrays that are views with other strides are refused",
    "Transposed and sliced arrays are what head splitting gives: every caller must copy them first.",
    "np.ascontiguousarray inside, where strides cannot be used",
)
def _views_refused(behaviour: Behaviour) -> str | None:
    said = ((named, _refusal(behaviour, _viewed(behaviour, named))) for named in _views(behaviour))
    return next((f"with {named} {why}" for named, why in said if why), None)


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
    return _refusal(behaviour, call)


def _refusal(behaviour: Behaviour, call: Call) -> str | None:
    """Say what a call raises that a plain one does not."""
    behaviour.run(behaviour.call())
    try:
        behaviour.run(call)
    except BaseException as error:
        return f"the call raises {refused(error).message}"
    return None


@habit(
    "OUT_DTYPE",
    "the output has another dtype than the inputs",
    "float32 becomes float64 down the whole model, twice as large and slow; or digits are lost.",
    "divide by math.sqrt(d), for np.sqrt(d) is a float64 that NumPy 2 makes float64 of float32 with; or return "
    "result.astype(value.dtype), where integers were made float64 at the beginning",
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
