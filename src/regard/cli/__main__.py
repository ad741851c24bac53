"""Entry of the command ``regard``: errors become one line and exit code 2."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from regard._errors import RegardError
from regard.cli._printable import printable

# What the extra cli brings; some of it is imported by one command only.
_NEEDED = ("typer", "rich", "threadpoolctl")


def main() -> None:
    """Run the command on ``sys.argv``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # tokens that the terminal's encoding lacks
    if sys.stdout is None:
        _fail("stdout is closed: there is nowhere to print to")
    try:
        try:
            _app()(prog_name="regard")
        except SystemExit as end:  # by click, or by rich
            if isinstance(end.__context__, OSError) and end.__context__.errno == errno.EPIPE:
                raise end.__context__ from None
            raise
        finally:
            sys.stdout.flush()  # here, where a full disk can still be told
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        _fail(f"the command needs {error.name}; run `pip install 'regard[cli]'`")
    except RegardError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(128 + 2)  # as a shell counts what SIGINT ends
    except OSError as error:  # files have their own errors: this is stdout, or stderr
        _silence()
        if error.errno == errno.EPIPE:
            sys.exit(128 + 13)  # whoever read has seen enough, as with head: as a shell counts what SIGPIPE ends
        _fail(f"cannot write to stdout: {error.strerror}")


def _app() -> Callable[..., None]:
    from regard.cli._app import app

    return app


def _fail(message: str) -> NoReturn:
    try:
        if sys.stderr is not None:
            print(f"regard: {printable(message)}", file=sys.stderr, flush=True)
    except OSError:  # there is nobody left to tell
        _silence()
    sys.exit(2)


def _silence() -> None:
    """Let what is still in the buffers go nowhere: Python writes it at its end, and would complain once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


if __name__ == "__main__":
    main()
