"""Masks and biases written on the command line: parsed by a list of what is allowed, never evaluated."""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from regard._errors import RegardError

from ._npy import npy_file

_T = TypeVar("_T")
_PREFIXES = ("rg", "regard", "masks", "biases")
# Python's own parser is safe up to here; lists that are longer come from files.
_MAX_LENGTH, _MAX_DEPTH = 100_000, 100
_NUMBERS = {int: "integers", float: "numbers"}


@dataclass(frozen=True)
class Language(Generic[_T]):
    """What an option may say.

    Attributes
    ----------
    option, noun, plural
        Words for messages: ``--mask``, ``mask``, ``masks``.
    leaves
        What may be called, by name.
    binary, unary
        What an operator does to the values of expressions.
    operators
        The operators, as they are written.
    number
        ``float`` where fractions are allowed as arguments, else ``int``.
    largest
        Integers go up to it.
    file
        What to write for an array in a file, with a place for its name.
    hints
        What to say of a kind of node that is refused.
    error
        Raised for anything that is not of the language.
    """

    option: str
    noun: str
    plural: str
    leaves: Mapping[str, Callable[..., _T]]
    binary: dict[type[ast.operator], Callable[[_T, _T], _T]]
    unary: dict[type[ast.unaryop], Callable[[_T], _T]]
    operators: str
    number: type[int] | type[float]
    largest: int
    file: str
    hints: dict[type[ast.AST], str]
    error: type[RegardError]

    def parse(self, text: str) -> _T:
        """Make what an expression says; raise `error`, with the column, for anything that is not of the language."""
        return _Reader(self, text).read()


@dataclass(frozen=True)
class _Reader(Generic[_T]):
    language: Language[_T]
    text: str

    def read(self) -> _T:
        if len(self.text) > _MAX_LENGTH:
            raise self.language.error(
                f"{self.language.option} has {len(self.text):,} characters; from {_MAX_LENGTH:,} on put its lists in "
                "files"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes in strings, say: what they mean is refused or is no file
                tree = ast.parse(self._line, mode="eval")
        except SyntaxError as error:
            # Of more digits than Python reads it does not say where; its limit is 640 or more.
            if error.msg.startswith("Exceeds the limit") and (long := re.search(r"[\d_]{640,}", self._line)):
                raise self._fault_at(long.start() + 1, self._too_large) from None
            raise self._fault_at(max(error.offset or 1, 1), f"not an expression ({error.msg})") from None
        except (RecursionError, MemoryError):
            raise self._fault_at(1, "nested too deeply") from None
        except ValueError:
            raise self._fault_at(1, "it holds characters that no expression has") from None
        return self._expression(tree.body, 1)

    @property
    def _too_large(self) -> str:
        return f"integers go up to {self.language.largest}"

    @property
    def _line(self) -> str:
        """The text as one line that begins with its first sign: a parser minds lines and indents."""
        return self.text.strip().translate(dict.fromkeys(map(ord, "\n\r\f"), " "))

    def _expression(self, node: ast.expr, depth: int) -> _T:
        language = self.language
        if depth > _MAX_DEPTH:
            raise self._fault(node, f"more than {_MAX_DEPTH} operations one inside the other")
        if isinstance(node, ast.BinOp) and type(node.op) in language.binary:
            left, right = self._expression(node.left, depth + 1), self._expression(node.right, depth + 1)
            return language.binary[type(node.op)](left, right)
        if isinstance(node, ast.UnaryOp) and type(node.op) in language.unary:
            return language.unary[type(node.op)](self._expression(node.operand, depth + 1))
        if isinstance(node, ast.Call):
            return self._leaf(node, depth + 1)
        if (name := _name(node)) in language.leaves:
            raise self._fault(node, f"{name} needs parentheses: {name}(...)")
        if isinstance(node, ast.Attribute) and node.attr == "npy":
            raise self._fault(node, language.file.format(self._source(node)))
        what = node.op if isinstance(node, ast.UnaryOp) else node
        known = f"{language.plural} are {', '.join(language.leaves)} under {language.operators}"
        hint = language.hints.get(type(what), known)
        raise self._fault(node, f"{self._source(node)} is no {language.noun}: {hint}")

    def _leaf(self, node: ast.Call, depth: int) -> _T:
        language = self.language
        name = _name(node.func) or ""
        if name not in language.leaves:
            near = difflib.get_close_matches(name[:40].capitalize(), language.leaves, n=1)
            hint = f"did you mean {near[0]}?" if near else f"{language.plural} are {', '.join(language.leaves)}"
            raise self._fault(node, f"there is no {language.noun} {self._source(node.func)}: {hint}")
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
            return language.leaves[name](*values, **named)
        except (TypeError, ValueError, OverflowError) as error:  # RegardError is a ValueError
            raise self._fault(node, str(error)) from None

    def _value(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.List | ast.Tuple) and depth <= _MAX_DEPTH:
            values = [self._value(element, depth + 1) for element in node.elts]
            return tuple(values) if isinstance(node, ast.Tuple) else values
        sign, unsigned = 1, node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            sign, unsigned = -1, node.operand
        number = unsigned.value if isinstance(unsigned, ast.Constant) else None
        if isinstance(number, int | self.language.number) and not isinstance(number, bool):
            if isinstance(number, int) and number > self.language.largest:
                raise self._fault(node, self._too_large)
            return sign * number
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool)):
            return node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._array(node, node.value)
        operator = type(node.op) if isinstance(node, ast.BinOp | ast.UnaryOp) else None
        if isinstance(node, ast.Call) or operator in (*self.language.binary, *self.language.unary):
            return self._expression(node, depth + 1)
        raise self._fault(
            node,
            f"{self._source(node)} is no argument of a {self.language.noun}: those are "
            f"{_NUMBERS[self.language.number]}, True, False, None, lists, and names of .npy files in quotes",
        )

    def _array(self, node: ast.expr, path: str) -> Any:
        try:
            return npy_file(path).read()
        except RegardError as error:
            raise self._fault(node, str(error)) from None

    def _source(self, node: ast.expr) -> str:
        source = ast.get_source_segment(self._line, node) or ""
        return source if len(source) <= 40 else f"{source[:40]}\u2026"

    def _fault(self, node: ast.expr | ast.keyword, why: str) -> RegardError:
        before = self._line.encode()[: node.col_offset].decode()  # ast counts bytes
        return self._fault_at(len(before) + 1, why)

    def _fault_at(self, column: int, why: str) -> RegardError:
        column += len(self.text) - len(self.text.lstrip())
        return self.language.error(f"{self.language.option}, column {column}: {why}")


def _name(node: ast.expr) -> str | None:
    """Name of a leaf, as ``Causal`` or ``rg.Causal``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _PREFIXES:
        return node.attr
    return None
