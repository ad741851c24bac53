"""Calls that ended their process, or did not end: findings, and programs that show them."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence

from regard.check.candidate._guard import Argument, Death
from regard.check.findings._finding import Finding
from regard.check.findings._replay import IMPORTS, literal
from regard.check.report._names import by_name

from ._child import PIPE_LOST

_DOES = {
    "CRASHES": "a call crashes",
    "HANGS": "a call hangs",
    "EXITS": "a call leaves the program",
}
# Numbers that are written out in a script; larger arrays are drawn.
_SPELLED = 3000
_SCRIPT = """{head}
import os
import subprocess
{imports}
{source}

rng = np.random.default_rng(0)
arguments = [
{arguments}]
options = {{
{options}}}

if sys.argv[1:] == ["call"]:
    print("calling", flush=True)
    try:
        {callee}(*arguments, **options)
    except Exception as error:
        print("it refuses:", error)
    print("\\nanswered", flush=True)
    os._exit(0)
try:
    done = subprocess.run([sys.executable, __file__, "call"], capture_output=True, timeout={seconds:g})
except subprocess.TimeoutExpired:
    sys.exit("FAULT {name}: no answer in {seconds:g} s")
if b"calling" not in done.stdout.split():
    print("the call cannot be made:", done.stderr.decode(errors="replace"))
    sys.exit(2)
if b"answered" not in done.stdout.split():
    sys.exit(f"FAULT {name}: the process ended with {{done.returncode}}")
print("no sign of {name}: mended")
"""
# More than a byte is an exception of Windows, such as 0xC0000005, an access violation.
_LARGEST_CODE = 255


def how_it_ended(code: int) -> tuple[str, str]:
    """Return kind and words for the exit code of a process that died in a call."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = ", as when memory runs out" if name == "SIGKILL" else ""
        return "CRASHES", f"the process died of {name}{hint}"
    if code == PIPE_LOST:
        return "CRASHES", "it closed file descriptors that it had not opened"
    if code > _LARGEST_CODE:
        return "CRASHES", f"the process died of {code:#x}"
    return "EXITS", f"the process ended with code {code}"


def frames(trace: str) -> str:
    """Say which lines of code a process was in, from what Python's faulthandler wrote last."""
    dump = trace.rpartition("Fatal Python error")[2]
    shown = dump.partition("(most recent call first):")[2].partition("_guard.py")[0]
    found = re.findall(r'File "(?:[^"]*[/\\])?([^"/\\]+)", line (\d+) in (\S+)', shown)
    return ", called by ".join(f"line {line} of {file}, in {name}" for file, line, name in found[:3])


def findings(deaths: Iterable[Death], source: str, seconds: float) -> list[Finding]:
    """One finding for each way in which calls ended, with the smallest call."""
    by_kind: dict[str, list[Death]] = {}
    for death in deaths:
        by_kind.setdefault(death.kind, []).append(death)
    return [_finding(kind, found, source, seconds) for kind, found in by_kind.items()]


def _finding(kind: str, deaths: Sequence[Death], source: str, seconds: float) -> Finding:
    entry, (least, *others) = (
        by_name()[kind],
        sorted(deaths, key=lambda death: (not death.spoken.sent, death.spoken.size)),
    )
    evidence = [f"smallest call known: {least.spoken.text}"]
    evidence += [f"it was in {least.where}"] if least.where else []
    evidence += [f"also {death.spoken.text}: {death.how}" for death in others]
    does = f"{_DOES[kind]}: {least.how}"
    return Finding(
        kind, entry.level, "seen", does, entry.why, entry.mend, tuple(evidence), script=_script(least, source, seconds)
    )


def _script(death: Death, source: str, seconds: float) -> str:
    """Write the program: it calls the function in a process of its own."""
    sent = death.spoken.sent
    if sent is None:
        return ""
    said = f"{death.kind}: {_DOES[death.kind]}: {death.how}. Exit code 1 while it is so."
    total = sum(x.value.size for x in sent.arguments if x.dtype)
    return _SCRIPT.format(
        name=death.kind, head=f"# {_in_a_line(said)}", callee=death.spoken.callee, source=source,
        arguments="".join(f"    {_spelled(x, total)},\n" for x in sent.arguments if not x.name),
        options="".join(f"    {x.name!r}: {_spelled(x, total)},\n" for x in sent.arguments if x.name),
        imports="\n\n".join(filter(None, (IMPORTS, sent.library))), seconds=seconds,
    )  # fmt: skip


def _in_a_line(text: str) -> str:
    """Escape what would end a comment, or is no text: the words are the function's own."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _spelled(argument: Argument, total: int) -> str:
    """Spell an argument as Python; ``total`` numbers are in the arrays of the call."""
    value, name, give = argument.value, argument.dtype, argument.give
    if not name:
        return give or repr(value)
    if value.dtype.kind in "iu":
        text = f"np.array({value.tolist()}, np.{name})"
    elif value.dtype.kind != "b" and total > _SPELLED:
        text = f"rng.standard_normal({value.shape}).astype(np.{'float32' if name == 'bfloat16' else name})"
    else:
        text = literal(value, name)
    return re.sub(r"\bx\b", lambda _: text, give) if give else text
