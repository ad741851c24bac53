"""``regard plan``: how a call would be computed, from shapes or from the headers of files."""

from __future__ import annotations

import json
import math
import re
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard import _runtime
from regard._attention.forward import plan
from regard._errors import AlignmentError, DTypeError, MaskError, RegardError, ShapeError, UnsupportedError
from regard._fit import entry_of, offset_at
from regard._libraries import bfloat16
from regard._plan import Plan, make_plan, make_problem
from regard._plan.shapes import MAX_AXES
from regard._types import FLOAT_DTYPES
from regard.masks._picture import draw

from ._bias import parse_bias
from ._console import text_console
from ._mask import parse_mask
from ._npy import Npy, npy_file
from ._printable import printable
from ._shell import PLAN, in_shell

_SHAPE = re.compile(r"[(\[]?\s*-?[0-9]{1,19}(\s*,\s*-?[0-9]{1,19})*\s*,?\s*[)\]]?")
_INTEGERS = re.compile(r"-?[0-9]{1,19}(\s*,\s*-?[0-9]{1,19})*")
_ANY_DTYPE = ("bias", "sinks")  # the others have one between them
# Tiles are counted one by one: what takes a moment is announced, and what would take hours is not begun.
_PATIENCE_TILES, _MAX_TILES = 10**6, 10**10


@dataclass(frozen=True)
class PlanRequest:
    """What was asked on the command line: arrays as shapes or names of files, options as they were written."""

    arrays: tuple[str, ...]
    key: str | None
    value: str | None
    bias: str | None
    sinks: str | None
    dtype: str | None
    mask: str | None
    q_offset: str | None
    scale: float | None
    softcap: float | None
    threads: int | None
    target: str | None
    picture: bool
    batch: int | None
    head: int | None
    as_json: bool


def show_plan(asked: PlanRequest) -> None:
    """Print the plan of the call that was asked for."""
    _refuse_without_effect(asked)
    try:
        made = _made(asked)
    except RegardError as error:
        raise type(error)(in_shell(str(error), PLAN)) from None
    picture = _picture(made, asked.batch or 0, asked.head or 0) if asked.picture else None
    if asked.as_json:
        facts = {**made.facts(), **({"picture": picture} if picture else {})}
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
        return
    console = text_console()
    console.print(_table(made))
    if picture:
        console.print(Text(picture), soft_wrap=True)


def _refuse_without_effect(asked: PlanRequest) -> None:
    for option, number in (("--batch", asked.batch), ("--head", asked.head)):
        if number is not None and not asked.picture:
            raise RegardError(f"{option} {number} says what a picture shows: add --picture, or leave {option} out")


def _made(asked: PlanRequest) -> Plan:
    call: dict[str, Any] = {
        **_arrays(asked),
        "mask": None if asked.mask is None else parse_mask(asked.mask),
        "q_offset": _offset(asked.q_offset), "scale": asked.scale, "softcap": asked.softcap,
    }  # fmt: skip
    with _runtime.config(num_threads=asked.threads, target=asked.target):
        try:
            uncounted = make_plan(make_problem(**call))
            with _patience(uncounted):
                return plan(**call)
        except RecursionError:
            raise MaskError("--mask is nested too deeply: combine fewer masks") from None
        except MemoryError:
            shape = call["query"].shape
            raise ShapeError(f"query {shape} has too many heads or rows for a plan: ask for fewer") from None


def _arrays(asked: PlanRequest) -> dict[str, Any]:
    """Query, key and value, and bias and sinks where there are; a key that was not named is like the query."""
    if not 1 <= len(asked.arrays) <= 3:
        raise ShapeError(
            f"{len(asked.arrays)} arrays were given; give query, or query and key, or query, key and value"
        )
    named = dict(zip(("query", "key", "value"), asked.arrays, strict=False))
    for name, text in (("key", asked.key), ("value", asked.value)):
        if text is not None:
            if name in named:
                raise ShapeError(f"{name} was given twice: {named[name]} and --{name} {text}; give one of them")
            named[name] = text
    bias = None if asked.bias is None or _is_array(asked.bias) else parse_bias(asked.bias)
    others = {"bias": None if bias else asked.bias, "sinks": asked.sinks}
    named |= {name: text for name, text in others.items() if text is not None}
    dtype = None if asked.dtype is None else _dtype(asked.dtype)
    read = {name: _shape_or_file(name, text) for name, text in named.items()}
    files = {name: _of_file(name, given, dtype) for name, given in read.items() if isinstance(given, Npy)}
    given = [array.dtype for name, array in files.items() if name not in _ANY_DTYPE]
    of_shapes = dtype or next(iter(given), np.dtype(np.float32))
    made = {name: files.get(name) or _of_shape(name, read[name], of_shapes) for name in read}
    made.setdefault("key", made["query"])
    made.setdefault("value", made["key"])
    return {**made, **({"bias": bias} if bias else {})}


