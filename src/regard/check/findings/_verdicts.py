"""Findings that are not made of the oracle's steps, nor laws, nor habits: names and texts."""

from __future__ import annotations

from dataclasses import dataclass

from ._finding import Example, Finding


@dataclass(frozen=True)
class Verdict:
    """Name and texts of a finding, as in `regard.check.Finding`."""

    name: str
    level: str
    does: str
    why: str
    mend: str

    def finding(
        self,
        certainty: str,
        *evidence: str,
        does: str | None = None,
        level: str | None = None,
        example: Example | None = None,
        script: str = "",
    ) -> Finding:
        """Report it; ``does`` and ``level`` where this one says more than all of its kind."""
        said = does or self.does
        return Finding(
            self.name, level or self.level, certainty, said, self.why, self.mend, evidence, (), example, script
        )


VERDICTS = {
    verdict.name: verdict
    for verdict in (
        Verdict(
            "SCALE_UNKNOWN", "fault",
            "the weights are a softmax of q · k with a factor that is none of the known mistakes",
            "Weights trained with one factor are wrong with another.",
            "the finding has the factor as a number, and the closed forms that are nearest",
        ),
        Verdict(
            "NOT_SOFTMAX", "fault", "the logarithms of the weights are no line over q · k",
            "The weights come from something else than a softmax of q · k, and no known fault explains them.",
            "weights = softmax(scale * q · k)",
        ),
        Verdict(
            "WEIGHTS_DO_NOT_SUM_TO_ONE", "fault",
            "rows of the weights do not sum to 1, and no known fault explains how",
            "An output is then no mean of values: its size depends on the number of keys.",
            "divide by the sum over the keys; the finding has the sums",
        ),
        Verdict(
            "IMPRECISE", "fault",
            "errors are larger than rounding explains, and smaller than a fault's",
            "Something is rounded that should not be: scores, sums or the running output in 16 bits.",
            "compute scores, sums and output in float32 at least",
        ),
        Verdict(
            "UNKNOWN", "fault",
            "answers are wrong, and no fault of the catalogue explains all of them, nor do two that are likely",
            "Three faults at once, or one that nobody has written down yet.",
            "start with the smallest example, and the laws that are broken",
        ),
        Verdict(
            "WRONG_AT_SOME_SIZE", "fault", "at some sizes the result is wrong, at others right",
            "Loops over blocks go wrong at what is left over, and at the first size that needs a second block.",
            "look at the size in the smallest example: the remainder of a block, or a constant that it exceeds",
        ),
        Verdict(
            "REFUSES", "warning",
            "a call with some shapes or options raises an exception; a fault where every call does",
            "Nothing can be said about what is not answered.",
            "declare how it is called (layout=, mask=), or say with supports= what it does not have; what takes one "
            "size only, needs more arguments or returns a dict is checked by a function of query, key and value around "
            'it, as in the how-to "Check your own kernel"',
        ),
        Verdict(
            "CRASHES", "fault",
            "a call ends the process: a segmentation fault, an abort, memory that runs out; seen by the command only",
            "No exception can be caught: the caller's program is gone, with what it had not saved.",
            "check shapes, strides and dtypes before memory is read; the finding has the smallest call",
        ),
        Verdict(
            "HANGS", "fault", "a call gives no answer in time; seen by the command only",
            "A loop that does not end for some sizes, or a lock that nobody gives back, stops the caller's program.",
            "look at the lines that the finding names; --timeout gives slow functions more time",
        ),
        Verdict(
            "EXITS", "fault",
            "a call leaves the program, by sys.exit, os._exit or KeyboardInterrupt; seen by the command only",
            "A library that ends its caller's program takes a decision that is not its own.",
            "raise ValueError, or another exception that says what is wrong",
        ),
        Verdict(
            "EXPECTED_NOT_FOUND", "fault",
            "a finding was declared with expected=, and there is no sign of it; asked with strict=True only",
            "A reason that no longer holds hides the next fault of that name.", "take it out of expected",
        ),
    )
}  # fmt: skip
