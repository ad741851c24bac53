"""Messages between the two processes, as lines of JSON: plain values, arrays, and the classes that are listed here.

Nothing that the process of a function sends is run: what is none of these, or has fields of other types, is refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from regard.check.answers._case import Case, Layer
from regard.check.answers._tolerance import Refused
from regard.check.candidate._guard import Answered, Argument, Called, Death, Sent, Spoken
from regard.check.candidate._guess import Guess
from regard.check.findings._finding import Example, Finding
from regard.check.gradients._example import GradientExample
from regard.check.instruments._lse import _Lse
from regard.check.report._report import Report


@dataclass(frozen=True)
class Loading:
    """Told before the function's module is imported."""


@dataclass(frozen=True)
class Loaded:
    """Told when the function is there."""


@dataclass(frozen=True)
class Told:
    """What is being asked, and the share of the whole that is behind."""

    what: str
    share: float


@dataclass(frozen=True)
class Done:
    """The report; the last message."""

    report: Report


@dataclass(frozen=True)
class Failed:
    """Why there is no report; the last message."""

    message: str


_MESSAGES = (Loading, Loaded, Told, Called, Answered, Done, Failed)
_PARTS = (
    Death, Spoken, Sent, Argument, Report, Finding, Guess, Example, GradientExample, _Lse, Case, Layer, Refused,
)  # fmt: skip
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (*_MESSAGES, *_PARTS)}
_HINTS = {name: get_type_hints(kind) for name, kind in _KINDS.items()}
# What numbers an array may hold: bool, int, unsigned, float.
_NUMBERS = "biuf"


def line(message: object) -> bytes:
    """Write a message as a line.

    Raises
    ------
    TypeError
        It holds what is not listed here.
    """
    return json.dumps(_plain(message)).encode("ascii") + b"\n"


def message(line: bytes) -> Any:
    """Read what `line` wrote.

    Raises
    ------
    TypeError, ValueError, KeyError
        It is no message.
    """
    built = _built(json.loads(line))
    if not isinstance(built, _MESSAGES):
        raise TypeError(f"a {type(built).__name__} is no message")
    return built


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in _NUMBERS:
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"is": "array", "dtype": value.dtype.str, "shape": list(value.shape), "data": data}
    if isinstance(value, Mapping):
        return {"is": "mapping", "names": list(value), "values": [_plain(part) for part in value.values()]}
    if _KINDS.get(type(value).__name__) is type(value):
        return {"is": type(value).__name__, **{f.name: _plain(getattr(value, f.name)) for f in fields(value)}}
    raise TypeError(f"a {type(value).__name__} cannot be sent")


def _built(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_built(part) for part in value)
    if not isinstance(value, dict):
        return value
    name = value.pop("is")
    if name == "array":
        dtype = np.dtype(str(value["dtype"]))
        return np.frombuffer(base64.b64decode(value["data"]), dtype).reshape(value["shape"]).copy()
    if name == "mapping":
        return dict(zip(value["names"], _built(value["values"]), strict=True))
    kind = _KINDS[name]
    given = {name: _built(part) for name, part in value.items()}
    for name, hint in _HINTS[kind.__name__].items():
        if name in given and not _fits(given[name], hint):
            raise TypeError(f"{name} of {kind.__name__} is a {type(given[name]).__name__}")
    return kind(**given)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, with the elements of tuples."""
    if hint is Any:
        return True
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        wanted = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(wanted) and all(map(_fits, value, wanted))
    if origin is float:
        return isinstance(value, int | float)
    return not isinstance(origin, type) or isinstance(value, origin)
