"""The process in which a function is loaded and checked; its parent (`_apart`) outlives whatever happens here.

Standard input brings the job, standard output carries messages to the parent. Both are moved out of the function's
reach first: what it prints goes to standard error, which the parent keeps apart, and it reads the end of a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from regard._errors import RegardError
from regard.check import check
from regard.check.candidate._guard import Death, Guard, set_caller

from ._target import Target
from ._wire import Done, Failed, Loaded, Loading, Told, line

# Exit code of a process that cannot tell anything any more.
PIPE_LOST = 121


@dataclass(frozen=True)
class Job:
    """What is to be checked, and calls that are known to give no answer."""

    target: Target
    options: Mapping[str, Any]
    deadly: tuple[Death, ...]


# A shell that waits for the end of the pipe that the parent holds open while it lives, and then ends the group: the
# function may hold Python's lock for good. It is no child of this process, which may wait for its own.
_WATCH = "exec 3<&0; (read line; kill -KILL 0) <&3 &"


def main() -> None:
    """Do the job, and end the process without running what the function's module left for the end."""
    commands, messages = _private_streams()
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is expected: no file of it
    job: Job = pickle.load(commands)
    _end_with_parent(commands)
    faulthandler.enable(messages, all_threads=False)  # lines between messages: what the function prints is its own
    lock = threading.Lock()

    def tell(message: object) -> None:
        text = line(message)
        try:
            with lock:
                messages.write(text)
                messages.flush()
        except (OSError, ValueError):
            os._exit(PIPE_LOST)

    tell(_outcome(job, tell))
    _flush()
    os._exit(0)


def _outcome(job: Job, tell: Callable[[object], None]) -> Done | Failed:
    tell(Loading())
    try:
        fn = job.target.load()
    except RegardError as error:
        return Failed(str(error))
    tell(Loaded())
    set_caller(Guard(job.deadly, tell))
    try:
        return Done(check(fn, progress=lambda what, share: tell(Told(what, share)), **job.options))
    except ValueError as error:
        return Failed(str(error))
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"line {last.lineno} of {os.path.basename(last.filename)}"
        return Failed(
            f"check itself failed, which is no fault of the function's: {type(error).__name__}: {error} ({place}); "
            "please report it"
        )


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """Move the pipes to and from the parent to descriptors of their own."""
    commands, messages = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands, messages


def _end_with_parent(commands: BinaryIO) -> None:
    """Let the end of the parent be that of this process, and where there are groups of what it has started."""
    if hasattr(os, "killpg"):
        quiet = subprocess.DEVNULL
        subprocess.run(["/bin/sh", "-c", _WATCH], stdin=commands, stdout=quiet, stderr=quiet, check=True)
        commands.close()
    else:
        threading.Thread(target=_wait_for_the_end, args=(commands,), daemon=True).start()


def _wait_for_the_end(commands: BinaryIO) -> None:
    commands.read(1)
    os._exit(1)


def _flush() -> None:
    """Bring out what is in the buffers of Python and of C, for it to be counted."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(Exception):
            stream.flush()
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).fflush(None)
