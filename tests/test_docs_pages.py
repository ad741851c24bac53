"""The pages of docs/: examples are run, numbers in the text are computed, what is named exists."""

import doctest
import importlib
import re
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from test_check_gradients import REFUSED

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path[:0] = [str(DOCS), str(DOCS / "_ext")]
# The pages of faults are written by the build, and looked at in tests/test_docs_check.py.
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.parent != DOCS / "faults")
LESSON = DOCS / "lesson" / "index.md"
IDS = [str(page.relative_to(DOCS)) for page in PAGES]
every_page = pytest.mark.parametrize("page", PAGES, ids=IDS)

FENCE = re.compile(r"^(`{3,})(\{?[\w-]*\}?) *(.*)\n((?:.*\n)*?)\1 *$", re.M)
# A number that stands in the text and is no whole one: a decimal, a share of 100, a fraction.
NUMBER = re.compile(r"(?<![\w.−/-])−?(?:\d+(?:\.\d+)? %|\d+\.\d+|\d+/\d+)(?!\w|\.\d|/)")


def fences(text):
    """Kind, argument, body and line of each fenced block."""
    for match in FENCE.finditer(text):
        yield match[2].strip("{}"), match[3].strip(), match[4], text.count("\n", 0, match.start()) + 1


# A block "pycon torch" needs torch: tests/heavy/test_docs_heavy.py runs its page.
FRAMEWORKS = {"torch", "jax", "transformers"}


def run(text, name, names, installed=frozenset()):
    """Run the examples of a page in order; return what failed, as doctest prints it."""
    parser, runner, said = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), []
    for kind, needs, body, line in fences(text):
        if kind in ("pycon", "python") and needs and needs not in installed:
            continue
        if kind == "pycon":
            test = parser.get_doctest(body, names, f"{name}:{line}", name, line)
            runner.run(test, out=said.append, clear_globs=False)
            names.update(test.globs)
        elif kind == "python":
            exec(compile(body, f"{name}:{line}", "exec"), names)
    return "".join(said)


@every_page
def test_examples(page):
    names = {}
    if page.parent == LESSON.parent and page != LESSON:
        run(LESSON.read_text(), "the lesson's example", names)
    said = run(page.read_text(), page.name, names)
    if said:
        pytest.fail(said, pytrace=False)


def test_a_wrong_example_is_found():
    assert "Expected:\n    3" in run("```pycon\n>>> 1 + 1\n3\n```\n", "page", {})
    assert run("```pycon torch\n>>> 1 + 1\n3\n```\n", "page", {}) == ""
    assert "Expected:\n    3" in run("```pycon torch\n>>> 1 + 1\n3\n```\n", "page", {}, {"torch"})
    assert "ZeroDivisionError" in run("```pycon\n>>> 1 / 0\n```\n", "page", {})
    assert run("```pycon\n>>> 1 + 1\n2\n```\n", "page", {}) == ""


def computed(text):
    """All that the build computes for a page: pictures, tables, and the checked output of examples."""
    found = []
    for kind, argument, body, _ in fences(text):
        if kind in ("picture", "computed"):
            found += figure(argument).texts
        elif kind == "pycon":
            found += [example.want for example in doctest.DocTestParser().get_examples(body)]
    return " ".join(found)


def figure(name):
    module, _, function = name.partition(".")
    return getattr(importlib.import_module(f"figures.{module}"), function)()


def prose(text):
    """The text of a page without blocks of code; captions of pictures and tables are text."""
    text = FENCE.sub(lambda match: match[4] if match[2] in ("{picture}", "{computed}") else "", text)
    return re.sub(r"`[^`\n]*`|arXiv [\d.]+", "", text)


def unfounded(text):
    """Numbers in the text of a page, no whole ones, that nothing on the page computes."""
    made = computed(text)
    known = [float(x) for x in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-\d+)?", made)]
    written = set(re.findall(r"\d+(?:\.\d+)? %|\d+/\d+", made))
    return [
        number
        for number in NUMBER.findall(prose(text))
        if number not in written and not any(rounds_to(x, number.strip("−")) for x in known)
    ]


