"""The catalogue: every fault that check knows by name, a module per group."""

from __future__ import annotations

from regard.check.answers._fault import Fault

from . import alibi, causal, dropout, heads, layout, lse, mask, normalisation, precision, scale, score, stability, tiles

# Those that the search tries on the probes; the others have cases of their own.
SEARCHED = tuple(
    module.GROUP
    for module in (scale, normalisation, stability, tiles, mask, causal, score, alibi, layout, heads, dropout)
)  # fmt: skip
GROUPS = (*SEARCHED, precision.GROUP, lse.GROUP)
CATALOGUE: tuple[Fault, ...] = tuple(fault for group in GROUPS for fault in group.faults)
BY_NAME = {name: fault for fault in CATALOGUE for name in fault.names}
