"""Whether an answer is one: its error against the exact one."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._types import Array

from ._problem import Problem

# Largest error of a row over its length, some ten times what right functions have here. Another mask, scale or head
# is a hundred times above.
LIMIT = {"float32": 3e-5, "float16": 1e-2, "bfloat16": 4e-2}


class RefusedError(Exception):
    """A contestant that is not timed."""


class WrongAnswerError(RefusedError):
    """One whose answer is not that of the problem."""


class UnfairError(RefusedError):
    """One that does not run with the threads of the problem."""

    @classmethod
    def unless(cls, asked: int, has: int) -> None:
        """Refuse another number than was asked for."""
        if has != asked:
            raise cls(f"it has {has} thread{'s' if has != 1 else ''}; {asked} were asked for")


def error(answer: Any, exact: Array, problem: Problem) -> dict[str, float]:
    """Error against the exact answer at the rows that are looked at; refuses what is no answer to it."""
    answer = np.asarray(answer)
    shape = (*problem.query[:3], problem.key[3])
    if answer.shape != shape:
        raise WrongAnswerError(f"its answer has shape {answer.shape}, not {shape}")
    off = answer[:, :, problem.looked_at].astype(np.float64) - exact
    if not np.isfinite(off).all():
        raise WrongAnswerError("its answer has Inf or NaN")
    row = float((np.linalg.norm(off, axis=-1) / np.linalg.norm(exact, axis=-1)).max())
    limit = LIMIT[problem.dtype]
    if row > limit:
        raise WrongAnswerError(f"a row of its answer is off by {row:.2g} of its length; {limit:.0e} is allowed")
    return {
        "max_abs_error": float(np.abs(off).max()),
        "worst_row_error": row,
        "relative_error": float(np.linalg.norm(off) / np.linalg.norm(exact)),
    }
