"""Every name that a finding may have, what it stands for, and where it is documented.

The catalogue of faults, the laws and the habits name themselves; here are the names beside them, given to what was
measured or refused. A page of the documentation is made from each entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from regard.check.faults import CATALOGUE
from regard.check.gradients import CATALOGUE as GRADIENTS
from regard.check.gradients import VERDICTS as OF_GRADIENTS
from regard.check.habits import HABITS
from regard.check.instruments._laws import LAWS


@dataclass(frozen=True)
class Entry:
    """What a name of a finding stands for.

    Attributes
    ----------
    name : str
        The name.
    kind : str
        ``"fault"``, ``"law"``, ``"habit"``, or ``"verdict"`` for what was measured or refused.
    group : str
        What it is about, such as ``"scale"`` or ``"mask"``.
    level : str
        ``"fault"`` or ``"warning"``, as in `Finding`.
    does, why, mend : str
        What the function does, why it matters, and how to mend it.
    also : tuple of str
        Other names of what cannot be told apart from it.
    """

    name: str
    kind: str
    group: str
    level: str
    does: str
    why: str
    mend: str
    also: tuple[str, ...] = ()

    @property
    def page(self) -> str:
        """Its page in the documentation, without a suffix."""
        return f"faults/{self.name}"

    @property
    def hint(self) -> str:
        """The command that prints it."""
        return f"regard check --explain {self.name}"


_VERDICTS = (
    Entry(
        "SCALE_UNKNOWN", "verdict", "verdicts", "fault",
        "the weights are a softmax of q · k with a factor that is none of the known mistakes",
        "Weights trained with one factor are wrong with another.",
        "the finding has the factor as a number, and the closed forms that are nearest",
    ),
    Entry(
        "NOT_SOFTMAX", "verdict", "verdicts", "fault", "the logarithms of the weights are no line over q · k",
        "The weights come from something else than a softmax of q · k, and no known fault explains them.",
        "weights = softmax(scale * q · k)",
    ),
    Entry(
        "WEIGHTS_DO_NOT_SUM_TO_ONE", "verdict", "verdicts", "fault",
        "rows of the weights do not sum to 1, and no known fault explains how",
        "An output is then no mean of values: its size depends on the number of keys.",
        "divide by the sum over the keys; the finding has the sums",
    ),
    Entry(
        "IMPRECISE", "verdict", "verdicts", "fault",
        "errors are larger than rounding explains, and smaller than a fault's",
        "Something is rounded that should not be: scores, sums or the running output in 16 bits.",
        "compute scores, sums and output in float32 at least",
    ),
    Entry(
        "UNKNOWN", "verdict", "verdicts", "fault",
        "answers are wrong, and no fault of the catalogue, nor two of them, explains all of them",
        "Three faults at once, or one that nobody has written down yet.",
        "start with the smallest example, and the laws that are broken",
    ),
    Entry(
        "WRONG_AT_SOME_SIZE", "verdict", "verdicts", "fault", "at some sizes the result is wrong, at others right",
        "Loops over blocks go wrong at what is left over, and at the first size that needs a second block.",
        "look at the size in the smallest example: the remainder of a block, or a constant that it exceeds",
    ),
    Entry(
        "REFUSES", "verdict", "verdicts", "warning", "a call with some shapes or options raises an exception",
        "Nothing can be said about what is not answered.",
        "declare how it is called (layout=, mask=), or say with supports= what it does not have",
    ),
    Entry(
        "CRASHES", "verdict", "verdicts", "fault",
        "a call ends the process: a segmentation fault, an abort, memory that runs out; seen by the command only",
        "No exception can be caught: the caller's program is gone, with what it had not saved.",
        "check shapes, strides and dtypes before memory is read; the finding has the smallest call",
    ),
    Entry(
        "HANGS", "verdict", "verdicts", "fault", "a call gives no answer in time; seen by the command only",
        "A loop that does not end for some sizes, or a lock that nobody gives back, stops the caller's program.",
        "look at the lines that the finding names; --timeout gives slow functions more time",
    ),
    Entry(
        "EXITS", "verdict", "verdicts", "fault",
        "a call leaves the program, by sys.exit, os._exit or KeyboardInterrupt; seen by the command only",
        "A library that ends its caller's program takes a decision that is not its own.",
        "raise ValueError, or another exception that says what is wrong",
    ),
    Entry(
        "EXPECTED_NOT_FOUND", "verdict", "verdicts", "fault",
        "a finding was declared with expected=, and there is no sign of it; asked with strict=True only",
        "A reason that no longer holds hides the next fault of that name.", "take it out of expected",
    ),
)  # fmt: skip


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """List every name that a finding may have: faults by group, habits, laws, what was measured or refused.

    Returns
    -------
    tuple of Entry
        Each with its texts, its group, the page that documents it, and the command that prints it.

    Examples
    --------
    >>> from regard.check import entries
    >>> entry = next(entry for entry in entries() if entry.name == "CAUSAL_TOP_LEFT")
    >>> entry.group, entry.level, entry.page
    ('causal', 'fault', 'faults/CAUSAL_TOP_LEFT')
    >>> entry.hint
    'regard check --explain CAUSAL_TOP_LEFT'
    """
    faults = [
        Entry(f.name, "fault", f.group, "warning" if f.edge else "fault", f.does, f.why, f.mend, f.also)
        for f in (*CATALOGUE, *GRADIENTS)
    ]
    of_gradients = [Entry(v.name, "verdict", "gradients", v.level, v.does, v.why, v.mend) for v in OF_GRADIENTS]
    habits = [
        Entry(h.name, "habit", "behaviour", "warning" if h.edge else "fault", h.does, h.why, h.mend) for h in HABITS
    ]
    laws = [
        Entry(
            f"LAW_{law.name}", "law", "laws", "fault", f"not so: {law.says}",
            "Softmax attention has this property for all inputs.", "look for what the law excludes",
        )
        for law in LAWS
    ]  # fmt: skip
    return (*faults, *of_gradients, *habits, *laws, *_VERDICTS)


@lru_cache(maxsize=1)
def by_name() -> dict[str, Entry]:
    """Each name, those of the same function too, and its entry."""
    return {name: entry for entry in entries() for name in (entry.name, *entry.also)}
