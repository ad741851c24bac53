"""A parameter in single backticks, as NumPy's style has it, is not a reference: it is shown as code.

Everything else in single backticks must be a documented name, or the build fails.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

import regard
import regard.numerics
import regard.onnx
import regard.positions
import regard.transformers


def _parameters(of: object) -> set[str]:
    found = set()
    for member in vars(of).values():
        if callable(member) and str(getattr(member, "__module__", "")).startswith("regard"):
            with contextlib.suppress(ValueError):  # an exception has no signature
                found |= set(inspect.signature(member).parameters)
            if inspect.isclass(member):
                found |= _parameters(member)
    return found


_MODULES = (regard, regard.numerics, regard.reference, regard.positions, regard.onnx, regard.transformers)
_NAMES = set().union(*map(_parameters, _MODULES))


def _resolve(app: Sphinx, env: Any, node: nodes.Element, contnode: nodes.Element) -> nodes.Element | None:
    return contnode if node["reftype"] == "obj" and node["reftarget"] in _NAMES else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Answer for references to parameters."""
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
