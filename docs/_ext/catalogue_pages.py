"""Writes a page per fault before the sources are read, into `faults/`, which is in no repository.

What is asked for a page takes seconds, so it is asked again only when something that it depends on has changed; and a
page whose text is the same is not touched, so that Sphinx does not read it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import regard

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_DOCS = Path(__file__).parents[1]
_TESTS = _DOCS.parent / "tests"


def sources() -> list[Path]:
    """All files that a page depends on."""
    package = Path(regard.__file__).parent
    found = [*(package / "check").rglob("*.py"), *(package / "numerics").rglob("*.py"), package / "reference.py"]
    found += [*(_DOCS / "catalogue").glob("*.py"), _DOCS / "figures" / "_draw.py", Path(__file__)]
    return sorted([*found, *_TESTS.glob("check_*.py"), *_TESTS.glob("test_check_*.py")])


def digest(files: Iterable[Path]) -> str:
    """Name their contents."""
    made = hashlib.sha256()
    for file in files:
        made.update(file.read_bytes())
    return made.hexdigest()


def keep(folder: Path, pages: dict[str, str]) -> None:
    """Make a folder hold these pages and no others; a page that is there already is not touched."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def _write(app: Sphinx) -> None:
    folder, now = Path(app.srcdir) / "faults", digest(sources())
    stamp = folder / ".digest"
    if stamp.exists() and stamp.read_text() == now:
        return
    from catalogue.write import pages

    keep(folder, pages())
    stamp.write_text(now)


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages when the builder is there, and the sources are not read yet."""
    app.connect("builder-inited", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "version": "1"}
