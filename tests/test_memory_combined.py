"""No combination of options allocates Sq x Skv: combinations drawn from a fixed seed, each in a process of its own."""

import numpy as np
import pytest

from test_memory import extra

KEYS = 16384  # scores would be 8 GiB
MOST = 70e6
SETUP = """
heads, batch = 4, 2
k, v = (np.broadcast_to(x, (batch, heads, S, {d})) for x in (k, v))
rng = np.random.default_rng(0)
ids = np.arange(S) // 700
row = (rng.random((1, 1, 1, S)) < 0.9)
per_head = row & (np.arange(S) % 64 != np.arange(heads).reshape(1, heads, 1, 1))
numbers = rng.standard_normal((1, 1, 1, S)).astype(np.float16)
column = rng.standard_normal((batch, heads, S, 1)).astype(np.float32)
table = rng.standard_normal((heads, 257))
"""
# What else a window is combined with: closed forms, tables, functions.
MASKS = [
    "rg.Full()",
    "rg.Documents(ids)",
    "rg.KeyLengths([S - 9, 1000])",
    "(rg.Dilated(3) | rg.Prefix(2))",
    "rg.Dense(row)",
    "rg.Dense(per_head)",
    "~rg.Chunked(100)",
    "rg.Blocks(np.eye(S // 256, dtype=bool), 256)",
    "rg.PerHead([rg.Causal(), rg.Full(), rg.Window(left=20), rg.Dilated(2)])",
    "rg.from_function(lambda b, h, p, j: (p - j) % 3 != 1)",
]
BIASES = ["None", "numbers", "column", "rg.Alibi(heads)", "rg.RelativeBias(table) + numbers + column",
          "rg.T5Bias(table[:, :32].T, bidirectional=True)"]  # fmt: skip


def combination(seed):
    """A call with an option of every kind, by chance."""
    rng = np.random.default_rng(seed)
    first, second = rng.choice(MASKS, 2, replace=False)
    either = rng.choice(["&", "|"])
    options = [
        f"mask=rg.Causal() & rg.Window(left=63) & {first} {either} rg.Window(left=9, right=9) & {second}",
        f"bias={rng.choice(BIASES)}",
        f"q_offset={rng.choice(['0', '[0, 5]', '[-7, 300]'])}",
        *(option for option in ("softcap=20.0", "sinks=np.ones(heads, dtype)", "scale=-0.5") if rng.random() < 0.5),
    ]
    return ", ".join(options), str(rng.choice(["float32", "float64", "float16", "bfloat16"]))


@pytest.mark.parametrize("seed", range(8))
def test_combinations(seed):
    options, dtype = combination(seed)
    call = f"(r := rg.attention_forward(q, k, v, aux=rg.Aux(state=True), {options})).out, np.exp(r.lse), r.state.out"
    outputs = 2 * 4 * KEYS * 4 * 2  # statistics of the rows, which weights are made from
    assert extra(call, SETUP.format(d=8), dtype, keys=KEYS, d=8, heads=4) < MOST + outputs, options


def test_this_test_can_fail():
    """A bias that is spelled out, at a quarter of the length."""
    call = "rg.attention(q, k, v, bias=rg.Alibi(heads).materialize(S, S, heads=heads)[None])"
    assert extra(call, SETUP.format(d=8), keys=KEYS // 4, d=8, heads=4) > 2 * MOST
