"""Masks written on the command line: parsed by a list of what is allowed, never evaluated."""

from __future__ import annotations

import ast
import difflib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard import masks
from regard._errors import MaskError, RegardError
from regard.masks import Mask

from ._npy import npy_file

LEAVES = {
    leaf.__name__: leaf
    for leaf in (
        masks.Full, masks.Empty, masks.Causal, masks.Window, masks.Prefix, masks.Global, masks.Chunked, masks.Dilated,
        masks.KeyLengths, masks.KeyPadding, masks.Documents, masks.Blocks, masks.Dense, masks.PerHead,
    )
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], Callable[[Mask, Mask], Mask]] = {
    ast.BitAnd: lambda left, right: left & right,
    ast.BitOr: lambda left, right: left | right,
}
_PREFIXES = ("rg", "regard", "masks")
# Python's own parser is safe up to here; masks of lists that are longer come from files.
_MAX_LENGTH, _MAX_DEPTH = 100_000, 100
_MAX_INT = 2**63 - 1
_HINTS = {
    ast.BoolOp: "masks combine with & | ~, not and / or / not",
    ast.Not: "masks combine with & | ~, not and / or / not",
    ast.Compare: "write a mask, such as Causal() & Window(left=256)",
    ast.Lambda: "functions are masks in Python only, as from_function(f)",
    ast.Constant: "a number or a string is no mask; a file of bools is Dense('FILE.npy')",
}


def parse_mask(text: str) -> Mask:
    """Make the mask that an expression says, such as ``Causal() & (Window(left=256) | Prefix(4))``.

    Allowed are the leaves of `LEAVES`, called with integers, bools, None, masks, lists and tuples of these, or
    the name of an ``.npy`` file in quotes for an array; ``& | ~``, and parentheses. ``rg.Causal()`` is ``Causal()``.

    Raises
    ------
    MaskError
        For anything else; the message has the column.
    """
    return _Reader(text).read()


@dataclass(frozen=True)
class _Reader:
    text: str

    def read(self) -> Mask:
        if len(self.text) > _MAX_LENGTH:
            raise MaskError(f"--mask has {len(self.text):,} characters; from {_MAX_LENGTH:,} on put its lists in files")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes in strings, say: what they mean is refused or is no file
                tree = ast.parse(self._line, mode="eval")
        except SyntaxError as error:
            raise self._fault_at(max(error.offset or 1, 1), f"not an expression ({error.msg})") from None
        except (RecursionError, MemoryError):
            raise self._fault_at(1, "nested too deeply") from None
        except ValueError:
            raise self._fault_at(1, "it holds characters that no expression has") from None
        return self._mask(tree.body, 1)

    @property
    def _line(self) -> str:
        """The text as one line that begins with its first sign: a parser minds lines and indents."""
        return self.text.strip().translate(dict.fromkeys(map(ord, "\n\r\f"), " "))

    def _mask(self, node: ast.expr, depth: int) -> Mask:
        if depth > _MAX_DEPTH:
            raise self._fault(node, f"more than {_MAX_DEPTH} operations one inside the other")
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](self._mask(node.left, depth + 1), self._mask(node.right, depth + 1))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return ~self._mask(node.operand, depth + 1)
        if isinstance(node, ast.Call):
            return self._leaf(node, depth + 1)
        if (name := _name(node)) in LEAVES:
            raise self._fault(node, f"{name} needs parentheses: {name}(...)")
        if isinstance(node, ast.Attribute) and node.attr == "npy":
            raise self._fault(node, f"a file of bools is Dense('{self._source(node)}')")
        what = node.op if isinstance(node, ast.UnaryOp) else node
        hint = _HINTS.get(type(what), "masks are " + ", ".join(LEAVES) + " under & | ~")
        raise self._fault(node, f"{self._source(node)} is no mask: {hint}")

    def _leaf(self, node: ast.Call, depth: int) -> Mask:
        name = _name(node.func)
        if name not in LEAVES:
            near = difflib.get_close_matches((name or "")[:40].capitalize(), LEAVES, n=1)
            hint = f"did you mean {near[0]}?" if near else "masks are " + ", ".join(LEAVES)
            raise self._fault(node, f"there is no mask {self._source(node.func)}: {hint}")
        for given in (*node.args, *node.keywords):
            if isinstance(given, ast.Starred) or (isinstance(given, ast.keyword) and given.arg is None):
                raise self._fault(given, "* and ** are not read: write the arguments out")
        values = [self._value(argument, depth) for argument in node.args]
        named: dict[str, Any] = {}
        for argument in node.keywords:
            if str(argument.arg) in named:
                raise self._fault(argument, f"{argument.arg}= was given twice")
            named[str(argument.arg)] = self._value(argument.value, depth)
        try:
            return LEAVES[name](*values, **named)
        except (TypeError, ValueError, OverflowError) as error:  # RegardError is a ValueError
            raise self._fault(node, str(error)) from None

    def _value(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.List | ast.Tuple) and depth <= _MAX_DEPTH:
            values = [self._value(element, depth + 1) for element in node.elts]
            return tuple(values) if isinstance(node, ast.Tuple) else values
        sign, number = 1, node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            sign, number = -1, node.operand
        if isinstance(number, ast.Constant) and type(number.value) is int:
            if number.value > _MAX_INT:
                raise self._fault(node, f"integers go up to {_MAX_INT}")
            return sign * number.value
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool)):
            return node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._array(node, node.value)
        operator = node.op if isinstance(node, ast.BinOp | ast.UnaryOp) else None
        if isinstance(node, ast.Call) or isinstance(operator, ast.BitAnd | ast.BitOr | ast.Invert):
            return self._mask(node, depth + 1)
        raise self._fault(
            node,
            f"{self._source(node)} is no argument of a mask: those are integers, True, False, None, lists, "
            "and names of .npy files in quotes",
        )

    def _array(self, node: ast.expr, path: str) -> Any:
        try:
            return npy_file(path).read()
        except RegardError as error:
            raise self._fault(node, str(error)) from None

    def _source(self, node: ast.expr) -> str:
        source = ast.get_source_segment(self._line, node) or ""
        return source if len(source) <= 40 else f"{source[:40]}\u2026"

    def _fault(self, node: ast.expr | ast.keyword, why: str) -> MaskError:
        before = self._line.encode()[: node.col_offset].decode()  # ast counts bytes
        return self._fault_at(len(before) + 1, why)

    def _fault_at(self, column: int, why: str) -> MaskError:
        column += len(self.text) - len(self.text.lstrip())
        return MaskError(f"--mask, column {column}: {why}")


def _name(node: ast.expr) -> str | None:
    """Name of a leaf, as ``Causal`` or ``rg.Causal``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _PREFIXES:
        return node.attr
    return None
