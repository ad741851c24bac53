"""The pages of faults, which the build makes from the catalogue, and the lesson's quick check."""

import re
from pathlib import Path

import numpy as np
import pytest

import regard as rg
from regard.check.answers._fault import model
from regard.check.faults import CATALOGUE
from regard.check.report._names import by_name, entries
from test_docs_pages import DOCS

from catalogue import facts, write  # isort: skip  # docs/ is on the path by now
from catalogue_pages import digest, keep, sources  # isort: skip

ENTRIES = by_name()
# One of each kind: pictures, variants, another name, declared, a layer, statistics, gradients, numbers of chance.
SAMPLE = (
    "CAUSAL_PLUS_ONE", "TILE_NO_RESCALE", "MASK_MULTIPLICATIVE", "MASK_INVERTED", "SPLIT_NO_TRANSPOSE",
    "DROPOUT_IGNORED", "DQ_NO_SCALE", "NONDETERMINISTIC", "LAW_CONVEX", "REFUSES", "QUADRATIC_MEMORY",
)  # fmt: skip
KNOWN = {name: facts.facts(ENTRIES[name]) for name in SAMPLE}


@pytest.fixture(scope="module")
def pages():
    return write.pages(list(KNOWN.values()))


def part(page, name):
    return page.partition(f"## {name}\n")[2].partition("\n## ")[0].strip()


@pytest.mark.parametrize("name", SAMPLE)
def test_a_page_has_what_the_catalogue_says(pages, name):
    page, entry = pages[name], ENTRIES[name]
    assert page.startswith(f"---\norphan: true\n---\n\n# {name}\n")
    assert write.plain(entry.does.removeprefix("not so: ")).lower() in page.lower()
    assert part(page, "Why it matters") == write.sentence(entry.why)
    assert part(page, "How to mend it") == write.sentence(entry.mend)
    assert f"(#faults-of-{entry.group})" in page
    assert f"```sh\nregard check --explain {name}\n```" in page
    assert all(other in page for other in entry.also)


def test_the_example_is_what_check_answers(pages):
    report = rg.check(facts.planted_for(ENTRIES["CAUSAL_PLUS_ONE"]).fn)
    example = report["CAUSAL_PLUS_ONE"].example
    assert part(pages["CAUSAL_PLUS_ONE"], "Smallest example").endswith(f"```text\n{example}\n```")
    for line in ("query = ", "causal = True", "expected ", "yours    "):
        assert f"\n{line}" in pages["CAUSAL_PLUS_ONE"]
    assert "smallest case" in pages["SPLIT_NO_TRANSPOSE"]
    assert "\ngrad_out = " in pages["DQ_NO_SCALE"]
    assert "with `mask='keep'` declared" in pages["MASK_INVERTED"]


def test_a_picture_shows_what_is_kept(pages):
    picture = part(pages["CAUSAL_PLUS_ONE"], "Which pairs have weight")
    cells = re.findall(r'<rect class="cell (\w+)"', picture)
    # 5 queries and 7 keys: one key too many in each row but the last, which sees all.
    assert (cells.count("bad"), cells.count("hot")) == (4, 0)
    assert "4 pairs have weight and must not, 0 must have weight and have none" in picture
    assert "Which pairs have weight" not in pages["TILE_NO_RESCALE"]


def test_what_tells_it_apart(pages):
    apart = part(pages["TILE_NO_RESCALE"], "What tells it apart")
    assert "[LAW_PERMUTE_KEYS](LAW_PERMUTE_KEYS.md)" in apart
    assert re.search(r"It is seen by \d+ probes; the first is ", apart)
    assert "| [MASK_IGNORED](MASK_IGNORED.md) |" in part(pages["MASK_MULTIPLICATIVE"], "What tells it apart")
    assert "- tiles of 16 keys" in part(pages["TILE_NO_RESCALE"], "Variants").splitlines()
    assert "2.828427 times the right one" in part(pages["DQ_NO_SCALE"], "What tells it apart")


def test_the_probe_that_tells_two_apart_does():
    for other, told in KNOWN["MASK_MULTIPLICATIVE"].nearest:
        case = next(case for case in facts._known().cases.values() if facts.described(case) == told)
        pair = (fault for fault in CATALOGUE if fault.name in ("MASK_MULTIPLICATIVE", other))
        a, b = (model(next(iter(fault.variants.values())))(case) for fault in pair)
        assert not np.allclose(a, b, atol=1e-3), other


def test_laws_list_the_faults_that_break_them():
    broken = write.pages([KNOWN["LAW_CONVEX"], facts.facts(ENTRIES["NO_NORMALISATION"])])
    assert "Faults that break it: [NO_NORMALISATION](NO_NORMALISATION.md)." in broken["LAW_CONVEX"]


@pytest.mark.parametrize("name", SAMPLE)
def test_nothing_depends_on_the_day(pages, name):
    again = {**KNOWN, name: facts.facts(ENTRIES[name])}
    assert write.pages(list(again.values()))[name] == pages[name]


