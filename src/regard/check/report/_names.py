"""Every name that a finding may have, what it stands for, and where it is documented.

The catalogue of faults, the laws and the habits name themselves; here are the names beside them, given to what was
measured or refused. A page of the documentation is made from each entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from regard.check.faults import CATALOGUE
from regard.check.findings._verdicts import VERDICTS
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


_VERDICTS = tuple(Entry(v.name, "verdict", "verdicts", v.level, v.does, v.why, v.mend) for v in VERDICTS.values())


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
