"""The text of the pages, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from figures._draw import Picture

from regard.check.faults import GROUPS
from regard.check.gradients import GROUP as GRADIENTS
from regard.check.report._names import Entry

from .facts import LAWS_BROKEN, Facts, all_facts

_GROUPS = {
    "scale": "The scale",
    "normalisation": "The softmax",
    "stability": "The maximum",
    "tiles": "Tiles",
    "mask": "Masks",
    "causal": "The causal rule and windows",
    "score": "Bias and softcap",
    "alibi": "ALiBi",
    "layout": "Axes and operands",
    "heads": "Heads",
    "dropout": "Dropout",
    "precision": "Precision",
    "lse": "The logsumexp",
    "gradients": "Gradients",
    "behaviour": "Habits",
    "laws": "Laws",
    "verdicts": "Names for what was measured or refused",
}
_ABOUT = {
    "behaviour": "What a function does beside computing: to its inputs, between calls, at odd sizes and dtypes.",
    "laws": "Properties of softmax attention that need no right answer, only a second call. A law that is broken is a "
    "finding of its own where no fault explains it; else the finding of the fault says which laws it breaks.",
    "verdicts": "Where no fault fits, the name says what was seen.",
}
_LEVEL = {
    "fault": "a **fault**: results are wrong",
    "warning": "a **warning**: results are wrong, or refused, on unusual inputs only",
}


def pages(known: list[Facts] | None = None) -> dict[str, str]:
    """Every page: its name without a suffix, and its text.

    Raises
    ------
    ValueError
        A page lacks a part.
    """
    known = all_facts() if known is None else known
    broken_by = {f.entry.name: [g.entry for g in known if f.entry.name in g.laws] for f in known}
    made = {f.entry.name: _page(f, broken_by) for f in known}
    for name, text in made.items():
        if parts := lacking(text):
            raise ValueError(f"the page of {name} has no part {' and no part '.join(parts)}")
    return {"index": _index([f.entry for f in known]), **made}


def lacking(page: str) -> list[str]:
    """Parts that a page must have and has not."""
    always = ("Why it matters", "How to mend it", "In the shell")
    missing = [f"'{part}'" for part in always if f"## {part}\n" not in page]
    shows = any(f"## {part}\n" in page for part in ("Smallest example", "A function that shows it"))
    return missing if shows else [*missing, "that shows it"]


# The index.


def _index(entries: list[Entry]) -> str:
    faults = sum(entry.kind == "fault" for entry in entries)
    lines = [
        "# Catalogue of faults",
        "",
        f"Every name that a finding of {{py:func}}`regard.check` may have: {faults} faults, "
        f"{sum(e.kind == 'habit' for e in entries)} habits and {sum(e.kind == 'law' for e in entries)} laws. Each "
        "has a page with the smallest example, made by planting the fault and asking `check`. The search box finds a "
        "page by its name or by what the function does.",
    ]
    for group in dict.fromkeys(entry.group for entry in entries):
        lines += ["", f"({_anchor(group)})=", "", f"## {_title(group)}", "", plain(_about(group)), ""]
        lines += ["| name | level | what the function does |", "|---|---|---|"]
        lines += [_row(entry) for entry in entries if entry.group == group]
    return "\n".join([*lines, ""])


def _row(entry: Entry) -> str:
    also = f" ({', '.join(entry.also)})" if entry.also else ""
    return f"| [{entry.name}]({entry.name}.md){also} | {entry.level} | {plain(entry.does)} |"


def _anchor(group: str) -> str:
    return f"faults-of-{group}"


def _title(group: str) -> str:
    return _GROUPS.get(group, group.capitalize())


def _about(group: str) -> str:
    return _ABOUT.get(group) or next(g.why for g in (*GROUPS, GRADIENTS) if g.name == group)


# A page.


def _page(facts: Facts, broken_by: dict[str, list[Entry]]) -> str:
    entry = facts.entry
    parts = [
        "---\norphan: true\n---",
        f"# {entry.name}",
        _lead(entry),
        *_example(facts),
        *_pictures(facts),
        *_function(facts),
        f"## Why it matters\n\n{sentence(entry.why)}",
        f"## How to mend it\n\n{sentence(entry.mend)}",
        *_apart(facts, broken_by),
        *_variants(facts),
        f"## In the shell\n\n```sh\n{entry.hint}\n```",
        "[All faults, habits and laws](index.md)",
    ]
    return "\n\n".join(parts) + "\n"


def _lead(entry: Entry) -> str:
    kind = f"{_LEVEL[entry.level]}. Group: [{_title(entry.group)}](#{_anchor(entry.group)})."
    if entry.kind == "law":
        return f"The law: {plain(entry.does.removeprefix('not so: '))}.\n\nA function that breaks it has {kind}"
    also = f" Other names of the same function: {', '.join(entry.also)}." if entry.also else ""
    return f"{sentence(entry.does)}\n\nIt is {kind}{also}"


def _example(facts: Facts) -> Iterator[str]:
    entry, finding = facts.entry, facts.finding
    if finding.example is None:
        return
    how = {
        "fault": "The fault was planted in a right function. This is the smallest case that `check` found",
        "law": f"`check` calls the function below {_names(facts.called)}. The smallest case that it found",
    }.get(entry.kind, "The smallest case that `check` found for the function below")
    declared = ", ".join(f"`{name}={value!r}`" for name, value in facts.declared.items())
    asked = f", with {declared} declared" if declared else ""
    lines = "\n".join(line for line in str(finding.example).splitlines() if line.strip())
    yield f"## Smallest example\n\n{how}{asked}:\n\n```text\n{lines}\n```"


def _names(names: tuple[str, ...]) -> str:
    return " and ".join(dict.fromkeys(f"[{name}]({name}.md)" for name in names))


def _function(facts: Facts) -> Iterator[str]:
    """Show a function that has a law broken, a habit or a verdict, and how it is asked."""
    if not facts.source:
        return
    entry, finding = facts.entry, facts.finding
    said = ["## A function that shows it", f"```python\n{facts.source}\n```"]
    named = ("textbook", "softmax", "right_vjp")
    right = [name for name in named if re.search(rf"(?<!def ){name}\(", facts.source)]
    if right:
        said.append(f"`{'` and `'.join(right)}` {'is' if len(right) == 1 else 'are'} right.")
    if entry.kind != "law" or finding.name == entry.name:
        seen = "".join(f"\n- {plain(line)}" for line in finding.evidence or (finding.does,))
        said.append(f"What `check` saw:\n{seen}")
    elif finding.example is None:
        said.append(f"`check` calls it {_names(facts.called)}.")
    if facts.question:
        said.append("`check` asks like this, `f` being the function; `got` and `want` should be equal:")
        said.append(f"```python\n{facts.question}\n```")
    yield "\n\n".join(said)


def _pictures(facts: Facts) -> Iterator[str]:
    for option, text in facts.pictures:
        rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines()[1:]]
        got, want = ([[c == "■" for c in row[side].split()] for row in rows] for side in (0, 1))
        picture = _drawn(option, got, want)
        yield (
            f"## Which pairs have weight\n\nA call with the option `{option}`, its first head. Rows are queries, "
            f"columns keys; red marks weight where there must be none, amber weight that is missing.\n\n"
            f'<figure class="picture">{picture.svg()}</figure>'
        )


def _drawn(option: str, got: list[list[bool]], want: list[list[bool]]) -> Picture:
    shape, cell = (len(got), len(got[0])), 26
    more = sum(a and not b for x, y in zip(got, want, strict=True) for a, b in zip(x, y, strict=True))
    less = sum(b and not a for x, y in zip(got, want, strict=True) for a, b in zip(x, y, strict=True))
    alt = (
        f"Two tables of {shape[0]} queries and {shape[1]} keys for the option {option}, the function's and the right "
        f"one: {more} pairs have weight and must not, {less} must have weight and have none."
    )
    picture = Picture(110 + 2 * shape[1] * cell, 60 + shape[0] * cell, alt)
    kinds = {(True, True): "keep", (False, False): "drop", (True, False): "bad", (False, True): "hot"}

    def cells(mine: bool) -> Callable[[int, int], tuple[str, str]]:
        def cell_of(i: int, j: int) -> tuple[str, str]:
            a, b = got[i][j], want[i][j]
            return kinds[a, b] if mine else kinds[b, b], str(int(a if mine else b))

        return cell_of

    labels = {"rows": [str(i) for i in range(shape[0])], "columns": [str(j) for j in range(shape[1])]}
    for left, title, mine in ((30, "yours", True), (80 + shape[1] * cell, "expected", False)):
        picture.grid(left, 50, shape, cells(mine), size=(cell, cell), title=title, **labels)
    return picture


def _apart(facts: Facts, broken_by: dict[str, list[Entry]]) -> Iterator[str]:
    entry = facts.entry
    said = []
    if entry.kind == "fault":
        evidence = (line for line in facts.finding.evidence if not line.startswith(LAWS_BROKEN))
        said += [sentence(line) for line in evidence]
        said += [f"Laws that it breaks: {_names(facts.laws)}."] if facts.laws else []
        if facts.seen_by:
            said.append(f"It is seen by {_some(facts.seen_by)}.")
    if entry.kind == "law" and broken_by[entry.name]:
        names = ", ".join(f"[{e.name}]({e.name}.md)" for e in broken_by[entry.name])
        said.append(f"Faults that break it: {names}.")
    lines = [f"- {line}" for line in said]
    if facts.nearest:
        lines += ["", "Faults with some of the same wrong answers:", "", "| fault | told apart by |", "|---|---|"]
        lines += [f"| [{name}]({name}.md) | {plain(probe)} |" for name, probe in facts.nearest]
    if lines:
        yield "\n".join(["## What tells it apart", "", *lines])


def _some(probes: tuple[str, ...]) -> str:
    if len(probes) == 1:
        return f"one probe only: {plain(probes[0])}"
    return f"{len(probes)} probes; the first is {plain(probes[0])}"


def _variants(facts: Facts) -> Iterator[str]:
    if facts.variants:
        yield "## Variants\n\n" + "\n".join(f"- {plain(label)}" for label in facts.variants)


# Words.


def plain(text: str) -> str:
    """Write text so that Markdown shows it as it is."""
    return re.sub(r"([\\`*{}\[\]<>#|$~])", r"\\\1", text)


def sentence(text: str) -> str:
    """Write text as a sentence: what begins with a word of two letters or more, and no code, begins with a capital."""
    first, _, rest = text.partition(" ")
    if first.isalpha() and len(first) > 1 and first not in ("exp", "softmax") and not rest.startswith("="):
        text = text[0].upper() + text[1:]
    elif first == "a":
        text = f"A{text[1:]}"
    return plain(text if text.endswith(".") else f"{text}.")
