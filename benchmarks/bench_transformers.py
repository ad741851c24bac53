"""Time whole models of transformers with regard's attention, sdpa and eager: interleaved, random weights and tokens.

The models have the sizes of known ones with fewer layers, because layers are alike. Every contestant runs once per
round, in turn, on the same tokens; what is reported is the median of the rounds with its spread, and the median of the
ratios round by round. torch and regard have the same number of threads, pinned to as many processors. Outputs are
compared. A fourth contestant has zeros for attention: its time is that of everything else in the model.
From the root of the tree: ``python -m benchmarks.bench_transformers``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from rich.console import Console
from rich.progress import track
from rich.table import Table

import regard as rg
import regard.transformers
from benchmarks.machine import machine

HERE = Path(__file__).parent
CONTESTANTS = ("regard", "sdpa", "eager", "zeros")
BERT = {"num_hidden_layers": 4}  # otherwise BERT-base: 12 heads of 64, width 768
LLAMA = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2, "num_attention_heads": 16,
    "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 8192,
}  # fmt: skip


def zeros(module, query, key, value, mask, **options):
    return query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3]), None


def encoder():
    return hf.BertModel(hf.BertConfig(**BERT), add_pooling_layer=False).eval()


def decoder(window=None):
    config = hf.MistralConfig(**LLAMA, sliding_window=window) if window else hf.LlamaConfig(**LLAMA)
    return (hf.MistralForCausalLM if window else hf.LlamaForCausalLM)(config).eval()


def tokens(batch, length):
    return torch.randint(5, 5000, (batch, length), generator=torch.Generator().manual_seed(0))


def padded(ids):
    """The last quarter of every second sequence is padding."""
    mask = torch.ones_like(ids)
    mask[1::2, -ids.shape[1] // 4 :] = 0
    return mask


def encode(model, batch, length):
    ids = tokens(batch, length)
    mask = padded(ids)
    return lambda: model(input_ids=ids, attention_mask=mask).last_hidden_state[0]


def prefill(model, batch, length):
    ids = tokens(batch, length)
    return lambda: model(input_ids=ids, use_cache=False, logits_to_keep=1).logits


def decode(model, batch, length):
    """Ten steps behind a cache; it is cut back afterwards."""
    ids = tokens(batch, length)
    cache = hf.DynamicCache(config=model.config)
    model(input_ids=ids, cache=cache, logits_to_keep=1)

    def steps():
        for step in range(10):
            logits = model(input_ids=ids[:, step : step + 1], cache=cache).logits
        cache.crop(-10)
        return logits

    return steps


PROBLEMS = {
    "BERT-base, 4 of 12 layers, 4 x 512 tokens, padded": (encoder, encode, (4, 512)),
    "BERT-base, 4 of 12 layers, 8 x 128 tokens, padded": (encoder, encode, (8, 128)),
    "Llama-like, 2 layers, prompt of 2048 tokens": (decoder, prefill, (1, 2048)),
    "Mistral-like, 2 layers, window 1024, prompt of 4096 tokens": (lambda: decoder(1024), prefill, (1, 4096)),
    "Llama-like, 2 layers, 10 steps behind 2048 tokens": (decoder, decode, (1, 2048)),
    "Llama-like, 2 layers, 10 steps behind 128 tokens": (decoder, decode, (1, 128)),
}


def race(name, rounds):
    make, task, sizes = PROBLEMS[name]
    torch.manual_seed(0)
    model = make()
    calls = {}
    for contestant in CONTESTANTS:
        model.set_attn_implementation(contestant)
        calls[contestant] = task(model, *sizes)
    times = {contestant: [] for contestant in CONTESTANTS}
    outputs = {}
    for turn in track(range(rounds + 1), description=name, transient=True):  # the first round warms up
        for contestant, call in calls.items():
            model.set_attn_implementation(contestant)
            start = time.perf_counter()
            outputs[contestant] = call()
            if turn:
                times[contestant].append((time.perf_counter() - start) * 1e3)
    largest = float(outputs["eager"].abs().max())
    return {
        contestant: {
            "median_ms": float(np.median(own)),
            "min_ms": float(np.min(own)),
            "max_ms": float(np.max(own)),
            "time_over_regard": float(np.median(np.array(own) / np.array(times["regard"]))),
            "difference_from_eager": float((outputs[contestant] - outputs["eager"]).abs().max()) / largest,
            "rounds": len(own),
        }
        for contestant, own in times.items()
    }


def show(result):
    console = Console(width=100)
    for name, rows in result["problems"].items():
        table = Table(title=name)
        for column in ("", "median ms", "min - max", "time / regard's", "from eager"):
            table.add_column(column, justify="left" if column == "" else "right")
        for contestant, row in rows.items():
            table.add_row(
                contestant, f"{row['median_ms']:.1f}", f"{row['min_ms']:.1f} - {row['max_ms']:.1f}",
                f"{row['time_over_regard']:.2f}", f"{row['difference_from_eager']:.1e}",
            )  # fmt: skip
        console.print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="rounds per problem (default 11)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch and of regard (default 1)")
    parser.add_argument("-o", "--output", type=Path, help="JSON file (default: build/transformers.json)")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.threads :])
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    regard.transformers.register()
    hf.AttentionInterface.register("zeros", zeros)
    hf.AttentionMaskInterface.register("zeros", lambda **call: None)
    hf.logging.set_verbosity_error()
    with rg.config(num_threads=options.threads):
        result = {"machine": {**machine(), "torch": torch.__version__, "transformers": hf.__version__}}
        result["threads"] = options.threads
        result["problems"] = {name: race(name, options.rounds) for name in PROBLEMS}
    result["machine"]["load_after"] = os.getloadavg()[0]
    show(result)
    output = options.output or HERE.parent / "build" / "transformers.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {output}")


if __name__ == "__main__":
    main()
