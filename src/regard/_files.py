"""Where a file may be written, and writing it whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from pathlib import Path

from regard._errors import RegardError


def destination(path: str | os.PathLike[str]) -> Path:
    """Where a file for ``path`` will be written: symbolic links are followed, devices and pipes are written to.

    Raises
    ------
    RegardError
        If nothing can be written there.
    """
    if not os.fspath(path):
        raise RegardError("the file to write has no name: name one")
    given = Path(path)
    try:
        mode = given.stat().st_mode
        target = given.resolve() if stat.S_ISREG(mode) else given
    except FileNotFoundError:
        mode, target = 0, given.resolve()
    except OSError as error:
        raise _refused(given, error) from None
    except ValueError:
        raise RegardError("the name of the file to write holds a NUL character: name one without") from None
    if stat.S_ISDIR(mode):
        raise RegardError(f"cannot write {given}: it is a directory; name a file in it")
    if not target.parent.is_dir():
        raise RegardError(f"cannot write {given}: there is no directory {given.parent}; make it first")
    if not os.access(target if mode else target.parent, os.W_OK):
        raise RegardError(f"cannot write {given}: you may not write {'it' if mode else f'to {target.parent}'}")
    return target


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text whole or not at all: readers see the old file until the new one is complete."""
    target = destination(path)
    try:
        if target.exists() and not target.is_file():  # a device or a pipe: never replaced
            with target.open("w", encoding="utf-8", newline="\n") as file:
                file.write(text)
        else:
            _replace(target, text)
    except OSError as error:
        raise _refused(target, error) from None


def _replace(target: Path, text: str) -> None:
    part = target.with_name(f".regard-{secrets.token_hex(4)}.part")
    file = part.open("x", encoding="utf-8", newline="\n")  # exclusive: never somebody else's file
    try:
        with file:
            file.write(text)
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _refused(path: Path, error: OSError) -> RegardError:
    return RegardError(f"cannot write {path}: {error.strerror}")
