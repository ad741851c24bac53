"""What regard raises: each message states the fact, the values and the way out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches


class RegardError(ValueError):
    """Base of every error that regard raises for a user's reason."""

    __module__ = "regard"


class ShapeError(RegardError):
    """Shapes, head counts or head sizes that do not fit together."""

    __module__ = "regard"


class DTypeError(RegardError):
    """A dtype that is refused, or dtypes that differ."""

    __module__ = "regard"


class AlignmentError(RegardError):
    """The position of the queries among the keys is ambiguous or contradictory."""

    __module__ = "regard"


class MaskError(RegardError):
    """A mask that is not a mask, or that does not fit the scores."""

    __module__ = "regard"


class UnsupportedError(RegardError):
    """Something that this version, or this machine, cannot do; the message lists why."""

    __module__ = "regard"


def written(value: object) -> str:
    """Write a value out for a message; an integer of more digits than Python writes out, by its size.

    Examples
    --------
    >>> written(3), written(-(10**5000))
    ('3', '<negative int of 16,610 bits>')
    """
    try:
        return repr(value)
    except ValueError:
        if isinstance(value, int):
            return f"<{'negative ' if value < 0 else ''}{type(value).__name__} of {value.bit_length():,} bits>"
        return f"<{type(value).__name__} that cannot be written out>"


def listed(names: Iterable[str], most: int) -> str:
    """Spell names out for a message, each once, and no more than ``most`` of them; "none" for no name."""
    once = list(dict.fromkeys(names))
    rest = len(once) - most
    return (", ".join(once[:most]) or "none") + (f" and {rest} more" if rest > 0 else "")


def refuse_unknown(
    unknown: Iterable[str], known: Collection[str], no: str, there_are: str, peers: Mapping[str, str] | None = None
) -> None:
    """Raise TypeError for names of arguments that do not exist; ``peers`` tells what to write for other libraries'.

    Examples
    --------
    >>> refuse_unknown(["masks"], ("mask", "bias"), "there is no argument", "the options are")
    Traceback (most recent call last):
    TypeError: there is no argument 'masks'; did you mean mask=?; the options are mask, bias
    """
    for name in unknown:
        if peers and name in peers:
            raise TypeError(f"{name}= is another library's argument; here write {peers[name]}")
        meant = "".join(f"; did you mean {close}=?" for close in get_close_matches(name, known, n=1))
        raise TypeError(f"{no} {name!r}{meant}; {there_are} {', '.join(known)}")