def _is_array(text: str) -> bool:
    """Whether a text is a shape or names a file; what else has parentheses is an expression."""
    file = text.endswith((".npy", ".npz")) or (("/" in text or "\\" in text) and "(" not in text)
    return file or _SHAPE.fullmatch(text.strip()) is not None


def _shape_or_file(name: str, text: str) -> Npy | tuple[int, ...]:
    if not _is_array(text):
        raise ShapeError(
            f"{name} is {text[:100]!r}; it must be a shape such as 1,8,2048,64, or the name of an .npy file"
        )
    if _SHAPE.fullmatch(text.strip()):
        return tuple(int(size) for size in re.findall(r"-?[0-9]+", text))
    return npy_file(text)


@dataclass(frozen=True)
class _Described:
    """An array of which a plan knows enough."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _of_shape(name: str, shape: Any, dtype: np.dtype[Any]) -> _Described:
    elements = math.prod(size for size in shape if size)
    if len(shape) > MAX_AXES or min(shape) < 0 or elements * dtype.itemsize > sys.maxsize:
        raise ShapeError(
            f"{name} has shape {shape}, which no array has: up to {MAX_AXES} sizes of 0 or more, "
            f"{sys.maxsize:.4g} bytes in all"
        )
    return _Described(shape, dtype)


def _of_file(name: str, file: Npy, dtype: np.dtype[Any] | None) -> _Described:
    """Take a file's array; NumPy writes bfloat16, for which it has no name, as void of two bytes."""
    found = file.dtype
    if found.kind == "V" and found.itemsize == 2:
        if dtype is None or dtype.name != "bfloat16":
            raise DTypeError(
                f"{file.path} holds elements of 2 bytes and no type, as numpy.save writes bfloat16: "
                "if they are, say --dtype bfloat16"
            )
        found = dtype
    if dtype is not None and found.name in FLOAT_DTYPES and found.name != dtype.name and name not in _ANY_DTYPE:
        raise DTypeError(f"{file.path} holds {found.name}, and --dtype says {dtype.name}: leave --dtype out")
    return _Described(file.shape, found)


def _dtype(name: str) -> np.dtype[Any]:
    if name not in FLOAT_DTYPES:
        raise DTypeError(f"--dtype is {name[:100]!r}; attention computes {', '.join(FLOAT_DTYPES)}")
    return bfloat16() if name == "bfloat16" else np.dtype(name)


def _offset(text: str | None) -> Any:
    if text is None or text in ("start", "end"):
        return text
    if not _INTEGERS.fullmatch(text.strip()):
        raise AlignmentError(
            f"--q-offset is {text[:100]!r}; it must be an int (the position of query 0), ints per batch entry such as "
            "3,5, start (0) or end (Skv - Sq)"
        )
    numbers = [int(number) for number in text.split(",")]
    return numbers if len(numbers) > 1 else numbers[0]


def _patience(uncounted: Plan) -> AbstractContextManager[object]:
    """Announce a count of many tiles, and refuse one that would not end."""
    tiles = uncounted.most_tiles
    if tiles > _MAX_TILES:
        raise UnsupportedError(
            f"the scores {uncounted.problem.geometry.user_shape} make {tiles:.1e} tiles of {uncounted.block_rows} "
            f"queries x {uncounted.tile_keys} keys, and a plan counts each, up to {_MAX_TILES:.0e}: ask for one batch "
            "entry or one head"
        )
    return Console(stderr=True).status(f"counting {tiles:,} tiles") if tiles > _PATIENCE_TILES else nullcontext()


def _picture(made: Plan, batch: int, head: int) -> str:
    geometry = made.problem.geometry
    _refuse_beyond(made, "--batch", batch, math.prod(geometry.lead), ("batch entry", "batch entries"))
    _refuse_beyond(made, "--head", head, geometry.heads, ("head", "heads"))
    entry = entry_of("the scores", batch, geometry.lead)
    of_entry = geometry._replace(q_offset=offset_at(geometry.q_offset, entry))
    return str(draw(made.problem.mask, of_entry, head, (made.block_rows, made.tile_keys), entry))


def _refuse_beyond(made: Plan, option: str, asked: int, there: int, words: tuple[str, str]) -> None:
    if not 0 <= asked < there:
        shape, count = made.problem.geometry.user_shape, f"{there} {words[there != 1]}"
        raise ShapeError(f"{option} is {asked}, and the scores {shape} have {count}, which count from 0")


def _table(made: Plan) -> Table:
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in made.told().items():
        table.add_row(name, Text(printable(text)))
    return table
