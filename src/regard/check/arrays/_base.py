"""What check asks of an array library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from regard._types import Array

# From the gradient of an output to the gradients of the operands.
Pullback: TypeAlias = Callable[[Array], "list[Array]"]


class GraphCutError(TypeError):
    """Nothing leads back from an output to what it was made of."""


class Arrays(Protocol):
    """An array library, as the probes need it. Arrays that are sent are new each time."""

    @property
    def name(self) -> str:
        """As `rg.check(library=)` has it."""

    @property
    def writable(self) -> bool:
        """Whether a function can write into arrays, and give out views of them."""

    @property
    def patience(self) -> int:
        """How many times as long as NumPy's functions its functions may take."""

    @property
    def drawing(self) -> str:
        """Python text of what `random` returns, of seed 11."""

    def send(self, x: Array) -> Any:
        """Return an array with these elements and this dtype."""

    def read(self, x: Any) -> Array:
        """View an array as NumPy's, where it can be; TypeError for what is no array."""

    def is_array(self, x: Any) -> bool:
        """Whether a value is an array of this library."""

    def calling(self, dtype: str) -> AbstractContextManager[Any]:
        """Within it the function is called with arrays of a dtype."""

    def random(self, seed: int) -> Any:
        """Return what this library's functions draw from."""

    def views(self, x: Any) -> dict[str, Any]:
        """Return arrays with the same elements and other strides, by what they are."""

    def pull(self, fn: Callable[..., Any], operands: Sequence[Any]) -> tuple[Any, Pullback]:
        """Call a function of arrays and get its pullback; GraphCutError where nothing leads back from the output."""

    def threads(self, count: int) -> AbstractContextManager[Any] | None:
        """Within it the library computes with so many threads; None where that cannot be set from within."""

    def words(self, dtype: str) -> tuple[str, str, str]:
        """Return Python text: imports, and the functions that give an array and read one, as ``give`` and ``read``."""
