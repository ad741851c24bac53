"""The directives `picture` and `computed`: what they show is computed in the build by a function of `figures/`.

``{picture} online.trace`` calls ``figures.online.trace()``, which returns a `Picture`: SVG with the page's own colours,
and the words that stand for it where it cannot be seen. ``{computed} scale.variance`` calls a function that returns a
`Table`, whose cells are Markdown. The content of the directive is the caption.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import figures
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import regard

# A page is built anew when any of these has changed.
_FIGURES = Path(figures.__file__).parent
_MEASURED = (_FIGURES.parents[1] / "benchmarks" / "results").glob("*.json")
_SOURCES = sorted([*_FIGURES.glob("*.py"), *Path(regard.__file__).parent.rglob("*.py"), *_MEASURED])


class _Computed(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {"name": directives.unchanged}  # noqa: RUF012

    def compute(self) -> Any:
        """Call the function that the argument names."""
        for source in _SOURCES:
            self.env.note_dependency(str(source))
        module, _, function = self.arguments[0].partition(".")
        try:
            return getattr(importlib.import_module(f"figures.{module}"), function)()
        except Exception as error:
            raise self.error(f"figures.{self.arguments[0]}: {type(error).__name__}: {error}") from error

    def caption(self) -> list[nodes.Node]:
        """Parse the directive's content."""
        return self.parse_content_to_nodes()


class PictureDirective(_Computed):
    """``{picture} module.function``, with its caption as content."""

    def run(self) -> list[nodes.Node]:
        """Draw the picture into the page."""
        picture = self.compute()
        figure = nodes.figure(classes=["picture"])
        figure += nodes.raw("", picture.svg(), format="html")
        if self.content:
            caption = nodes.caption("", "")
            for paragraph in self.caption():
                caption.extend(paragraph.children)
            figure += caption
        self.add_name(figure)
        return [figure]


class TableDirective(_Computed):
    """``{computed} module.function``, with its caption as content."""

    def run(self) -> list[nodes.Node]:
        """Write the table into the page."""
        table = self.compute()
        found = self.parse_text_to_nodes(table.markdown())
        for node in found:
            if isinstance(node, nodes.table):
                node["classes"] += ["computed"]
                self.add_name(node)
        if self.content:
            note = nodes.container("", *self.caption(), classes=["table-note"])
            found.append(note)
        return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both directives."""
    app.add_directive("picture", PictureDirective)
    app.add_directive("computed", TableDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
