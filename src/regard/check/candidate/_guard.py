"""Who calls the function: plainly, or watched from outside of the process, which a call may then end.

In a child process (`_child`) a `Guard` makes the calls. It tells each one before it is made, so that the parent knows
which of them the process died of, and it refuses those that a process has died of before.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from regard.check.arrays import Arrays

Fn: TypeAlias = Callable[..., Any]


class Caller(Protocol):
    """Calls a function with arguments of an array library; ``name`` is how a script that has ``attention`` names it."""

    def __call__(
        self, fn: Fn, arguments: Sequence[Any], keywords: Mapping[str, Any], arrays: Arrays, name: str = "attention"
    ) -> Any:
        """Return what the function returns."""


def _plainly(
    fn: Fn, arguments: Sequence[Any], keywords: Mapping[str, Any], arrays: Arrays, name: str = "attention"
) -> Any:
    return fn(*arguments, **keywords)


_CALLERS: list[Caller] = [_plainly]


def call(fn: Fn, arguments: Sequence[Any], keywords: Mapping[str, Any], arrays: Arrays, name: str = "attention") -> Any:
    """Call a function under test, or its vjp; every call of one goes through here."""
    return _CALLERS[-1](fn, arguments, keywords, arrays, name)


def set_caller(caller: Caller) -> None:
    """Let all further calls of this process be made by another; only a process that ends with its check does it."""
    _CALLERS[:] = [caller]


# Arguments of more bytes than these are described, not sent along.
_SENT = 1 << 16
# Letters of what a function says of itself: it may say a lot.
_MOST = 200


@dataclass(frozen=True)
class Argument:
    """An argument of a call for a script: ``name`` is empty where there is none, ``dtype`` where it is no array.

    ``give`` is Python text: of an array, what makes one of the function's library from NumPy's ``x``; else what makes
    the argument. Without it the value is passed as it is. bfloat16 is kept in float32.
    """

    name: str
    value: Any
    dtype: str = ""
    give: str = ""


@dataclass(frozen=True)
class Sent:
    """All that a script needs to make a call: the import of a library, and the arguments."""

    library: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Spoken:
    """A call in words: what tells it from others, its shapes and options.

    ``sent`` is there if the arguments are small, and a script can make each of them.
    """

    fingerprint: str
    callee: str
    shown: str
    size: int
    sent: Sent | None = None

    @property
    def text(self) -> str:
        """The call, with arrays by dtype and shape."""
        return f"{self.callee}({self.shown})"


@dataclass(frozen=True)
class Death:
    """A call that gave no answer. ``kind`` is CRASHES, HANGS or EXITS; ``where`` are the lines that it was in."""

    kind: str
    how: str
    spoken: Spoken
    where: str = ""


@dataclass(frozen=True)
class Called:
    """Told before a call."""

    spoken: Spoken


@dataclass(frozen=True)
class Answered:
    """Told after a call; ``death`` if it tried to end the process in a way that can be caught."""

    death: Death | None = None


class CrashError(Exception):
    """A call that a process has died of is not made again."""


class Guard:
    """Makes calls that may end the process, and tells of each."""

    def __init__(self, deadly: Sequence[Death], tell: Callable[[object], None]) -> None:
        self._deadly = {death.spoken.fingerprint: death for death in deadly}
        self._tell = tell

    def __call__(
        self, fn: Fn, arguments: Sequence[Any], keywords: Mapping[str, Any], arrays: Arrays, name: str = "attention"
    ) -> Any:
        """Call, or raise what the call is known to end in."""
        spoken = speak(name, arguments, keywords, arrays)
        if spoken.fingerprint in self._deadly:
            raise CrashError(self._deadly[spoken.fingerprint].how)
        self._tell(Called(spoken))
        death = None
        try:
            return _finished(fn(*arguments, **keywords))
        except Exception:
            raise
        except BaseException as error:  # SystemExit, KeyboardInterrupt: there is no terminal that it could come from
            death = self._deadly[spoken.fingerprint] = Death("EXITS", _raised(error), spoken)
            raise CrashError(death.how) from None
        finally:
            self._tell(Answered(death))


def _raised(error: BaseException) -> str:
    if not isinstance(error, SystemExit):
        return f"it raises {type(error).__name__}"
    try:
        code = " ".join(repr(error.code).split())
    except Exception:  # of its own __repr__
        code = type(error.code).__name__
    return f"sys.exit({code if len(code) <= _MOST else f'{code[:_MOST]}...'})"


def _finished(out: Any) -> Any:
    """Wait for what JAX computes behind a call."""
    wait = getattr(sys.modules.get("jax"), "block_until_ready", None)
    return wait(out) if wait else out


def speak(callee: str, arguments: Sequence[Any], keywords: Mapping[str, Any], arrays: Arrays) -> Spoken:
    """Put a call into words."""
    given = [("", value) for value in arguments] + list(keywords.items())
    plain = [(name, _plain(value, arrays)) for name, value in given]
    digest = hashlib.blake2b(callee.encode(), digest_size=16)
    for name, value in plain:
        digest.update(repr((name, *_kind(value))).encode())
        digest.update(np.ascontiguousarray(value).tobytes() if isinstance(value, np.ndarray) else b"")
    size = sum(value.nbytes for _, value in plain if isinstance(value, np.ndarray))
    sent = _sent(plain, arrays) if size <= _SENT else None
    shown = ", ".join(_shown(name, value) for name, value in plain)
    return Spoken(digest.hexdigest(), callee, shown, size, sent)


def _sent(plain: list[tuple[str, Any]], arrays: Arrays) -> Sent | None:
    """Keep what a script needs of a call; None where it cannot make an argument."""
    library, arguments = "", []
    for name, value in plain:
        if isinstance(value, _Other):
            if not value.is_drawn:
                return None
            library = library or arrays.words("float32")[0]
            arguments.append(Argument(name, None, give=arrays.drawing))
        elif isinstance(value, np.ndarray):
            dtype = value.dtype.name
            imports, give, _ = arrays.words(dtype)
            library = library or imports
            value = value.astype(np.float32) if dtype == "bfloat16" else value
            if value.dtype.kind not in "biuf":
                return None
            arguments.append(Argument(name, value, dtype, give))
        else:
            arguments.append(Argument(name, value))
    return Sent(library, tuple(arguments))


def _plain(value: Any, arrays: Arrays) -> Any:
    """View an array as NumPy's; of what is neither array nor number only the type is the same in another process."""
    if value is None or isinstance(value, bool | int | float | str | np.ndarray):
        return value
    shape = tuple(getattr(value, "shape", ()))
    try:
        if arrays.is_array(value):
            return arrays.read(value)
    except Exception:  # an array without numbers, such as one that is traced, or a key
        return _Other(f"{type(value).__name__}{shape}", _is_drawn(value, arrays))
    return _Other(type(value).__name__, _is_drawn(value, arrays))


def _is_drawn(value: Any, arrays: Arrays) -> bool:
    return type(value) is type(arrays.random(0))


@dataclass(frozen=True)
class _Other:
    """Something that is neither array nor number, by its type; ``is_drawn`` if random numbers are drawn from it."""

    name: str
    is_drawn: bool = False

    def __repr__(self) -> str:
        return self.name


def _kind(value: Any) -> tuple[Any, ...]:
    return (value.shape, value.dtype.name) if isinstance(value, np.ndarray) else (repr(value),)


def _shown(name: str, value: Any) -> str:
    text = f"{value.dtype.name}{value.shape}".replace(",)", ")") if isinstance(value, np.ndarray) else repr(value)
    return f"{name}={text}" if name else text
