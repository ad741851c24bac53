"""Threads and instruction set: read from the environment once, changed by a context manager."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from regard import _native
from regard._cached import cached_attribute
from regard._errors import UnsupportedError, refuse_unknown, written
from regard._fit import as_flag
from regard._types import as_int

if TYPE_CHECKING:
    from typing_extensions import Never

_CONFIGURED = ("num_threads", "target", "row_invariant")
# From the lowest to the highest; of neon and the others a build has one family's. Those of OPT_IN are for who asks:
# amx is tested on a model of its instruction and in an emulator, and has not run on a machine that has it.
TARGETS = ("scalar", "neon", "avx2", "avx512", "avx512_bf16", "amx")
OPT_IN = ("amx",)
# Unit roundoff of the weights as they multiply their values, where a target rounds them for that.
WEIGHT_UNITS = {("avx512_bf16", "bfloat16"): 2.0**-8, ("amx", "bfloat16"): 2.0**-8}
# What is smaller counts as zero there, of products of weights and values and of their sums.
LEAST_TERMS = {("avx512_bf16", "bfloat16"): 2.0**-126} | {
    ("amx", dtype): 2.0**-126 for dtype in ("float32", "float16", "bfloat16")
}
_MAX_THREADS = 1024


class Engine(NamedTuple):
    """What a call runs with."""

    target: str
    why: str  # this target
    # At most. None: as many as there are processors, which are counted when there is work for more than one.
    num_threads: int | None = None
    row_invariant: bool = True


@dataclass(frozen=True)
class TargetInfo:
    """One instruction set: is it in this build, can this machine run it, and why or why not."""

    name: str
    compiled: bool
    usable: bool
    why: str


@dataclass(frozen=True)
class Settings:
    """What a call runs with; None means the default."""

    num_threads: int | None = None
    target: str | None = None
    source: str = "REGARD_TARGET"  # who asked for the target
    row_invariant: bool = True
    outer: Settings | None = None  # what a configuration returns to

    @cached_attribute
    def chosen(self) -> tuple[str, str]:
        """Name of the target and the reason for it."""
        return _best() if self.target is None else (self.target, f"asked for by {self.source}")

    @cached_attribute
    def engine(self) -> Engine:
        """What a call runs with."""
        return Engine(*self.chosen, self.num_threads, self.row_invariant)


_settings: ContextVar[Settings | None] = ContextVar("regard_settings", default=None)


@cache
def describe() -> tuple[TargetInfo, ...]:
    """Every target that regard knows, from the lowest to the highest."""
    compiled = {name: (usable, why) for name, usable, why in _native.targets()}
    return tuple(
        TargetInfo(name, True, *compiled[name])
        if name in compiled
        else TargetInfo(name, False, False, "not compiled for this processor family")
        for name in TARGETS
    )


def _check_threads(value: Any, source: str) -> int:
    threads = as_int(value)
    if threads is None or not 1 <= threads <= _MAX_THREADS:
        raise UnsupportedError(f"{source} is {written(value)}; it must be an integer from 1 to {_MAX_THREADS}")
    return threads


def _check_target(value: Any, source: str) -> str:
    known = {info.name: info for info in describe()}
    usable = ", ".join(info.name for info in describe() if info.usable)
    if not isinstance(value, str) or value not in known:
        raise UnsupportedError(f"{source} is {written(value)}; the targets that this machine can use are {usable}")
    info = known[value]
    refusal = _native.enable(value) if info.usable else info.why if info.compiled else f"it is {info.why}"
    if refusal:
        raise UnsupportedError(
            f"{source} is {written(value)}, but {refusal}; the targets that this machine can use are {usable}"
        )
    return str(value)


def _from_environment(name: str, check: Callable[[Any, str], Any]) -> Any:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    try:
        value: Any = int(text)
    except ValueError:
        value = text
    return check(value, f"the environment variable {name}")


@cache
def _environment() -> Settings:
    return Settings(
        num_threads=_from_environment("REGARD_NUM_THREADS", _check_threads),
        target=_from_environment("REGARD_TARGET", _check_target),
    )


def settings() -> Settings:
    """Return the settings in force in this context."""
    return _settings.get() or _environment()


@cache
def _best() -> tuple[str, str]:
    best = next(info for info in reversed(describe()) if info.usable and info.name not in OPT_IN)
    return best.name, f"the highest that this machine can use: {best.why}"


def num_threads() -> int:
    """Threads that a call may use: as configured, else the processors that this process may run on."""
    return settings().num_threads or processors()


processors = _native.processors


def chosen() -> tuple[str, str]:
    """Name of the target in force and the reason for it."""
    return settings().chosen


def engine() -> Engine:
    """Tell what a call that begins now will run with."""
    return settings().engine


class Configuration:
    """The context manager that `config` returns."""

    def __init__(self, changes: dict[str, Any]) -> None:
        self._changes = changes

    def __repr__(self) -> str:
        changes = ", ".join(f"{name}={value!r}" for name, value in self._changes.items() if name != "source")
        return f"config({changes}): changes nothing yet; it is for a with block, and holds inside of it"

    def __enter__(self) -> None:
        _settings.set(replace(settings(), outer=_settings.get(), **self._changes))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _settings.set(settings().outer)


def config(
    *,
    num_threads: int | None = None,
    target: str | None = None,
    row_invariant: bool | None = None,
    **unknown: Never,
) -> Configuration:
    """Set threads, instruction set or the promise of equal bits for the calls inside a ``with`` block.

    The setting is a `contextvars.ContextVar`: other threads and other asyncio tasks do not see it. The number of
    threads changes no float of any result.

    Parameters
    ----------
    num_threads : int, optional
        From 1 to 1024. Default: the processors that the process may run on, or ``REGARD_NUM_THREADS``.
    target : {"scalar", "neon", "avx2", "avx512", "avx512_bf16", "amx"}, optional
        Default: the highest that CPU and operating system allow, amx never, or ``REGARD_TARGET``.
    row_invariant : bool, optional
        Whether a query row has the same bits in every call of one target: alone as in a prefill, whatever rows are
        beside it and however its keys lie in memory. Default: True. With False `attention` may add q · k in the order
        that is fastest, within the same error bound: today where, with AVX2 or AVX-512, one float32 query row meets the
        keys of its own head (D a multiple of a vector's 8 or 16 numbers, up to 512), as when decoding without
        grouped heads. Threads still change nothing. `attention_forward` is row invariant always where it is asked for
        more than the output.

    Raises
    ------
    TypeError
        There is no setting of that name.
    UnsupportedError
        The value is out of range, or no bool; or this machine cannot run the target, or the operating system refuses
        it to this process; the message lists those that it can.

    Examples
    --------
    >>> import numpy as np, regard as rg
    >>> x = np.ones((4, 8), np.float32)
    >>> with rg.config(num_threads=1, target="scalar"):
    ...     print(rg.plan(x, x, x).target)
    scalar
    """
    refuse_unknown(unknown, _CONFIGURED, "there is no setting", "the settings are")
    changes: dict[str, Any] = {}
    if num_threads is not None:
        changes["num_threads"] = _check_threads(num_threads, "num_threads")
    if target is not None:
        changes["target"] = _check_target(target, "target")
        changes["source"] = "config(target=...)"
    if row_invariant is not None:
        changes["row_invariant"] = as_flag("row_invariant", row_invariant)
    return Configuration(changes)
