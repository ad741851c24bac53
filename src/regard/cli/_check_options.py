"""Options of ``regard check``: what each is called, and what its help says."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

Target: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET",
        help="module:function, looked for in the current folder first, or file.py:function. The module or file is "
        "run, as Python runs what it imports.",
        show_default=False,
    ),
]
# As in `regard.check`.
Layout: TypeAlias = Annotated[
    str | None, typer.Option(help="Axes: bhsd, bshd, hsd, shd, sd (batch, head, position, feature).")
]
Mask: TypeAlias = Annotated[str | None, typer.Option(help="What a mask means: keep, drop or additive.")]
Causal: TypeAlias = Annotated[
    str | None, typer.Option(help="Which rule is right for more keys than queries: bottom-right or top-left.")
]
Window: TypeAlias = Annotated[str | None, typer.Option(help="How a window counts: total or left-inclusive.")]
EmptyRow: TypeAlias = Annotated[
    str | None, typer.Option(help="What is right for a row that may attend nowhere: zero, nan or any.")
]
Supports: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Options to ask about, such as mask,causal,gqa. Default: those that have a parameter."),
]
Expected: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=REASON", help="A finding that is known, and why: it does not fail. Repeatable."),
]
Strict: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Let warnings fail too, an expected finding that is not there, and a check that does not end in time.",
    ),
]
Library: TypeAlias = Annotated[str | None, typer.Option(help="Whose arrays are passed: numpy, torch or jax.")]
Memory: TypeAlias = Annotated[
    str | None, typer.Option(help="linear: memory may not grow with queries times keys. Default: it is only told.")
]
DType: TypeAlias = Annotated[str | None, typer.Option(help="Of the arrays: float32, float64, float16 or bfloat16.")]
Seed: TypeAlias = Annotated[int, typer.Option(min=0, help="Of the random numbers in the probes.")]
Budget: TypeAlias = Annotated[float, typer.Option(min=0, help="Seconds after which no further question is begun.")]
# Of the command.
Timeout: TypeAlias = Annotated[
    float, typer.Option(min=0.1, help="Seconds for one call; importing may take six times as long.")
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of tables, of --list and --explain too.")
]
Junit: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Write JUnit XML too, one test case per question; - writes it to stdout and the report to stderr.",
    ),
]
Replay: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Print only the program that shows this finding: it needs only NumPy."),
]
Output: TypeAlias = Annotated[str, typer.Option("--output", "-o", help="File of the program; - is stdout.")]
Printed: TypeAlias = Annotated[
    bool, typer.Option("--printed", help="Show the last lines that the function printed, not only how many.")
]
ListNames: TypeAlias = Annotated[bool, typer.Option("--list", help="List everything that may be found, and end.")]
Explain: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Say what a finding is and how to mend it, and end.")
]
