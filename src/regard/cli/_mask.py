"""Masks written on the command line, such as ``Causal() & (Window(left=256) | Prefix(4))``."""

from __future__ import annotations

import ast
import operator

from regard import masks
from regard._errors import MaskError
from regard.masks import Mask

from ._expression import Language

LEAVES = {
    leaf.__name__: leaf
    for leaf in (
        masks.Full, masks.Empty, masks.Causal, masks.Window, masks.Prefix, masks.Global, masks.Chunked, masks.Dilated,
        masks.KeyLengths, masks.KeyPadding, masks.Documents, masks.Blocks, masks.Dense, masks.PerHead,
    )
}  # fmt: skip
_COMBINE = "masks combine with & | ~, not and / or / not"
_MASKS = Language[Mask](
    option="--mask",
    noun="mask",
    plural="masks",
    leaves=LEAVES,
    binary={ast.BitAnd: operator.and_, ast.BitOr: operator.or_},
    unary={ast.Invert: operator.invert},
    operators="& | ~",
    number=int,
    largest=2**63 - 1,
    file="a file of bools is Dense('{}')",
    hints={
        ast.BoolOp: _COMBINE,
        ast.Not: _COMBINE,
        ast.Compare: "write a mask, such as Causal() & Window(left=256)",
        ast.Lambda: "functions are masks in Python only, as from_function(f)",
        ast.Constant: "a number or a string is no mask; a file of bools is Dense('FILE.npy')",
    },
    error=MaskError,
)


def parse_mask(text: str) -> Mask:
    """Make the mask that an expression says.

    Allowed are the leaves of `LEAVES`, called with integers, bools, None, masks, lists and tuples of these, or
    the name of an ``.npy`` file in quotes for an array; ``& | ~``, and parentheses. ``rg.Causal()`` is ``Causal()``.

    Raises
    ------
    MaskError
        For anything else; the message has the column.
    """
    return _MASKS.parse(text)
