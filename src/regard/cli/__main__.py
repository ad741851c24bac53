"""Entry of the command ``regard``: errors become one line and exit code 2."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

from regard._errors import RegardError, UnsupportedError
from regard.cli._printable import printable


def main() -> None:
    """Run the command on ``sys.argv``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # tokens that the terminal's encoding lacks
    try:
        _app()()
    except RegardError as error:
        print(f"regard: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)


def _app() -> Callable[[], None]:
    try:
        from regard.cli._app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        raise UnsupportedError(f"the command needs {error.name}; run `pip install 'regard[cli]'`") from None
    return app


if __name__ == "__main__":
    main()
