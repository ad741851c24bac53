"""How gradients are asked for: a case and the gradient of its output go in, gradients in the case's layout come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.candidate import _guard
from regard.check.candidate._candidate import Call, Candidate, quiet, refused
from regard.check.candidate._signature import OPERANDS, role_of

from ._search import Answer

Backward: TypeAlias = Callable[[Case, Array], Answer]

NO_GRADIENT = "passes no gradient back"


@dataclass(frozen=True)
class Joined(ABC):
    """Gradients of a candidate, call by call, joined."""

    candidate: Candidate

    @abstractmethod
    def pulled(self, call: Call, grad: Array) -> Mapping[str, Any]:
        """Go back through one call: gradients by role, in the function's layout."""

    def __call__(self, case: Case, grad_out: Array) -> Answer:
        """Answer, or refuse."""
        try:
            with quiet():
                return self._answer(case, grad_out)
        except (Exception, SystemExit) as error:
            return refused(error)

    def _answer(self, case: Case, grad_out: Array) -> Mapping[str, Array]:
        total: dict[str, Array] = {}
        for call in self.candidate.calls(case):
            grad = grad_out[call.where]
            for role, x in self.pulled(call, self._turned(grad, grad.ndim)).items():
                if role in (*OPERANDS, "bias") and getattr(case, role, None) is not None:
                    self._add(total, case, role, call.where, x)
        return total

    def _add(self, total: dict[str, Array], case: Case, role: str, where: tuple[int, ...], x: Any) -> None:
        """Add the gradient of one call to what it is the gradient of."""
        if x is None:
            raise TypeError(f"{NO_GRADIENT}: that of {role} is None")
        found = self.candidate.arrays.read(x).astype(np.float64)
        found = found if role == "bias" else self._turned(found, 4 - len(where))
        if not where:
            total[role] = found
            return
        whole = total.setdefault(role, np.zeros(getattr(case, role).shape))
        whole[_place(whole.shape, case.query.shape, where)] += found

    def _turned(self, x: Array, axes: int) -> Array:
        """To the function's layout, or back."""
        return np.swapaxes(x, -2, -3) if "sh" in self.candidate.words.layout and x.ndim == axes else x


@dataclass(frozen=True)
class ByVjp(Joined):
    """A function that comes with one for the way back: ``vjp(grad_out, *arguments of the function)``.

    It returns the gradients in the order of the function's operands, that of a bias after them, or by name.
    """

    vjp: Callable[..., Any]

    def pulled(self, call: Call, grad: Array) -> Mapping[str, Any]:
        """Call it."""
        arrays = self.candidate.arrays
        with arrays.calling(self.candidate.dtype):
            arguments = [self.candidate.send(grad), *call.arguments]
            found = _guard.call(self.vjp, arguments, call.keywords, arrays, "attention.vjp")
        if isinstance(found, Mapping):
            return {role: x for name, x in found.items() if (role := operand_of(str(name)))}
        if not isinstance(found, tuple | list):
            raise TypeError(f"vjp returns {type(found).__name__}: it must return (dq, dk, dv), or a mapping by name")
        return dict(zip(self.order, found, strict=False))

    @property
    def order(self) -> tuple[str, ...]:
        """What the results belong to."""
        first = [role for role in self.candidate.signature.positional if role in OPERANDS]
        return (*first, *(role for role in OPERANDS if role not in first), "bias")


def operand_of(name: str) -> str | None:
    """Tell which operand a gradient's name means, such as query, q, dq or grad_q."""
    plain = name.lower().replace("_", "")
    roles = (role_of(plain.removeprefix(prefix)) for prefix in ("", "d", "grad"))
    return next((role for role in roles if role in (*OPERANDS, "bias")), None)


@dataclass(frozen=True)
class ByLibrary(Joined):
    """A function whose library knows its derivative."""

    def pulled(self, call: Call, grad: Array) -> Mapping[str, Any]:
        """Call the function, and what the library makes of it."""
        return pulled_by_library(self.candidate, call, grad, (*OPERANDS, "bias"))


def pulled_by_library(candidate: Candidate, call: Call, grad: Array, roles: tuple[str, ...]) -> dict[str, Array]:
    """Go back through one call to those of the roles that it has an argument for."""
    slots = _slots(candidate, call, roles)

    def fn(*operands: Any) -> Any:
        filled = dict(zip(slots.values(), operands, strict=True))
        arguments = [filled.get(at, x) for at, x in enumerate(call.arguments)]
        keywords = {name: filled.get(name, x) for name, x in call.keywords.items()}
        return candidate.element_of(candidate.invoke(Call(arguments, keywords)))

    given = [call.arguments[at] if isinstance(at, int) else call.keywords[at] for at in slots.values()]
    with candidate.arrays.calling(candidate.dtype):
        _, pullback = candidate.arrays.pull(fn, given)
        return dict(zip(slots, pullback(grad), strict=True))


def backward_of(candidate: Candidate, vjp: Callable[..., Any] | None) -> Backward | None:
    """Find the way back: the one that is given, or comes with the function, or the library's; None if there is none."""
    vjp = vjp or getattr(candidate.fn, "vjp", None)
    if vjp is not None:
        return ByVjp(candidate, vjp)
    return None if candidate.arrays.name == "numpy" else ByLibrary(candidate)


def _slots(candidate: Candidate, call: Call, roles: tuple[str, ...]) -> dict[str, int | str]:
    """Where each role is among the arguments: by position or by name."""
    signature = candidate.signature
    by_name = {role: name for role, name in signature.named.items() if name in call.keywords}
    by_position = {role: at for at, role in enumerate(signature.positional)}
    slots: dict[str, int | str] = {**by_name, **by_position}
    return {role: slots[role] for role in roles if role in slots}


def _place(shape: tuple[int, ...], queries: tuple[int, ...], where: tuple[int, ...]) -> tuple[int, ...]:
    """Where the entry of a batch entry, or head, is in an array that has as many of them, or fewer that are shared."""
    return tuple(at // (full // n) for at, n, full in zip(where, shape, queries, strict=False))
