"""experiments/: every note has the form that the index describes, and the index has every note."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "experiments"
NOTES = sorted(FOLDER.glob("[0-9]*.md"))
HEADINGS = ["Question", "What was done", "Numbers", "Machine", "Conclusion"]


def faults(name, text, index):
    """What is wrong with a note."""
    number = re.fullmatch(r"(\d{4})-[a-z0-9-]+\.md", name)
    if number is None:
        return ["its name is not NNNN-a-few-words.md"]
    found = []
    if not text.startswith(f"# {number[1]}: "):
        found.append("its title does not begin with its number")
    parts = re.split(r"^## (.+)\n", text, flags=re.M)
    if parts[1::2] != HEADINGS:
        return [*found, f"its headings are {parts[1::2]}"]
    under = dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True))
    if not under["Question"].endswith("?"):
        found.append("its question is none")
    if not re.search(r"^\|.*\d.*\|$", under["Numbers"], re.M):
        found.append("it has no table of numbers")
    if not re.search(r"\b(median|least|best|largest)\b", under["Numbers"], re.I):
        found.append("it does not say what its numbers are")
    if not re.search(r"20\d\d-\d\d-\d\d", under["Machine"]):
        found.append("its machine has no date")
    if f"| [{number[1]}]({name}) |" not in index:
        found.append("the index does not have it")
    return found


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.stem)
def test_a_note_has_its_form(note):
    assert faults(note.name, note.read_text(), (FOLDER / "README.md").read_text()) == []


def test_numbers_have_no_gaps_and_the_index_no_others():
    numbers = [note.name[:4] for note in NOTES]
    assert numbers == [f"{n:04}" for n in range(1, len(NOTES) + 1)]
    assert re.findall(r"^\| \[(\d{4})\]", (FOLDER / "README.md").read_text(), re.M) == numbers


NOTE = (
    "# 0007: x\n## Question\nIs it?\n## What was done\nx\n## Numbers\nThe median:\n| a | 1 |\n## Machine\n"
    "x, 2026-11-30\n## Conclusion\nno\n"
)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("0007-x.md", NOTE, []),
        ("7-x.md", NOTE, ["its name is not NNNN-a-few-words.md"]),
        ("0008-x.md", NOTE, ["its title does not begin with its number", "the index does not have it"]),
        ("0007-x.md", NOTE.replace("Is it?", "It is."), ["its question is none"]),
        ("0007-x.md", NOTE.replace("| a | 1 |", "fast"), ["it has no table of numbers"]),
        ("0007-x.md", NOTE.replace("The median", "x"), ["it does not say what its numbers are"]),
        ("0007-x.md", NOTE.replace("2026-11-30", "today"), ["its machine has no date"]),
        (
            "0007-x.md",
            NOTE.replace("## Machine\n", ""),
            [f"its headings are {[h for h in HEADINGS if h != 'Machine']}"],
        ),
    ],
)
def test_a_fault_of_form_is_seen(name, text, found):
    assert faults(name, text, "| [0007](0007-x.md) | q | c |") == found