def rounds_to(x, number):
    """Whether a text is a number, rounded to the digits that it shows; a fraction shows all of them."""
    if "/" in number:
        upper, lower = map(int, number.split("/"))
        return lower != 0 and x == upper / lower
    digits = number.removesuffix(" %")
    return f"{100 * x if digits != number else x:.{len(digits.partition('.')[2])}f}" == digits


# Of other software: those that were run are looked at in tests/heavy/test_coming_from.py.
RUN = {"torch": "2.13", "JAX": "0.10.2", "onnx": "1.23"}
VERSIONS = {*RUN.values(), "3.10", "5.24", "2.1"}  # Python, transformers, flash-attn


def test_versions_are_those_that_are_asked_for():
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert 'requires-python = ">=3.10"' in pyproject
    assert '"transformers>=5.24,' in pyproject


@every_page
def test_numbers_in_the_text_are_computed(page):
    if page.name in ("contributing.md",):  # another file's text
        return
    measured = {f"{1 + share:.12g}" for shares in REFUSED.values() for share in shares}  # held by that test
    assert set(unfounded(page.read_text())) <= VERSIONS | {"0.99", "4.16"} | measured


def test_constants_in_the_text():
    assert round(np.log(64), 2) == 4.16


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0.3 or 0.274, 0.2741 and 27.4 % or 27 %, 1/4.", []),
        ("0.4 or 0.28, 26 % or 27.5 %, 3/8, 1/3, −0.3.", ["0.4", "0.28", "26 %", "27.5 %", "3/8", "1/3"]),
        ("12 keys, 4,096 keys, torch 2.13.1, 10⁶, and/or, 2/3/4, `0.99`", []),
    ],
)
def test_no_kind_of_number_passes_unseen(text, found):
    page = text + "\n```pycon\n>>> 1\n0.274069 0.25\n```\n"
    assert unfounded(page) == found


def test_an_unfounded_number_is_found():
    page = "It is 0.274069, or 0.27, not 0.28.\n```{computed} softmax.mistakes\nOr 0.7259.\n```\n"
    assert unfounded(page) == ["0.274069", "0.27", "0.28"]
    assert unfounded(page.replace("softmax.mistakes", "example.other_scales")) == ["0.28"]


def test_what_is_not_there_is_in_the_design():
    design = (ROOT / "DESIGN.md").read_text()
    section = design.partition("## What of the planned surface is not there yet\n")[2].partition("\n## ")[0]
    heads = {name for row in re.findall(r"^\| (`.*?) \|", section, re.M) for name in re.findall("`[^`]+`", row)}
    missing = importlib.import_module("figures.status").missing()
    assert heads == {token for name, _ in missing for token in re.findall("`[^`]+`", name)}


@every_page
def test_tests_that_a_page_names_exist(page):
    for file, test in re.findall(r"`(tests/\w+\.py)(?:::(\w+))?`", page.read_text()):
        assert f"def {test}(" in (ROOT / file).read_text() if test else (ROOT / file).exists(), f"{file}::{test}"


@every_page
def test_included_code_exists(page):
    """As the build would say, and sooner: the lines between which a page takes code, or the function it takes."""
    for kind, file, body, line in fences(page.read_text()):
        if kind not in ("literalinclude", "include"):
            continue
        source = (page.parent / file).read_text()
        options = dict(re.findall(r"^:([\w-]+): *(.*)$", body, re.M))
        for option in ("start-after", "start-at", "end-before", "end-at"):
            if option in options:
                _, found, source = source.partition(options[option].strip('"'))
                assert found, f"{page.name}:{line}: {file} has no {options[option]}"
        name = options.get("pyobject", "").rpartition(".")[2]
        assert not name or f"def {name}(" in source, f"{page.name}:{line}: {file} has no {name}"


