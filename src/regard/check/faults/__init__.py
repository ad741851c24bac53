"""The catalogue: every fault that check knows by name, a module per group."""

from __future__ import annotations

from regard.check._fault import Fault

from . import causal, dropout, heads, layout, mask, normalisation, scale, score, stability, tiles

GROUPS = tuple(
    module.GROUP
    for module in (scale, normalisation, stability, tiles, mask, causal, score, layout, heads, dropout)
)  # fmt: skip
CATALOGUE: tuple[Fault, ...] = tuple(fault for group in GROUPS for fault in group.faults)
BY_NAME = {name: fault for fault in CATALOGUE for name in fault.names}
