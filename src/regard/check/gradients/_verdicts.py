"""Findings on gradients that are not made of the oracle's steps: names and texts."""

from __future__ import annotations

from regard.check.findings._verdicts import Verdict

_TRAINING = "Training needs these gradients, and does not get them."

CUT = Verdict(
    "GRAD_GRAPH_CUT",
    "fault",
    "the output has no gradient: the graph is cut on the way to it",
    "What lies before the cut is never trained, and nothing complains.",
    "no detach, .data, .item, .numpy or no_grad between the operands and the output",
)
REFUSED = Verdict(
    "GRAD_REFUSES",
    "warning",
    "gradients of some calls are refused",
    _TRAINING,
    "support them, or declare with supports= what is supported",
)
EMPTY = Verdict(
    "GRAD_NAN_EMPTY_ROW",
    "warning",
    "a row that may attend nowhere makes gradients NaN, though no loss depends on it",
    "Padding is enough for it: one such row, and the next step of training makes every weight NaN.",
    "set rows without keys to 0 before the softmax is differentiated, not only its result: 0 * NaN is NaN",
)
UNSTEADY = Verdict(
    "GRAD_NONDETERMINISTIC",
    "warning",
    "the same call gives different gradients",
    "A run of training cannot be repeated.",
    "sum in a fixed order: no atomic additions, no race of threads",
)
DROPOUT = Verdict(
    "DROPOUT_BWD_MASK_DIFFERS",
    "fault",
    "with one seed, other weights are dropped on the way back than on the way there",
    "The gradients belong to another output: training goes astray, slowly.",
    "keep the mask of the forward pass, or draw it again from the same state",
)
IMPRECISE = Verdict(
    "GRAD_IMPRECISE",
    "fault",
    "errors of the gradients are larger than rounding explains",
    "Small gradients drown in the errors.",
    "compute weights, their gradient and sums in float32 at least",
)
UNKNOWN = Verdict(
    "GRAD_UNKNOWN",
    "fault",
    "the gradients are wrong, and no fault of the catalogue, nor two of them, explains all of them",
    "The output is right and training is not.",
    "start with the smallest example, and the laws that are broken",
)
VERDICTS = (CUT, REFUSED, EMPTY, UNSTEADY, DROPOUT, IMPRECISE, UNKNOWN)
