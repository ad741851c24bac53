"""Right functions on the probes of many seeds: what a check would find.

Of a check only the probes depend on the seed; laws, habits and roundings are asked at fixed numbers.
"""

import numpy as np

import regard as rg
from check_right import RIGHT, everything, in_float64, regards, textbook, tiled
from regard.check._clock import Clock
from regard.check._run import Run
from regard.check.answers._probes import Setting
from regard.check.candidate._guess import Declared
from regard.check.candidate._understand import understand
from regard.check.instruments._dictionary import Search


def in_single(q, k, v):
    """As a kernel does: 16-bit operands and output, all else in float32."""
    return textbook(*(x.astype(np.float32) for x in (q, k, v))).astype(q.dtype)


WIDE = ("float64", "float32")
# Functions, and the dtypes in which they compute properly.
FUNCTIONS = {
    **dict.fromkeys((fn for fn in RIGHT if fn is not rg.reference.attention), WIDE),
    rg.reference.attention: ("float64",),
    **dict.fromkeys((rg.attention, regards, in_float64), (*WIDE, "bfloat16")),
    in_single: ("float32", "bfloat16"),
}
DECLARED = {**RIGHT, in_single: ({}, {}, {"INT_INPUT_TRUNCATED", "DTYPE_DOWNCAST"})}
# What is checked at many seeds: few, each of another kind.
KINDS = (rg.attention, regards, rg.reference.attention, textbook, tiled, everything, in_single)


def alarms(fns, dtype, seeds, tick=lambda: None, declared=DECLARED):
    """Findings that are not true of right functions, faults and warnings alike: {(function, seed): names}.

    Functions take turns at a seed: its models are made once.
    """
    able = [fn for fn in fns if dtype in FUNCTIONS.get(fn, (*WIDE, "bfloat16"))]
    asked, found = [(fn, *_understood(fn, dtype, declared)) for fn in able], {}
    for seed in seeds:
        for fn, known, told in asked:
            run = Run(known, told, Setting(seed, dtype, from_start=told.causal == "top-left"), Clock(1e9))
            search = Search(run.models, run.answers, lambda: True)
            if search.failing:
                names = {v.fault.name for one in search.simple().explanations for v in one} or set(search.failing)
                if not names <= declared.get(fn, ({}, {}, set()))[2]:
                    found[fn.__name__, seed] = sorted(names)
        tick()
    return found


def _understood(fn, dtype, declared):
    options, *_ = declared.get(fn, ({}, {}, set()))
    told = Declared(**{name: value for name, value in options.items() if name in ("causal", "supports")})
    return understand(fn, told, dtype), told
