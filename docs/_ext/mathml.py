"""Formulas as MathML, converted in the build: no script and no network when reading."""

from __future__ import annotations

import html
from typing import Any

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)
# The TeX stays in the page as an annotation, for those who copy a formula.
_converter = LatexToMathML(annotation=True, fancy_error=False)


def _mathml(node: nodes.Element, *, display: bool) -> str:
    tex = " ".join(node.astext().split())
    if display and ("&" in tex or r"\\" in tex) and r"\begin" not in tex:
        tex = rf"\begin{{aligned}}{tex}\end{{aligned}}"
    try:
        return str(_converter.convert_with_local_state(tex, displaystyle=display))
    except LatexError as error:
        logger.warning("TeX that is not understood: %s\n%s", error, tex, location=node)
        return f"<code>{html.escape(tex)}</code>"


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(f'<span class="math">{_mathml(node, display=False)}</span>')
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})')
        translator.add_permalink_ref(node, "Permalink to this equation")
        translator.body.append("</span>")
    translator.body.append(f"{_mathml(node, display=True)}</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Make MathML the way in which HTML pages show mathematics."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config["html_math_renderer"] = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
