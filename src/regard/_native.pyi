"""The native engine. What it is given is right: every check and every message is in `regard._plan`."""

from collections.abc import Sequence

from regard._types import Array

class View:
    """An array with the byte offset of each of its heads, and the byte strides of its rows and columns."""

    def __init__(self, array: Array, heads: Array, row: int, col: int, writable: bool = False) -> None: ...
    @staticmethod
    def over(array: Array, grid: Sequence[int], heads: Array | None) -> View:
        """Lay an array over the scores, an axis of size 1 over all; ``heads`` are the numbers of those to take."""

    @staticmethod
    def along(array: Array, grid: Sequence[int], starts: Sequence[int], heads: Array | None) -> View:
        """Lay the last axis along the diagonals: query i and key j find theirs at ``start + j - i`` of their entry."""

class Sizes:
    """What a call counts."""

    def __init__(self, heads: int, queries: int, keys: int, d: int, dv: int) -> None: ...

class Band:
    """A band of lowered mask: kind 0 full, 1 spans, 2 bits, 3 bytes; query rows [begin, end)."""

    def __init__(self, kind: int, rows: View | None, width: int, begin: int, end: int) -> None: ...
    @staticmethod
    def alike(edges: Sequence[int], heads: int, begin: int, end: int) -> Band:
        """Make the band whose rows, of all heads, keep the same spans."""

class ScoreMap:
    """What happens to a score: scale, softcap (0: none), a sink per head (float64), and biases."""

    def __init__(self, scale: float, softcap: float, sinks: Array | None) -> None: ...
    def add_bias(self, view: View, dtype: int) -> None:
        """Add a bias after those that there are."""

class Call:
    """What calls have in common whose heads are alike: ``grid`` is the leading axes and that of the query heads."""

    def __init__(
        self, target: str, dtype: int, threads: int, grid: Sequence[int], group: int, row_invariant: bool
    ) -> None: ...
    def attend(
        self,
        query: Array,
        key: Array,
        value: Array,
        out: Array,
        state: Array | None,
        max: Array | None,
        sum: Array | None,
        lse: Array | None,
        band: Band,
        map: ScoreMap,
    ) -> None:
        """Compute the query rows of a band; how many heads, rows and columns there are, and where, each array tells."""

def place_heads(shape: Sequence[int], strides: Sequence[int], grid: Sequence[int], group: int) -> bytes: ...
def weights(
    target: str,
    dtype: int,
    threads: int,
    query: View,
    key: View,
    out: View,
    max: Array,
    sum: Array,
    sizes: Sizes,
    band: Band,
    map: ScoreMap,
    begin: int,
    end: int,
) -> None: ...

class Question:
    """What a call would make of one band; no array is read."""

    def __init__(
        self, target: str, dtype: int, threads: int, key: View, value: View, sizes: Sizes, band: Band
    ) -> None: ...
    def count_tiles(self) -> tuple[int, int, int]: ...
    def chunk_bytes(self) -> int: ...
    def task_pairs(self) -> list[int]:
        """Count the pairs that each task computes, in the order in which tasks are handed out."""

def kernel(target: str, dtype: int, d: int, dv: int) -> tuple[int, int, int]: ...
def processors() -> int: ...
def enable(target: str) -> str | None: ...
def targets() -> list[tuple[str, bool, str]]: ...
