"""The gradients of a whole layer: of x and of its matrices, through the same steps as those of attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from regard._types import Array
from regard.check.answers._case import Case
from regard.check.answers._layers import layer_probes
from regard.check.answers._oracle import RIGHT
from regard.check.answers._probes import Setting
from regard.check.answers._tolerance import ALIKE, Judge, Refused
from regard.check.candidate._candidate import Candidate, quiet, refused
from regard.check.findings._finding import Finding
from regard.check.instruments._dictionary import Variant

from ._backward import pulled_by_library
from ._evidence import ratio
from ._faults import gradient_model
from ._oracle import RIGHT_GRADIENTS, GradientOracle
from ._search import VARIANTS
from ._verdicts import EMPTY, UNKNOWN, Verdict

ROLES = ("x", "wq", "wk", "wv", "wo")
# Gradients of matrices are sums over all positions.
_WIDER = 10
Found = dict[str, Array]


def layer_findings(
    candidate: Candidate, supports: frozenset[str], setting: Setting, in_time: Callable[[], bool]
) -> list[Finding]:
    """Find out which faults the gradients of a layer have, on probes whose output is right."""
    inquiry = _Layer(candidate, setting)
    answers = {}
    for case in layer_probes(setting.seed, setting.layer):
        case = replace(case.cast(setting.dtype), causal=case.causal or candidate.words.always_causal)
        features = case.features - ({"causal"} if candidate.words.always_causal else set())
        if features <= supports and in_time() and inquiry.is_right(case):
            answers[case] = inquiry.ask(case)
    return inquiry.findings(answers)


class _Layer:
    def __init__(self, candidate: Candidate, setting: Setting) -> None:
        self.candidate, self.setting = candidate, setting
        self.roles = ROLES if setting.layer.has_out else ROLES[:-1]

    def is_right(self, case: Case) -> bool:
        """Whether the output is, in rows that attend anywhere."""
        right, got = Judge.of(case, self.setting.dtype), self.candidate(case)
        if isinstance(got, Refused) or got.shape != right.right.shape:
            return False
        return right.passes(np.where(self._attending(case), got, right.right))

    def _attending(self, case: Case) -> Array:
        positions = case.query.shape[1]
        sees = np.asarray(RIGHT.visible(case, positions, positions).any(axis=-1)).reshape(-1, positions)
        return np.asarray(sees.all(axis=0)).reshape(positions, 1)

    def sent_back(self, case: Case) -> Array:
        """Multiples of 1/8; nothing to a row that attends nowhere."""
        numbers = np.random.default_rng(43).standard_normal(case.query.shape)
        return np.asarray(np.round(8 * numbers) / 8 * self._attending(case))

    def ask(self, case: Case) -> Found | Refused:
        """Gradients by role, or a refusal."""
        grad = self.candidate.batch_first(self.sent_back(case))
        try:
            with quiet():
                found = pulled_by_library(self.candidate, self.candidate.calls(case)[0], grad, self.roles)
        except (Exception, SystemExit) as error:
            return refused(error)
        read = {role: self.candidate.arrays.read(x).astype(np.float64) for role, x in found.items()}
        return {**read, "x": self.candidate.batch_first(read["x"])}

    def findings(self, answers: Mapping[Case, Found | Refused]) -> list[Finding]:
        """One for NaN, one for what is wrong."""
        given = {case: got for case, got in answers.items() if not isinstance(got, Refused)}
        spoilt = {case: got for case, got in given.items() if not all(np.isfinite(x).all() for x in got.values())}
        found = [_of_verdict(EMPTY, _spoilt(case, got)) for case, got in list(spoilt.items())[:1]]
        sound = {case: got for case, got in given.items() if case not in spoilt}
        wrong = [case for case, got in sound.items() if not self.alike(got, self.right(case))]
        if not wrong:
            return found
        evidence = self._lines(wrong[0], sound[wrong[0]])
        named = [v for v in VARIANTS if all(self.alike(got, self.right(case, v)) for case, got in sound.items())]
        if not named:
            return [_of_verdict(UNKNOWN, *evidence), *found]
        fault = named[0].fault
        others = tuple(dict.fromkeys(v.fault.name for v in named if v.fault is not fault))
        share = f"{len(sound)} of {len(sound)} gradients are explained, {len(wrong)} are wrong"
        return [Finding(fault.name, "fault", share, fault.does, fault.why, fault.mend, evidence, others), *found]

    def right(self, case: Case, variant: Variant | None = None) -> Found:
        """Answer for the layer, with a fault planted or without."""
        oracle = gradient_model(variant.steps) if variant else RIGHT_GRADIENTS
        return layer_gradients(oracle, case, self.sent_back(case))

    def alike(self, got: Found, want: Found) -> bool:
        """Whether gradients are the same but for rounding."""
        return all(
            got[role].shape == want[role].shape
            and np.abs(got[role] - want[role]).max() <= _WIDER * ALIKE[self.setting.dtype] * np.abs(want[role]).max()
            for role in self.roles
        )

    def _lines(self, case: Case, got: Found) -> tuple[str, ...]:
        lines = []
        right = self.right(case)
        for role in self.roles:
            factor, left = ratio(got[role], right[role])
            lines.append(f"on {case.name}: d{role} is {factor:.6f} times the right one, and {left:.1e} of it off")
        return tuple(lines)


def layer_gradients(oracle: GradientOracle, case: Case, grad_out: Array) -> Found:
    """Go back through the last matrix, the heads, and the first three matrices."""
    assert case.layer
    layer, x = case.layer, case.query
    plain = replace(case, nan_rows=False, layer=replace(layer, out=np.eye(len(layer.out))))
    q, k, v = (RIGHT.split(case, y) for y in RIGHT.project(case))
    heads = Case(case.name, q, k, v, causal=case.causal, mask=case.mask, from_start=case.from_start)
    inner = oracle(heads, RIGHT.split(case, grad_out @ layer.out.T))
    dq, dk, dv = (RIGHT.merge(case, inner[name]) for name in ("query", "key", "value"))
    return {
        "x": dq @ layer.query.T + dk @ layer.key.T + dv @ layer.value.T,
        "wq": _over_all(x, dq),
        "wk": _over_all(x, dk),
        "wv": _over_all(x, dv),
        "wo": _over_all(RIGHT(plain), grad_out),
    }


def _over_all(x: Array, dy: Array) -> Array:
    """Gradient of a matrix that every position is multiplied by."""
    return np.asarray(np.einsum("bsi,bso->io", x, dy))


def _spoilt(case: Case, got: Found) -> str:
    names = ", ".join(f"d{role}" for role, x in got.items() if not np.isfinite(x).all())
    return f"NaN or Inf in {names} on {case.name}: nothing is sent back to the empty row"


def _of_verdict(verdict: Verdict, *evidence: str) -> Finding:
    return Finding(verdict.name, verdict.level, "seen", verdict.does, verdict.why, verdict.mend, evidence)