def test_a_page_that_is_not_whole_is_refused(pages):
    page = pages["CAUSAL_PLUS_ONE"]
    assert write.lacking(page) == []
    assert write.lacking(page.replace("## How to mend it", "## Mended")) == ["'How to mend it'"]
    assert write.lacking(page.replace("## Smallest example", "## Shown")) == ["that shows it"]


def test_the_index_has_every_name_once():
    index = write._index(list(entries()))
    for entry in entries():
        assert index.count(f"| [{entry.name}]({entry.name}.md)") == 1
        assert f"\n(faults-of-{entry.group})=\n" in index
        assert all(f"{entry.name}.md) ({', '.join(entry.also)}) |" in index for _ in entry.also)
    assert len({entry.name for entry in entries()}) == len(entries())
    assert {entry.group for entry in entries()} == set(write._GROUPS)


def test_a_name_leads_to_its_page():
    entry = ENTRIES["MASK_FILL_TINY"]
    assert (entry.name, entry.page, entry.hint) == (
        "MASK_MULTIPLICATIVE", "faults/MASK_MULTIPLICATIVE", "regard check --explain MASK_MULTIPLICATIVE",
    )  # fmt: skip


def test_every_name_that_findings_are_given_has_a_page():
    given = set()
    for path in Path(rg.__file__).with_name("check").rglob("*.py"):
        given |= set(
            re.findall(
                r'(?:Finding\(|VERDICTS\[|Verdict\(|name=|return)\s*"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)"', path.read_text()
            )
        )
    assert {"REFUSES", "EXPECTED_NOT_FOUND", "WEIGHTS_DO_NOT_SUM_TO_ONE", "GRAD_UNKNOWN"} <= given
    assert given <= set(ENTRIES)


def test_a_page_with_the_same_text_is_not_touched(tmp_path):
    folder = tmp_path / "faults"
    keep(folder, {"A": "one", "B": "two"})
    before = (folder / "A.md").stat().st_mtime_ns
    keep(folder, {"A": "one", "C": "three"})
    assert (folder / "A.md").stat().st_mtime_ns == before
    assert sorted(path.name for path in folder.iterdir()) == ["A.md", "C.md"]
    keep(folder, {"A": "other"})
    assert (folder / "A.md").read_text() == "other"


def test_pages_are_made_anew_when_what_they_depend_on_changes(tmp_path):
    names = {path.name for path in sources()}
    assert {"_oracle.py", "causal.py", "write.py", "check_mutants.py", "catalogue_pages.py"} <= names
    file = tmp_path / "a.py"
    file.write_text("1")
    first = digest([file])
    file.write_text("2")
    assert digest([file]) != first


def test_words_are_shown_as_they_are():
    assert write.plain("a[-1] < b | c*d") == r"a\[-1\] \< b \| c\*d"
    assert write.sentence("the scores are q · k") == "The scores are q · k."
    assert write.sentence("a query sees") == "A query sees."
    assert write.sentence("c · tanh(s)") == "c · tanh(s)."
    assert write.sentence("exp is taken") == "exp is taken."
    assert write.sentence("dq = scale, once") == "dq = scale, once."


QUIZ = (DOCS / "lesson" / "12-quick-check.md").read_text()
QUESTIONS = re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", QUIZ, re.M)
CHOICE = re.compile(
    r"^:::\{admonition\} (\w)\. (.+)\n:class: choice\n:collapsible: closed\n\n((?:(?!:::).*\n)+):::$", re.M
)


def test_the_quick_check_asks_five_to_seven_questions():
    assert 5 <= len(QUESTIONS) <= 7
    assert "√d" in QUESTIONS[0][0]
    assert [title.split(".")[0] for title, _ in QUESTIONS] == [str(n + 1) for n in range(len(QUESTIONS))]
    assert QUIZ.count(":::{admonition}") == sum(len(CHOICE.findall(body)) for _, body in QUESTIONS)


@pytest.mark.parametrize(("title", "body"), QUESTIONS)
def test_one_answer_is_right_and_each_wrong_one_has_a_reason(title, body):
    choices = CHOICE.findall(body)
    assert body.split(":::")[0].rstrip().endswith("?") or "?" in body.split(":::")[0]
    assert [letter for letter, _, _ in choices] == list("ABCDEFG"[: len(choices)])
    assert len(choices) >= 3
    right = [text for _, _, text in choices if text.startswith("**Right.** ")]
    wrong = [text for _, _, text in choices if re.match(r"\*\*No[.,][^*]*\*\* ", text)]
    assert len(right) == 1
    assert len(right) + len(wrong) == len(choices)
    assert all(len(re.sub(r"\*\*.*?\*\*", "", text).split()) >= 10 for text in (*right, *wrong))
    assert ">>>" in right[0]  # shown, not only said


def test_names_that_pages_link_to_are_names():
    linked = {
        name for path in DOCS.rglob("*.md") if path.parent.name != "faults"
        for name in re.findall(r"faults/([A-Z][A-Z0-9_]*)\.md", path.read_text())
    }  # fmt: skip
    assert len(linked) >= 13
    assert linked <= {entry.name for entry in entries()}