@every_page
def test_blocks_are_of_kinds_that_are_checked(page):
    kinds = {"pycon", "python", "sh", "picture", "computed", "literalinclude", "include", "toctree", "eval-rst"}
    makefile = (ROOT / "Makefile").read_text()
    for kind, argument, body, line in fences(page.read_text()):
        assert kind in kinds, f"{page}:{line}"
        assert kind not in ("pycon", "python") or argument in {"", *FRAMEWORKS}, f"{page}:{line}: {argument}"
        if kind == "sh":
            for target in re.findall(r"^make ([\w-]+)", body, re.M):
                assert re.search(rf"^{target}:", makefile, re.M), f"{page}:{line}: make {target}"


def test_every_figure_is_shown_and_can_be_heard():
    shown = {
        argument
        for page in PAGES
        for kind, argument, _, _ in fences(page.read_text())
        if kind in ("picture", "computed")
    }
    made = set()
    for path in (DOCS / "figures").glob("[!_]*.py"):
        module = importlib.import_module(f"figures.{path.stem}")
        for name, member in vars(module).items():
            returned = getattr(member, "__annotations__", {}).get("return")
            if returned in ("Picture", "Table", "Drawn") and not name.startswith("_"):
                made.add(f"{path.stem}.{name}")
    assert shown == made
    for name in sorted(shown):
        drawn = figure(name)
        assert drawn.texts
        assert len(getattr(drawn, "alt", "not a picture of ours")) > 20, name
        if hasattr(drawn, "svg"):
            assert drawn.svg() == figure(name).svg()  # nothing depends on the day


def test_every_public_name_is_on_one_page():
    text = "\n".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))
    named = re.findall(r"^\.\. auto(?:function|class|exception):: (?:regard\.)?([\w.]+)$", text, re.M)
    assert len(named) == len(set(named))
    modules = {name for name, member in vars(rg).items() if isinstance(member, type(rg))}
    public = {name for name in vars(rg) if not name.startswith("_")} - modules
    assert public <= set(named)


def nameless(pages):
    """References to an equation of another page that do not say which page: each page counts from (1)."""
    homes = {label: name for name, text in pages.items() for label in re.findall(r"\$\$ \(([\w-]+)\)$", text, re.M)}
    return [
        (name, found[1])
        for name, text in pages.items()
        for found in re.finditer(r"\{eq\}`([\w-]+)`(?!\s+of\s+\[)", text)
        if homes[found[1]] != name
    ]


def test_an_equation_of_another_page_is_told_with_its_page():
    assert nameless({"a": "$$ 1 $$ (one)", "b": "by {eq}`one` of [page 1](a.md)"}) == []
    assert nameless({"a": "$$ 1 $$ (one)", "b": "by {eq}`one`"}) == [("b", "one")]
    assert nameless({page.name: page.read_text() for page in PAGES}) == []


def test_no_page_fetches_anything():
    from offline import fetched

    assert list(fetched('<script src="https://a.org/x.js"></script>')) == ["https://a.org/x.js"]
    assert list(fetched("<link rel=stylesheet href='//a.org/x.css'>")) == ["//a.org/x.css"]
    assert list(fetched("src: url(https://a.org/x.woff2)")) == ["https://a.org/x.woff2"]
    assert list(fetched('<a href="https://a.org">x</a><link rel="next" href="https://a.org"><img src="x.png">')) == []


def test_no_large_file():
    assert max(path.stat().st_size for path in DOCS.rglob("*") if path.is_file()) < 300_000


