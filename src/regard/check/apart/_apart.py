"""A check in a process of its own, which a function may crash, hang or leave without ending the check.

The process is started anew after each death. Whatever is asked follows from the seed, so it comes to the same call
again, and this one is then refused in place of being made (`Guard`).
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import math
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

from regard._errors import RegardError, listed, written
from regard.check import _options, check
from regard.check.candidate._guard import Answered, Called, Death, Spoken
from regard.check.findings._finding import Finding
from regard.check.report._report import Report

from ._child import PIPE_LOST, Job
from ._death import findings, frames, how_it_ended
from ._target import Target
from ._wire import Done, Failed, Loaded, Loading, Told, message

# Deaths after which nothing more is asked; a call that hangs costs its whole time limit.
MOST_DEATHS, MOST_HANGS = 5, 3
# Importing torch or JAX takes seconds where a call takes milliseconds.
_LOADING = 6
# While the process starts, and between calls, where check computes for itself: longer than any search takes.
_BETWEEN_S = 120.0
_TICK_S = 0.2
# What a process has told is read to its end; one that has left the group may hold the pipe open for longer.
_GRACE_S = 3.0
# Letters of what was printed, and of what faulthandler wrote.
_TAIL, _TRACE = 4096, 1 << 16
_START = "import sys; sys.path[:] = {path!r}; from regard.check.apart._child import main; main()"


@dataclass(frozen=True)
class Printed:
    """What a function printed while it was checked: how many lines, in all processes, and the last of them."""

    lines: int = 0
    tail: str = ""

    def then(self, other: Printed) -> Printed:
        """Add what was printed later."""
        return Printed(self.lines + other.lines, (self.tail + other.tail)[-_TAIL:])


@dataclass(frozen=True)
class Apart:
    """The report of a check in a process of its own, and what the function printed there."""

    report: Report
    printed: Printed


def check_apart(
    target: str,
    *,
    timeout_s: float = 10.0,
    progress: Callable[[str, float], None] | None = None,
    **options: Any,
) -> Apart:
    """Check a function in a process of its own, which is survived whatever the function does to it.

    A call that crashes, gives no answer in time or leaves the program is a finding, CRASHES, HANGS or EXITS; everything
    else is asked all the same. The function's module is imported there, which runs it. This is no sandbox: a function
    can do to files and network what its user can, and a hostile one can forge its own report. What the process has
    started ends with it, unless it has left the process group; on Windows only the process itself is ended.

    Parameters
    ----------
    target : str
        ``"module:function"``, looked for in the current folder first, or ``"file.py:function"``.
    timeout_s : float, optional
        Seconds for one call; importing may take six times as long.
    progress : callable, optional
        As in `regard.check`.
    **options
        As in `regard.check`, but ``vjp``: a function cannot be sent to another process, its attribute ``vjp`` is there.

    Returns
    -------
    Apart
        ``.report``, and ``.printed``: what the function wrote to stdout and stderr.

    Raises
    ------
    RegardError
        The target cannot be imported, or an option is none of check's, or cannot be sent to another process.
    ValueError, TypeError
        As of `regard.check`.
    """
    job = Job(Target.of(target), _sendable(options), ())
    if not (isinstance(timeout_s, int | float) and 0 < timeout_s < math.inf):
        raise RegardError(f"timeout_s is {written(timeout_s)}; it is a number of seconds above 0")
    printed = Printed()
    while True:
        with _Child(job, timeout_s) as child:
            ended = child.run(progress or (lambda what, share: None))
        deaths, printed = (*job.deadly, *child.deaths), printed.then(child.printed)
        if isinstance(ended, Failed):
            raise RegardError(ended.message)
        if isinstance(ended, Done) or _enough(deaths):
            report = ended.report if isinstance(ended, Done) else _broken_off(job)
            return Apart(_with(report, findings(deaths, job.target.source, timeout_s), job), printed)
        job = replace(job, deadly=deaths)


def _sendable(options: dict[str, Any]) -> dict[str, Any]:
    """Refuse options that check has not, or that are lost on the way to another process."""
    known = [name for name in inspect.signature(check).parameters if name not in ("fn", "progress", "vjp")]
    if "vjp" in options:
        raise RegardError(
            "vjp is a function, which cannot be sent to another process: make it an attribute in the function's "
            "module, attention.vjp = ..., and leave vjp= out"
        )
    for name, value in options.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"it has {listed(known, len(known))}"
            raise RegardError(f"check_apart has no option {name!r}; {hint}")
        if name in ("supports", "expected"):  # iterators are read once, and there may be several processes
            options[name] = getattr(_options, f"as_{name}")(value)
            continue
        try:
            pickle.dumps(value)
        except Exception:
            raise RegardError(
                f"{name} is of type {type(value).__name__}, which cannot be sent to another process; "
                "pass a number or a text"
            ) from None
    return options


def _enough(deaths: tuple[Death, ...]) -> bool:
    return len(deaths) >= MOST_DEATHS or sum(death.kind == "HANGS" for death in deaths) >= MOST_HANGS


def _broken_off(job: Job) -> Report:
    """Make the report of a check that was given up."""
    return Report(job.target.name, (), (), unfinished=True, strict=bool(job.options.get("strict")))


def _with(report: Report, dead: list[Finding], job: Job) -> Report:
    """Add findings, and let scripts find the function's module from wherever they are started."""
    expected = job.options.get("expected") or {}
    dead = [replace(finding, expected=expected.get(finding.name)) for finding in dead]
    rest = [f for f in report.findings if f.about not in {finding.name for finding in dead}]
    place = f"import sys\n\n{job.target.place}\n"
    rest = [replace(f, script=f.script.replace("import sys\n", place, 1)) for f in rest]
    return replace(report, findings=(*dead, *rest))


