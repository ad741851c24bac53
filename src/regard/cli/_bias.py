"""Biases written on the command line, such as ``Alibi(8) + DenseBias('bias.npy')``."""

from __future__ import annotations

import ast
import operator

from regard import biases
from regard._errors import UnsupportedError
from regard.biases import Bias

from ._expression import Language

LEAVES = {leaf.__name__: leaf for leaf in (biases.Alibi, biases.RelativeBias, biases.T5Bias, biases.DenseBias)}
_BIASES = Language[Bias](
    option="--bias",
    noun="bias",
    plural="biases",
    leaves=LEAVES,
    binary={ast.Add: operator.add},
    unary={},
    operators="+",
    number=float,
    largest=2**20,  # Alibi(heads) makes a number for each
    file="a file of numbers is DenseBias('{}')",
    hints={
        ast.Lambda: "functions are no biases: save an array, DenseBias('FILE.npy')",
        ast.Constant: "a number or a string is no bias; a file of numbers is DenseBias('FILE.npy')",
        ast.Name: "it is a shape such as 30,30, the name of an .npy file, or a bias such as Alibi(8)",
    },
    error=UnsupportedError,
)


def parse_bias(text: str) -> Bias:
    """Make the bias that an expression says.

    Allowed are the leaves of `LEAVES`, called with numbers, bools, None, lists and tuples of these, or the name of an
    ``.npy`` file in quotes for an array; ``+``, and parentheses. ``rg.Alibi(8)`` is ``Alibi(8)``.

    Raises
    ------
    UnsupportedError
        For anything else; the message has the column.
    """
    return _BIASES.parse(text)
