"""How the documentation is built: `make docs`, into build/docs, with warnings as errors and no network.

Choices, with their reasons:

* Mathematics becomes MathML in the build (`_ext/mathml.py`, by the package math-core). MathML is part of HTML, and
  every browser since 2023 shows it. So formulas need no JavaScript, no Node and no network, screen readers read them,
  and TeX that is wrong fails the build. MathJax and KaTeX would be a megabyte of scripts and fonts in the pages, or a
  second language's tools in the build.
* A browser without a mathematical font would draw it badly: a part of STIX Two Math lies in `_static/fonts`.
* Pictures and tables of numbers are computed in the build from the library (`figures/`, `_ext/computed.py`), as SVG
  and tables with the page's own colours: nothing to update by hand, readable in light and dark, no plotting library.
* A page per fault that `check` knows is made from its catalogue (`catalogue/`, `_ext/catalogue_pages.py`) and from what
  `check` says of a function that has the fault.
* Code of the lesson is included from `src` and `native`, by markers where a whole function is too much.
* Examples are run by `tests/test_docs_pages.py`, which `make docs` runs after the build; those in blocks
  ``pycon torch`` and the like by `tests/heavy/test_docs_heavy.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "_ext")]

import regard  # noqa: E402

project = "regard"
author = "the regard authors"
copyright = author
version = release = regard.__version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "mathml", "computed", "offline", "parameters",
              "catalogue_pages"]  # fmt: skip
exclude_patterns = ["figures", "catalogue", "_ext"]
nitpicky = True
# Named in docstrings, and documented by others: no network means no index of theirs.
nitpick_ignore = [("py:obj", "contextvars.ContextVar")]

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "attrs_block"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
math_eqref_format = "({number})"
math_number_all = False

# In docstrings, `name` in single backticks is a name of the library.
default_role = "py:obj"
add_module_names = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = f"regard {release}"
html_static_path = ["_static"]
html_css_files = ["regard.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "regard"},
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
_ALONE = ("index", "start", "coming-from", "contract", "masks", "biases", "numerics", "performance", "roofline",
          "contributing")  # fmt: skip
html_sidebars = {page: [] for page in (*_ALONE, "faults/*")}