class _Child:
    """One process, from its start to its end; killed when it is left, with whatever it has started."""

    def __init__(self, job: Job, timeout_s: float) -> None:
        self._job, self._timeout = job, timeout_s
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tail, self._lines, self._trace, self._how = b"", 0, b"", ""
        self._limit, self._loaded = _BETWEEN_S, False
        self._pending: Spoken | None = None
        self._last: Spoken | None = None
        self.deaths: list[Death] = []

    def __enter__(self) -> _Child:
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", _START.format(path=sys.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent, which then ends the child
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )  # fmt: skip
        self._threads = [
            threading.Thread(target=work, args=(stream,), daemon=True)
            for work, stream in ((self._receive, self._process.stdout), (self._drain, self._process.stderr))
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._kill()  # before the wait: the number of the group is taken as long as there is a process of it
        self._process.wait()
        for thread in self._threads:
            thread.join(1)  # a process that has left the group may hold the other end for longer
        with contextlib.suppress(OSError):
            cast(BinaryIO, self._process.stdin).close()

    @property
    def printed(self) -> Printed:
        """What the function wrote."""
        return Printed(self._lines, self._tail.decode(errors="replace"))

    def run(self, progress: Callable[[str, float], None]) -> Done | Failed | None:
        """Do the job; None if the process did not come to its end."""
        commands = cast(BinaryIO, self._process.stdin)
        with contextlib.suppress(OSError):
            pickle.dump(self._job, commands)
            commands.flush()
        for told in self._heard():
            if isinstance(told, Told):
                progress(told.what, told.share)
            elif isinstance(told, Failed) or (isinstance(told, Done) and self._loaded):
                return told
            else:
                self._note(told)
        return None if self._last else Failed(self._never_called())

    def _note(self, message: Any) -> None:
        """Remember where the process is, and how long it may stay there."""
        self._limit = _BETWEEN_S
        if isinstance(message, Loading):
            self._limit = self._timeout * _LOADING
        elif isinstance(message, Loaded):
            self._loaded = True
        elif isinstance(message, Called):
            self._limit, self._pending, self._last = self._timeout, message.spoken, message.spoken
        elif isinstance(message, Answered):
            self._pending = None
            self.deaths += [message.death] if message.death else []

    def _heard(self) -> Iterator[Any]:
        """Yield what the process tells, until it ends or is silent for too long."""
        since, has_ended = time.monotonic(), False
        while True:
            try:
                told = self._messages.get(timeout=_TICK_S)
            except queue.Empty:
                silent = time.monotonic() - since
                if has_ended and silent > _GRACE_S:
                    break
                if not has_ended and self._process.poll() is not None:
                    self._kill()  # what it has started may hold the pipe open
                    since, has_ended = time.monotonic(), True
                if not has_ended and silent > self._limit:
                    self._hangs()
                    return
                continue
            if told is None:
                break
            since = time.monotonic()
            yield told
        self._died()

    def _hangs(self) -> None:
        if hasattr(os, "killpg"):
            self._process.send_signal(signal.SIGABRT)  # faulthandler then says where it is
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
        self._kill()
        self._threads[0].join(1)
        self._ended("HANGS", f"no answer in {self._limit:g} s")

    def _died(self) -> None:
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:  # it has closed the pipe
            code = PIPE_LOST
        self._kill()
        self._threads[0].join(1)
        self._ended(*how_it_ended(code))

    def _ended(self, kind: str, how: str) -> None:
        """Keep the call that the process ended in, or the last one before; without one, how it ended."""
        where = frames(self._trace.decode(errors="replace"))
        if self._pending:
            self.deaths.append(Death(kind, how, self._pending, where))
        elif self._last:  # a script of this call alone would not show it
            self.deaths.append(Death(kind, f"{how}, after the call", replace(self._last, sent=None), where))
        self._how = f"{how}, in {where}" if where else how

    def _never_called(self) -> str:
        target = self._job.target
        if self._loaded:
            return f"no call of {target.text} was made: {self._how}"
        return (
            f"importing {target.file or target.module} does not end well: {self._how}; what runs at import belongs "
            'under if __name__ == "__main__"'
        )

    def _kill(self) -> None:
        """End the process, and what it has started where there are groups: Windows has none."""
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()

    def _receive(self, stream: Any) -> None:
        with stream, contextlib.suppress(OSError, ValueError):
            for text in stream:
                try:
                    self._messages.put(message(text))
                except (TypeError, ValueError, KeyError, AttributeError):  # faulthandler's, or cut off
                    self._trace = (self._trace + text)[-_TRACE:]
        self._messages.put(None)

    def _drain(self, stream: Any) -> None:
        with stream, contextlib.suppress(OSError, ValueError):
            while chunk := stream.read1(1 << 16):
                self._lines += chunk.count(b"\n")
                self._tail = (self._tail + chunk)[-_TAIL:]
