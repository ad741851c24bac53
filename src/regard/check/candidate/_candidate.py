"""The function under test: how a case is put into its words, and what it answers.

Arrays are made here and read here, in the function's own library.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case, numpy_dtype
from regard.check.answers._tolerance import Outcome, Refused, observe
from regard.check.arrays import NUMPY, Arrays
from regard.check.candidate import _guard

from ._signature import Signature

# Each layout that a function may have, as axes of (batch, head, position, feature); an axis that is not named is looped
# over. "hsd" stands for three axes of which the first is a batch too.
LAYOUTS = ("bhsd", "bshd", "hsd", "shd", "sd")
LAYER_LAYOUTS = ("bse", "sbe")
ALSO = {"bhnd": "bhsd", "bnhd": "bshd", "bsd": "hsd", "bnd": "hsd", "hnd": "hsd", "nhd": "shd", "nd": "sd"}


@dataclass(frozen=True)
class Words:
    """How a function wants to be spoken to.

    ``layout`` is one of `LAYOUTS`, of a layer one of `LAYER_LAYOUTS`. ``mask`` is "keep", "drop" or "additive";
    ``mask_shape`` the axes of a mask, "full", "qk", "bqk" or "bk", of a layer also "flat": batch and heads as one;
    ``window`` "total" or "left-inclusive"; ``causal`` the rule that is right, "bottom-right" or "top-left".
    """

    layout: str = "bhsd"
    mask: str = "keep"
    mask_shape: str = "full"
    causal: str = "bottom-right"
    window: str = "total"
    always_causal: bool = False
    always_alibi: bool = False
    element: Any = None


@dataclass(frozen=True)
class Call:
    """Arguments that are ready to be passed; ``where`` is the batch entry and head of a function with fewer axes."""

    arguments: list[Any]
    keywords: dict[str, Any]
    where: tuple[int, ...] = ()

    @property
    def arrays(self) -> list[Any]:
        """All arrays among the arguments."""
        return [x for x in (*self.arguments, *self.keywords.values()) if hasattr(x, "shape")]


@dataclass(frozen=True)
class Candidate:
    """A function, its signature and its words."""

    fn: Callable[..., Any]
    signature: Signature
    words: Words = field(default_factory=Words)
    dtype: str = "float32"
    arrays: Arrays = NUMPY

    def __call__(self, case: Case) -> Outcome:
        """Answer a case, in float64 and in the case's layout, or refuse."""
        try:
            with quiet():
                return observe(case, self.raw(case))
        except BaseException as error:
            return refused(error)

    def raw(self, case: Case) -> Array:
        """Answer a case, and let errors through."""
        return self.receive(case, [self.invoke(call) for call in self.calls(case)])

    def invoke(self, call: Call) -> Any:
        """Call the function once."""
        with self.arrays.calling(self.dtype):
            return _guard.call(self.fn, call.arguments, call.keywords, self.arrays)

    def calls(self, case: Case) -> list[Call]:
        """Put a case into the function's words: one call, or one per batch entry or head that it has no axis for."""
        if case.layer:
            return [self._layer_call(case)]
        looped = [axis for axis, name in enumerate("bh") if name not in self.words.layout]
        size = case.query.shape[:2]
        wheres = np.ndindex(*(size[axis] for axis in looped))
        return [Call(*self.signature.place(self._values(case, looped, where)), where) for where in wheres]

    def _layer_call(self, case: Case) -> Call:
        assert case.layer
        names = {"wq": "query", "wk": "key", "wv": "value", "wo": "out"}
        values: dict[str, Any] = {role: self.send(getattr(case.layer, name)) for role, name in names.items()}
        values |= {"x": self.send(self.batch_first(case.query)), "heads": case.layer.heads}
        if case.causal and not self.words.always_causal:
            values["causal"] = True
        if case.mask is not None:
            values["mask"] = self._mask(case.mask, case)
        return Call(*self.signature.place(values))

    def batch_first(self, x: Array) -> Array:
        """Between a case's layout and a layer's: its own inverse."""
        return np.swapaxes(x, 0, 1) if self.words.layout == "sbe" and x.ndim == 3 else x

    def _values(self, case: Case, looped: list[int], where: tuple[int, ...]) -> dict[str, Any]:
        kv = where
        if looped and looped[-1] == 1 and case.key.shape[1] != case.query.shape[1]:
            kv = (*where[:-1], where[-1] // (case.query.shape[1] // case.key.shape[1]))
        values: dict[str, Any] = {
            "query": self._laid(_entry(case.query, looped, where)),
            "key": self._laid(_entry(case.key, looped, kv)),
            "value": self._laid(_entry(case.value, looped, kv)),
        }
        for name, value in case.options.items():
            values[name] = value
        if self.words.always_causal:
            values.pop("causal", None)
        if case.mask is not None:
            values["mask"] = self._mask(_entry(case.mask, looped, where), case)
        if case.bias is not None:
            values["bias"] = self.send(_entry(case.bias, looped, where))
        if case.alibi is not None:
            values["alibi"] = self.arrays.send(case.alibi.astype(np.float32))
        if case.window is not None and self.words.window == "left-inclusive":
            values["window"] = case.window - 1
        if case.dropout is not None:
            sizes = [size for axis, size in enumerate(case.query.shape[:2]) if axis in looped]
            seed = 11 + (int(np.ravel_multi_index(where, sizes)) if where else 0)  # another for each of several calls
            values |= {"rng": self.arrays.random(seed), "seed": seed}
        if case.query.shape[1] != case.key.shape[1]:
            values["enable_gqa"] = True
        return values

    def _laid(self, x: Array) -> Any:
        return self.send(np.swapaxes(x, -2, -3) if "sh" in self.words.layout else x)

    def _mask(self, keep: Array, case: Case) -> Any:
        if self.words.mask_shape == "flat":
            assert case.layer
            positions = case.query.shape[1]
            every = np.broadcast_to(keep, (len(case.query), case.layer.heads, positions, positions))
            keep = every.reshape(-1, positions, positions)
        elif self.words.mask_shape == "qk":
            keep = keep.reshape(keep.shape[-2:])
        elif self.words.mask_shape == "bqk":
            keep = keep[:, 0]
        elif self.words.mask_shape == "bk":
            keep = keep[:, 0, 0]
        if self.words.mask == "additive":
            return self.send(np.where(keep, 0, -np.inf))
        return self.arrays.send(~keep if self.words.mask == "drop" else keep)

    def send(self, x: Array) -> Any:
        """Return an array of the function's library and dtype, freshly made."""
        return self.arrays.send(np.asarray(x, numpy_dtype(self.dtype)))

    def receive(self, case: Case, outs: list[Any]) -> Array:
        """Join the function's results, in float64 and in the case's layout."""
        arrays = [_numbers(self.arrays.read(self.element_of(out))) for out in outs]
        if case.layer:
            return self.batch_first(arrays[0])
        axes = len(self.words.layout)
        if "sh" in self.words.layout:
            arrays = [np.swapaxes(x, -2, -3) if x.ndim == axes else x for x in arrays]
        lead = [case.query.shape[axis] for axis, name in enumerate("bh") if name not in self.words.layout]
        return np.stack(arrays).reshape(*lead, *arrays[0].shape)

    def element_of(self, out: Any) -> Any:
        """Return the output among what is returned."""
        return out if self.words.element is None else out[self.words.element]

    def answers(self, feature: str) -> bool:
        """Whether there is a parameter for an option."""
        return feature in self.signature.options


def is_several(candidate: Candidate, case: Case) -> bool:
    """Whether the function returns more than one thing; nested lists of numbers are one."""
    with quiet():
        out = candidate.invoke(candidate.calls(case)[0])
    return isinstance(out, tuple | dict) or (isinstance(out, list) and any(hasattr(x, "shape") for x in out))


class quiet:  # noqa: N801 a context manager, like np.errstate
    """No warnings and no floating-point errors: what a function computes is looked at, not what it complains of."""

    def __enter__(self) -> None:
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("ignore")
        self._state = np.errstate(all="ignore")
        self._state.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._state.__exit__(*error)
        self._caught.__exit__(*error)


def refused(error: BaseException) -> Refused:
    """Keep what an exception says, in a line; Ctrl-C goes on."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    try:
        first = next(iter(str(error).splitlines()), "")
    except BaseException as another:  # of a __str__
        first = f"its text cannot be read ({type(another).__name__})"
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in first)
    honest = isinstance(error, NotImplementedError) or "Unsupported" in type(error).__name__
    return Refused(f"{type(error).__name__}: {shown}", honest, isinstance(error, _guard.CrashError))


# No result of a probe has so many elements: one that does is of a wrong shape, and is not copied.
_MOST = 1 << 24


def _numbers(x: Array) -> Array:
    """Return real numbers in float64."""
    if x.dtype.kind not in "biufV" or x.size > _MOST:  # V: bfloat16
        raise TypeError(f"it returns an array of {x.dtype} and shape {x.shape}")
    return x.astype(np.float64)


def _entry(x: Array, looped: list[int], where: tuple[int, ...]) -> Array:
    """Take the part of an array for a batch entry or head; an axis of size 1 serves all."""
    index: list[Any] = [slice(None)] * 2
    for axis, at in zip(looped, where, strict=True):
        index[axis] = at if x.shape[axis] > 1 else 0
    return np.asarray(x[tuple(index)])