class TestFigures:
    """The figures against values that were worked out elsewhere, before the library."""

    def test_trace_of_the_online_softmax(self):
        steps = importlib.import_module("figures.online").steps()
        want = [(0.5, 0.5, 0, 1, 1), (0.5, 0.5, 1, 1, 2), (1, 1, 0.606531, 1, 2.213061)]
        np.testing.assert_allclose([step[:5] for step in steps], want, atol=6e-7)
        np.testing.assert_allclose([step.out for step in steps], [[1, 0], [1, 1], [1.606531] * 2], atol=6e-7)

    @pytest.mark.parametrize(
        ("name", "cells"),
        [
            ("example.other_scales", ["0.725931", "0.788058", "0.695496", "0.707954", "0.893493"]),
            ("softmax.mistakes", ["2.213061", "1.606531", "0.707107", "0.622459", "0.686970"]),
            ("softmax.mistakes", ["0.966873, 0.966873, 1.066255", "0.759059"]),
            ("softmax.limits", ["11.09", "88.72", "709.78"]),
            ("masks.faults", ["(0.506480, 0)", "(0.788058, 0.423883)", "(0.377541, 1)", "(0.731059, 0.268941)"]),
            ("online.faults", ["0.666667", "0.535510"]),
            ("online.cost", ["4 MiB", "64 MiB", "1 GiB", "16 GiB", "48.5 KiB", "68.7"]),
            ("rows.conventions", ["30", "NaN", "0"]),
            ("low.logits", ["1.6 %", "0.2 %", "13.3 %", "64.9 %", "6.4 %"]),
            ("low.ones", ["2048", "256", "4096"]),
            ("biases.slopes", ["2<sup>−2</sup>, 2<sup>−4</sup>, 2<sup>−6</sup>, 2<sup>−8</sup>"]),
            ("biases.diagonals", ["−2", "−1.5", "−1", "−0.5", "0"]),
            ("positions.forgotten", ["(0.098571, 0.381603, 0.519826)", "(0.274069, 0.274069, 0.451863)"]),
            ("positions.distances", ["1", "0.540", "−0.416", "−0.990", "−0.654", "0.284"]),  # cosines of 0 to 5
        ],
    )
    def test_worked_numbers(self, name, cells):
        assert set(cells) <= set(figure(name).texts)

    # From an experiment with other random numbers: mean largest weight and share of rows above 0.99, no scale.
    @pytest.mark.parametrize(
        ("d", "largest", "saturated"), [(4, 0.279, 0), (16, 0.579, 0.021), (64, 0.799, 0.189), (256, 0.894, 0.470)]
    )
    def test_saturation(self, d, largest, saturated):
        scale = importlib.import_module("figures.scale")
        assert abs(scale.scores(d).var() / d - 1) < 0.03
        raw, scaled = scale.measure(d, False), scale.measure(d, True)
        assert abs(raw.max_weight - largest) < 0.015
        assert abs(raw.saturated - saturated) < 0.025
        assert abs(scaled.max_weight - 0.107) < 0.005
        assert scaled.saturated == scaled.dead == 0

    def test_dead_rows_and_not_the_mean(self):
        scale = importlib.import_module("figures.scale")
        raw, scaled = scale.measure(64, False), scale.measure(64, True)
        assert abs(raw.mean_gradient - scaled.mean_gradient) < 0.003
        assert raw.dead > 0.1

    def test_angles_in_float32_get_worse_and_ours_do_not(self):
        rows = importlib.import_module("figures.positions").precision().rows
        angles, naive, ours = (np.array([float(row[n].replace("−", "-")) for row in rows]) for n in (1, 2, 3))
        assert (np.diff(angles) > 0).all()
        assert (np.diff(naive) > 0).all()
        assert angles[3] > 0.05  # position 10⁶
        assert (ours < 2.0**-24).all()

    def test_the_carry_decides(self):
        rows = importlib.import_module("figures.low").carried()
        for _, high, low, size in rows:
            assert high < min(low.values())
            assert high < size / 100
        first, last = rows[0], rows[-1]
        assert last[1] < first[1]  # float32 state: the error falls with the output
        assert last[2][16] > first[2][16]  # bfloat16 state, many tiles: it grows
        assert last[2][16] > 10 * last[1]

    def test_the_bound_holds_and_can_say_no(self):
        for row in importlib.import_module("figures.numerics").shares():
            ours, online, half, brain = row[-4:]
            assert ours <= 1
            assert online <= 1
            assert half > 10
            assert brain > 10

    def test_bfloat16_is_rounded_as_ml_dtypes_does(self):
        low = importlib.import_module("figures.low")
        x = np.random.default_rng(0).standard_normal(10000).astype(np.float32) * np.float32(1e3)
        np.testing.assert_array_equal(low.bf16(x), x.astype(ml_dtypes.bfloat16).astype(np.float32))
