"""A function named in text, ``module:function`` or ``file.py:function``, and how to get hold of it."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from types import ModuleType
from typing import Any

from regard._errors import RegardError, listed
from regard.check.findings._replay import import_line


@dataclass(frozen=True)
class Target:
    """Where a function is: a module, the folder that it is imported from, and the name of the function there."""

    module: str
    name: str
    folder: str
    file: str = ""

    @classmethod
    def of(cls, text: str) -> Target:
        """Read ``module:function`` or ``file.py:function``.

        Raises
        ------
        RegardError
            It is neither, or there is no such file.
        """
        place, colon, name = text.rpartition(":")
        if not colon or not place:
            raise RegardError(f"{text!r} names no function; write module:function or file.py:function")
        if not name.isidentifier():
            raise RegardError(f"{name!r} is no name of a function; write {place}:function, a name of the module itself")
        path = Path(place)
        if path.suffix != ".py" and path.name == place:
            return cls(place, name, os.getcwd())
        if not path.is_file():
            raise RegardError(f"there is no file {place}; write file.py:function, or module:function with dots")
        if not path.stem.isidentifier() or iskeyword(path.stem):
            raise RegardError(f"{place} cannot be imported: {path.stem!r} is no name in Python; rename it")
        return cls(path.stem, name, str(path.resolve().parent), place)

    @property
    def text(self) -> str:
        """As it was written."""
        return f"{self.file or self.module}:{self.name}"

    @property
    def source(self) -> str:
        """Python lines that import it as ``attention``."""
        return f"sys.path.insert(0, {self.folder!r})\nfrom {self.module} import {self.name} as attention"

    def load(self) -> Any:
        """Import the module, which runs it, and return what has the name.

        Raises
        ------
        RegardError
            It cannot be imported, or has nothing of that name that can be called.
        """
        if self.file and self.module in sys.modules:
            raise RegardError(f"{self.file} is named like the module {self.module}, which is loaded: rename the file")
        sys.path.insert(0, self.folder)
        module = self._imported()
        if not hasattr(module, self.name):
            raise RegardError(self._missing(module))
        found = getattr(module, self.name)
        if isinstance(found, type) or not callable(found):
            kind = "a class: make an instance in the module" if isinstance(found, type) else f"a {type(found).__name__}"
            raise RegardError(f"{self.text} is {kind}; check calls a function, or an object that can be called")
        return _importable(found, self)

    def _imported(self) -> ModuleType:
        try:
            return importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{self.module}.".startswith(f"{error.name}."):
                raise RegardError(self._raises(error)) from None
            raise RegardError(
                f"there is no module {error.name!r}; it is looked for in {self.folder} and where Python's packages "
                "are: go to the folder above it, or name its file, file.py:function"
            ) from None
        except BaseException as error:
            raise RegardError(self._raises(error)) from None

    def _raises(self, error: BaseException) -> str:
        said = next(iter(str(error).splitlines()), "")
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
        inner = frames[-1] if frames else None
        where = f" (line {inner.lineno} of {Path(inner.filename).name})" if inner and inner.filename != __file__ else ""
        mend = "mend it, or name a module that can be imported"
        if "relative import" in said:
            mend = "a file of a package is named by its module: package.module:function"
        return f"importing {self.file or self.module} raises {type(error).__name__}: {said}{where}; {mend}"

    def _missing(self, module: ModuleType) -> str:
        named = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        own = [name for name in named if getattr(vars(module)[name], "__module__", None) == module.__name__]
        close = difflib.get_close_matches(self.name, named, 1)
        hint = f"did you mean {close[0]}?" if close else f"it has {listed(own or named, 8)}"
        return f"{self.file or self.module} has no {self.name!r}; {hint}"


def _importable(found: Any, target: Target) -> Any:
    """Let an object know the name that it is asked by, so that scripts import it by that name."""
    if import_line(found) is not None:
        return found
    try:
        found.__module__, found.__qualname__ = target.module, target.name
    except (AttributeError, TypeError):
        return found  # scripts then hold what it answered
    return found
