"""A function named in text, ``module:function`` or ``file.py:function``, and how to get hold of it."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
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
    """Where a function is: a module, the folder that it is imported from, and the name of the function there.

    ``file`` is the file as it was written. A file whose name cannot be that of a module is one all the same, of a name
    that is made for it; ``path`` is then where it is.
    """

    module: str
    name: str
    folder: str
    file: str = ""
    path: str = ""

    @classmethod
    def of(cls, text: str) -> Target:
        """Read ``module:function`` or ``file.py:function``.

        Raises
        ------
        RegardError
            It is neither, or there is no such file.
        """
        if not isinstance(text, str):
            raise RegardError(
                f"a function in a process of its own is told by name, not by an object of type {type(text).__name__}: "
                "write module:function or file.py:function"
            )
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
        if path.suffix != ".py":
            raise RegardError(f"{place} is no Python file; write file.py:function, or module:function with dots")
        whole = path.resolve()
        if path.stem.isidentifier() and not iskeyword(path.stem):
            return cls(path.stem, name, str(whole.parent), place)
        made = re.sub(r"\W", "_", path.stem, flags=re.ASCII)
        return cls(f"file_{made}", name, str(whole.parent), place, str(whole))

    @property
    def text(self) -> str:
        """As it was written."""
        return f"{self.file or self.module}:{self.name}"

    @property
    def place(self) -> str:
        """Python lines after which the module can be imported by its name."""
        lines = [f"sys.path.insert(0, {self.folder!a})"]
        if self.path:
            lines += [
                "import importlib.util\n",
                f"spec = importlib.util.spec_from_file_location({self.module!r}, {self.path!a})",
                "sys.modules[spec.name] = importlib.util.module_from_spec(spec)",
                "spec.loader.exec_module(sys.modules[spec.name])",
            ]
        return "\n".join(lines)

    @property
    def source(self) -> str:
        """Python lines that import it as ``attention``."""
        return f"{self.place}\nfrom {self.module} import {self.name} as attention"

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
            return self._of_file() if self.path else importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{self.module}.".startswith(f"{error.name}."):
                raise RegardError(self._raises(error)) from None
            raise RegardError(
                f"there is no module {error.name!r}; it is looked for in {self.folder} and where Python's packages "
                "are: go to the folder above it, or name its file, file.py:function"
            ) from None
        except BaseException as error:
            raise RegardError(self._raises(error)) from None

    def _of_file(self) -> ModuleType:
        """Load a file whose name is none of a module; `place` are the same lines."""
        spec = importlib.util.spec_from_file_location(self.module, self.path)
        assert spec
        assert spec.loader
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

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
