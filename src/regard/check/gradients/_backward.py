"""How gradients are asked for: a case and the gradient of its output go in, gradients in the case's layout come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.arrays import GraphCutError
from regard.check.candidate import _guard
from regard.check.candidate._candidate import Call, Candidate, quiet, refused
from regard.check.candidate._signature import OPERANDS, role_of

from ._layer import ROLES
from ._oracle import SHORT, Partial
from ._search import Answer, Cut

Backward: TypeAlias = Callable[[Case, Array], Answer]

# What a function of attention, and a layer, may have gradients of.
_OF = {False: (*OPERANDS, "bias"), True: ROLES}


@dataclass(frozen=True)
class Joined(ABC):
    """Gradients of a candidate, call by call, joined."""

    candidate: Candidate

    @property
    def roles(self) -> tuple[str, ...]:
        """What there may be a gradient of."""
        return _OF[self.candidate.signature.is_layer]

    @abstractmethod
    def pulled(self, call: Call, grad: Array) -> Mapping[str, Any]:
        """Go back through one call: gradients by role, in the function's layout."""

    def __call__(self, case: Case, grad_out: Array) -> Answer:
        """Answer, or refuse."""
        try:
            with quiet():
                return self._answer(case, grad_out)
        except GraphCutError as error:
            return Cut(str(error))
        except BaseException as error:
            return refused(error)

    def _answer(self, case: Case, grad_out: Array) -> Mapping[str, Array]:
        total: dict[str, Array] = {}
        cut: dict[str, None] = {}
        for call in self.candidate.calls(case):
            grad = grad_out[call.where]
            for role, x in self.pulled(call, self._turned(grad, grad.ndim)).items():
                if role == "bias" and case.bias is None:
                    continue
                if x is None:
                    cut[role] = None
                else:
                    self._add(total, case, role, call.where, x)
        found = {role: x for role, x in total.items() if role not in cut}
        if cut and not found:
            raise GraphCutError(f"no gradient is passed back: those of {', '.join(cut)} are None")
        return Partial(found, tuple(cut)) if cut else found

    def _add(self, total: dict[str, Array], case: Case, role: str, where: tuple[int, ...], x: Any) -> None:
        """Add the gradient of one call to what it is the gradient of."""
        found = self.candidate.arrays.read(x).astype(np.float64)
        found = found if role == "bias" else self._turned(found, 4 - len(where))
        if not where:
            total[role] = found
            return
        whole = total.setdefault(role, np.zeros(getattr(case, role).shape))
        whole[_place(whole.shape, case.query.shape, where)] += found

    def _turned(self, x: Array, axes: int) -> Array:
        """To the function's layout, or back."""
        if self.candidate.signature.is_layer:
            return self.candidate.batch_first(x)
        return np.swapaxes(x, -2, -3) if "sh" in self.candidate.words.layout and x.ndim == axes else x


@dataclass(frozen=True)
class ByVjp(Joined):
    """A function that comes with one for the way back: ``vjp(grad_out, *arguments of the function)``.

    It returns the gradients in the order of the function's operands, that of a bias after them, or by name. A layer's
    operands are x and its matrices. ``names`` holds the names that were seen, and what they belong to.
    """

    vjp: Callable[..., Any]
    names: dict[str, str] = field(default_factory=dict, compare=False)

    def pulled(self, call: Call, grad: Array) -> Mapping[str, Any]:
        """Call it."""
        arrays = self.candidate.arrays
        with arrays.calling(self.candidate.dtype):
            arguments = [self.candidate.send(grad), *call.arguments]
            found = _guard.call(self.vjp, arguments, call.keywords, arrays, "attention.vjp")
        if isinstance(found, Mapping):
            meant = {name: role for name in found if (role := operand_of(str(name), self.roles))}
            self.names.update({str(name): role for name, role in meant.items()})
            return {role: found[name] for name, role in meant.items()}
        if not isinstance(found, tuple | list):
            shorts = ", ".join(SHORT[role] for role in self.order if role != "bias")
            raise TypeError(f"vjp returns {type(found).__name__}: it must return ({shorts}), or a mapping by name")
        return dict(zip(self.order, found, strict=False))

    @property
    def order(self) -> tuple[str, ...]:
        """What the results belong to."""
        signature = self.candidate.signature
        given = (
            (*signature.positional, *signature.named) if signature.is_layer else (*signature.positional, *self.roles)
        )
        return tuple(dict.fromkeys(role for role in given if role in self.roles))


def operand_of(name: str, among: tuple[str, ...] = _OF[False]) -> str | None:
    """Tell which operand a gradient's name means, such as query, q, dq or grad_q."""
    plain = name.lower().replace("_", "")
    roles = (role_of(plain.removeprefix(prefix)) for prefix in ("", "d", "grad"))
    return next((role for role in roles if role in among), None)


@dataclass(frozen=True)
class ByLibrary(Joined):
    """A function whose library knows its derivative."""

    def pulled(self, call: Call, grad: Array) -> Mapping[str, Any]:
        """Call the function, and what the library makes of it."""
        candidate, slots = self.candidate, _slots(self.candidate, call, self.roles)

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
