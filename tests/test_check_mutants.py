"""Every fault of the catalogue, planted in a plain NumPy function, is found and called by its name and no other."""

import pytest

import regard as rg
from check_mutants import mutants
from regard.check.faults import CATALOGUE, GROUPS

# Where the right call for it is also a right function of another kind, the kind is declared.
DECLARED = {
    "AXES_SWAPPED": {"layout": "bhsd"},
    "MASK_INVERTED": {"mask": "keep"},
    "MASK_BOOL_ADDED": {"mask": "keep"},
    "CAUSAL_BOTTOM_RIGHT": {"causal": "top-left"},
    "EMPTY_ROW_ZERO": {"empty_row": "nan"},
}
FIRST = {fault.name: (fault, fn) for fault, label, fn in mutants() if label == next(iter(fault.variants))}
# True of them besides: they take values for keys, or refuse shapes that the fault does not allow.
ALSO = {"REFUSES", "SILENT_BROADCAST", "EMPTY_SHAPE_CRASH", "CAUSAL_FUTURE_NAN", "RETURNS_TUPLE"}


def test_no_fault_is_left_out():
    assert {fault.name for fault in CATALOGUE} - set(FIRST) == {"RETURNS_TUPLE", "LSE_WRONG"}  # elsewhere


@pytest.mark.parametrize("group", [group.name for group in GROUPS])
def test_every_mutant_is_named(group):
    wrong = {}
    for name, (fault, fn) in FIRST.items():
        if fault.group != group:
            continue
        report = rg.check(fn, **DECLARED.get(name, {}))
        first = report.findings[0] if report.findings else None
        named = first is not None and first.name == name and first.also == fault.also
        level = first is not None and first.level == ("warning" if fault.edge else "fault")
        if not named or not level or first.example is None or set(report.names) - {name} - ALSO:
            wrong[name] = report.names
    assert wrong == {}
