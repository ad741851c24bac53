"""Instrument 2: inputs that make hidden quantities visible, and what is measured with them.

With the identity for values the output is the weights; their logarithm against q · k is a line whose slope is the
scale, whatever it is, and its residual says whether this is a softmax of q · k at all. With ones for values the output
is the row sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._tolerance import UNIT, Refused, exact_weights
from regard.check.candidate._candidate import Candidate

QUERIES, KEYS, HEADS = 5, 7, 3


@dataclass(frozen=True)
class Measured:
    """Numbers read off a function; None where they could not be.

    ``scale`` is the slope of log weights against q · k, ``residual`` what is left of them; ``sums`` the least and
    greatest row sum, ``columns`` the same over queries; ``bias`` the coefficient of a bias. ``pictures`` shows, for
    options that hide pairs, which are kept (■) and which are not (·), and what is right beside it; ``unit`` is that of
    the dtype.
    """

    expected_scale: float
    scale: float | None = None
    residual: float | None = None
    sums: tuple[float, float] | None = None
    columns: tuple[float, float] | None = None
    bias: float | None = None
    forms: tuple[tuple[str, float], ...] = ()
    unit: float = 0.0
    pictures: tuple[tuple[str, str], ...] = ()

    def lines(self, group: str | None = None) -> list[str]:
        """One line per number, or those that speak of a group of faults."""
        said: dict[str, list[str]] = {"scale": [], "normalisation": [], "score": []}
        if self.scale is not None and self.residual is not None:
            said["scale"].append(
                f"scale {self.scale:.6f} per q · k, expected {self.expected_scale:.6f}; "
                f"residual {self.residual:.1e} of the logarithms"
            )
            if self.scale_is_off and self.is_softmax:
                near = ", ".join(f"{name} = {value:.6f}" for name, value in self.forms)
                said["scale"].append(f"nearest closed forms: {near}")
        if self.sums is not None:
            said["normalisation"].append(f"rows of the weights sum to {_range(self.sums)}, expected 1")
        if self.columns is not None and self.sums_are_off:
            said["normalisation"].append(f"columns sum to {_range(self.columns)}")
        if self.bias is not None:
            said["score"].append(f"coefficient of the bias {self.bias:.6f}, expected 1")
        return [line for name, lines in said.items() if group in (None, name) for line in lines]

    @property
    def sums_are_off(self) -> bool:
        """Whether a row of weights does not sum to 1."""
        return self.sums is not None and max(abs(self.sums[0] - 1), abs(self.sums[1] - 1)) > max(1e-4, 8 * self.unit)

    @property
    def is_softmax(self) -> bool:
        """Whether log weights are a line over q · k."""
        return self.residual is not None and self.residual < max(1e-3, 8 * self.unit)

    @property
    def scale_is_off(self) -> bool:
        """Whether the scale is not the expected one."""
        return self.scale is not None and abs(self.scale / self.expected_scale - 1) > max(1e-3, 4 * self.unit)


def measure(candidate: Candidate, supports: frozenset[str]) -> Measured:
    """Measure a function that is no layer."""
    case = _case(supports, candidate.words.always_causal)
    width = case.query.shape[3]
    expected = 1 / math.sqrt(width)
    W = weights(candidate, case)
    if W is None:
        return Measured(expected, unit=UNIT[candidate.dtype])
    found = Measured(expected, sums=_ends(W.sum(axis=-1)), columns=_ends(W.sum(axis=-2)), unit=UNIT[candidate.dtype])
    if (W >= 0).all() and not case.causal:
        x = case.query @ case.key.swapaxes(-1, -2)
        slope, residual = _line(x, W)
        found = replace(found, scale=slope, residual=residual, forms=_nearest(slope, case))
    if "bias" in supports and not case.causal:
        found = replace(found, bias=_bias(candidate, case, W))
    return replace(found, pictures=tuple(_pictures(candidate, case, supports)))


def weights(candidate: Candidate, case: Case) -> Array | None:
    """Return the weights of a function, by the identity for values; None if it gives something else."""
    n = case.key.shape[2]
    got = candidate(replace(case, value=np.broadcast_to(np.eye(n), (*case.key.shape[:2], n, n))))
    want = (*case.query.shape[:3], n)
    return None if isinstance(got, Refused) or got.shape != want or not np.isfinite(got).all() else got


def _case(supports: frozenset[str], causal: bool) -> Case:
    rng = np.random.default_rng(17)
    keys = KEYS if "value_width" in supports else 8
    q, k = rng.standard_normal((2, HEADS, QUERIES, 8)), rng.standard_normal((2, HEADS, keys, 8))
    return Case("weights", q, k, np.zeros((2, HEADS, keys, keys)), causal=causal)


def _line(x: Array, W: Array) -> tuple[float | None, float | None]:
    """Slope and relative residual of log W over x, each row having its own constant; pairs of weight 0 are left out."""
    seen = W > 1e-30
    if not seen.any(axis=-1).all():
        return None, None
    count = seen.sum(axis=-1, keepdims=True)
    y = np.where(seen, np.log(np.where(seen, W, 1)), 0)
    x = np.where(seen, x, 0)
    x, y = (np.where(seen, z - z.sum(axis=-1, keepdims=True) / count, 0) for z in (x, y))
    if not (x * x).sum() or not (y * y).sum():
        return 0.0, 0.0
    slope = float((x * y).sum() / (x * x).sum())
    return slope, float(np.sqrt(((y - slope * x) ** 2).sum() / (y * y).sum()))


def _nearest(slope: float | None, case: Case) -> tuple[tuple[str, float], ...]:
    if slope is None:
        return ()
    d, n, m, h = case.query.shape[3], case.key.shape[2], case.query.shape[2], case.query.shape[1]
    forms = {
        "1": 1.0, "1/sqrt(d)": d**-0.5, "1/d": 1 / d, "sqrt(d)": d**0.5, "d^(-1/4)": d**-0.25, "2/sqrt(d)": 2 / d**0.5,
        "1/2": 0.5, "1/sqrt(keys)": n**-0.5, "1/sqrt(queries)": m**-0.5, "1/sqrt(heads)": h**-0.5,
        "1/(2 sqrt(d))": 0.5 / d**0.5,
        "1/sqrt(heads · d)": (h * d) ** -0.5, "ln(2)/sqrt(d)": math.log(2) / d**0.5, "1/sqrt(d + 1)": (d + 1) ** -0.5,
        "log2(e)/sqrt(d)": math.log2(math.e) / d**0.5, "1/sqrt(d/2)": (d / 2) ** -0.5, "1/sqrt(2 d)": (2 * d) ** -0.5,
        "0": 0.0,
    }  # fmt: skip
    return tuple(sorted(forms.items(), key=lambda form: abs(form[1] - slope))[:3])


def _bias(candidate: Candidate, case: Case, W: Array) -> float | None:
    bias = np.random.default_rng(18).standard_normal((*case.query.shape[:3], case.key.shape[2]))
    biased = weights(candidate, replace(case, bias=bias))
    if biased is None or (biased <= 0).any() or (W <= 0).any():
        return None
    moved = np.log(biased / W)
    moved, x = (z - z.mean(axis=-1, keepdims=True) for z in (moved, bias))
    return float((x * moved).sum() / (x * x).sum())


def _pictures(candidate: Candidate, case: Case, supports: frozenset[str]) -> list[tuple[str, str]]:
    """Which pairs have weight, for each option that hides some, of batch entry 0 and head 0."""
    shape = (2, HEADS, QUERIES, case.key.shape[2])
    mask = np.random.default_rng(19).random(shape) < 0.5
    mask[..., 0] = True
    asked = {
        "causal": replace(case, causal=True),
        "window": replace(case, causal=True, window=3),
        "mask": replace(case, mask=mask),
    }
    found = []
    for name, one in asked.items():
        one = replace(one, from_start=candidate.words.causal == "top-left")
        got = weights(candidate, one) if one.features - {"value_width"} <= supports else None
        if got is not None:
            want = exact_weights(one)
            if not np.array_equal(got > 1e-12, want > 1e-12):
                found.append((name, _side_by_side(got[0, 0] > 1e-12, want[0, 0] > 1e-12)))
    return found


def _side_by_side(got: Array, want: Array) -> str:
    rows = ["yours" + " " * max(1, 2 * want.shape[1] - 1) + "expected"]
    rows += [f"{_row(a)}    {_row(b)}" for a, b in zip(got, want, strict=True)]
    return "\n".join(rows)


def _row(kept: Sequence[bool]) -> str:
    return " ".join("■" if x else "·" for x in kept)


def _ends(x: Array) -> tuple[float, float]:
    return float(x.min()), float(x.max())


def _range(ends: tuple[float, float]) -> str:
    low, high = (f"{x:.6f}" for x in ends)
    return low if low == high else f"{low} to {high}"
