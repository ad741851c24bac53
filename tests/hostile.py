"""A tiny model's folder to be spoiled, `regard view` on it, and what a refusal looks like."""

import json
import re
import sys

import pytest

from regard.cli.__main__ import main
from tiny_bert import random_tensors, write_config, write_safetensors, write_tokenizer

TEXT = "the animal was too tired"


def write_model(folder):
    folder.mkdir()
    write_config(folder)
    write_safetensors(folder / "model.safetensors", random_tensors())
    write_tokenizer(folder / "tokenizer.json")
    return folder


def viewer(capfd, monkeypatch, folder):
    """Return a function that runs `regard view`; exit code, stdout, stderr, with what Rust prints itself."""
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments, model=folder):
        monkeypatch.setattr(sys, "argv", ["regard", "view", "--model", str(model), *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capfd.readouterr()
        return exit_.value.code or 0, out, err

    return run


def assert_refused(result, message):
    code, out, err = result
    assert (code, out) == (2, "")
    assert re.fullmatch(f"regard: .*({message}).*\n", err), err
    assert len(err) < 700
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", err)


def spoil_tokenizer(folder, change):
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
