"""Examples of the pages that need torch, JAX or transformers; `tests/test_docs_pages.py` runs all others."""

import pytest

import regard as rg
from test_docs_pages import DOCS, FRAMEWORKS, PAGES, fences, run


def needed(page):
    return {needs for kind, needs, _, _ in fences(page.read_text()) if kind in ("pycon", "python") and needs}


HEAVY = [page for page in PAGES if needed(page)]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("page", HEAVY, ids=[str(page.relative_to(DOCS)) for page in HEAVY])
def test_examples_that_need_a_framework(page):
    said = run(page.read_text(), page.name, {}, FRAMEWORKS)
    if said:
        pytest.fail(said, pytrace=False)


def test_there_are_such_pages():
    assert {"torch", "jax"} <= set().union(*map(needed, HEAVY))


def test_functions_of_torch_in_the_catalogue_have_what_their_page_says():
    import torch
    from catalogue.planted import _TORCH

    for name, source in _TORCH.items():
        made = {"torch": torch}
        exec(source, made)
        assert name in rg.check(made[source.split("(")[0].removeprefix("def ")]).names
