"""The pages must open without a network: the build fails if one of them would fetch anything from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_REMOTE = r"(?:https?:)?//"
_FETCHES = (
    re.compile(rf"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\ssrc\s*=\s*[\"']?({_REMOTE}[^\"'\s>]+)", re.I),
    # A canonical or alternate link is not fetched; a style sheet, an icon, a preload is.
    re.compile(
        rf"<link\b(?![^>]*rel=[\"']?(?:canonical|alternate|index|search|next|prev|author)\b)[^>]*"
        rf"href\s*=\s*[\"']?({_REMOTE}[^\"'\s>]+)",
        re.I,
    ),
    re.compile(rf"(?:url\(\s*|@import\s+)[\"']?({_REMOTE}[^\"')\s]+)", re.I),
)


def fetched(text: str) -> Iterator[str]:
    """Yield what a page or a style sheet loads from another host."""
    for pattern in _FETCHES:
        yield from pattern.findall(text)


def _check(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    pages = [path for path in Path(app.outdir).rglob("*") if path.suffix in (".html", ".css")]
    found = {f"{path.relative_to(app.outdir)}: {url}" for path in pages for url in fetched(path.read_text("utf-8"))}
    if found:
        from sphinx.errors import ExtensionError  # the tests use this file without Sphinx

        raise ExtensionError("pages fetch from the network:\n" + "\n".join(sorted(found)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Look at the finished pages."""
    app.connect("build-finished", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
