"""Who calls the function: plainly, or watched from outside of the process, which a call may then end.

In a child process (`_child`) a `Guard` makes the calls. It tells each one before it is made, so that the parent knows
which of them the process died of, and it refuses those that a process has died of before.
"""

from __future__ import annotations

import hashlib
import pickle
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


@dataclass(frozen=True)
class Spoken:
    """A call in words: what tells it from others, its shapes and options, and its arguments if they are small."""

    fingerprint: str
    callee: str
    shown: str
    size: int
    arguments: bytes = b""

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
    return f"sys.exit({error.code!r})" if isinstance(error, SystemExit) else f"it raises {type(error).__name__}"


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
    kept = pickle.dumps(_kept(plain, arrays)) if size <= _SENT else b""
    shown = ", ".join(_shown(name, value) for name, value in plain)
    return Spoken(digest.hexdigest(), callee, shown, size, kept)


def _kept(plain: list[tuple[str, Any]], arrays: Arrays) -> tuple[str, list[tuple[str, Any, str]]]:
    """Keep what a script needs of a call: an import, and each argument with the words that make it."""
    dtypes = [value.dtype.name if isinstance(value, np.ndarray) else "" for _, value in plain]
    words = [arrays.words(dtype) if dtype else ("", "", "") for dtype in dtypes]
    library = next((imports for imports, _, _ in words if imports), "")
    return library, [(name, value, give) for (name, value), (_, give, _) in zip(plain, words, strict=True)]


def _plain(value: Any, arrays: Arrays) -> Any:
    """View an array as NumPy's; of what is neither array nor number only the type is the same in another process."""
    if value is None or isinstance(value, bool | int | float | str | np.ndarray):
        return value
    try:
        return arrays.read(value) if arrays.is_array(value) else _Other(type(value).__name__)
    except Exception:  # an array without numbers, such as one that is traced
        return _Other(f"{type(value).__name__}{tuple(getattr(value, 'shape', ()))}")


@dataclass(frozen=True)
class _Other:
    """Something that is neither array nor number, by its type."""

    name: str

    def __repr__(self) -> str:
        return self.name


def _kind(value: Any) -> tuple[Any, ...]:
    return (value.shape, value.dtype.name) if isinstance(value, np.ndarray) else (repr(value),)


def _shown(name: str, value: Any) -> str:
    text = f"{value.dtype.name}{value.shape}".replace(",)", ")") if isinstance(value, np.ndarray) else repr(value)
    return f"{name}={text}" if name else text
