"""Arrays in ``.npy`` files, which may lie: a header is believed only where the file's size bears it out."""

from __future__ import annotations

import io
import math
import mmap
import os
import stat
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from regard._errors import RegardError
from regard._plan.shapes import MAX_AXES
from regard._types import Array

_PREFIX = len(np.lib.format.MAGIC_PREFIX) + 2  # and two bytes of version
# NumPy itself trusts no longer one, for Python's parser may crash on it.
_MAX_HEADER = 10_000
_VERSIONS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}  # bytes of the header's length
_ZIP = b"PK"


class NpyError(RegardError):
    """A file that is not an ``.npy`` file, that is damaged, or that holds no numbers."""

    __module__ = "regard.cli"


@dataclass(frozen=True)
class Npy:
    """An array in a file: all that a plan needs, and `read` for the numbers.

    Attributes
    ----------
    path
        The file.
    shape, dtype
        Of its array. A dtype that NumPy has no name for, as bfloat16 when it was saved, is void of 2 bytes.
    fortran_order
        Whether the first index runs fastest.
    offset
        Where the numbers begin.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    offset: int

    def read(self) -> Array:
        """Return the array, mapped to the file and read-only: nothing is copied."""
        order: Literal["F", "C"] = "F" if self.fortran_order else "C"
        with _open(self.path) as file:
            if _header(self.path, file) != self:
                raise NpyError(f"{self.path} changed while it was read; try again")
            if 0 in self.shape:
                return np.empty(self.shape, self.dtype)
            try:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError as error:
                raise NpyError(f"{self.path} cannot be mapped ({error.strerror}); copy it to a local file") from None
        return np.ndarray(self.shape, self.dtype, data, self.offset, order=order)


def npy_file(path: str | os.PathLike[str]) -> Npy:
    """Read the header of an ``.npy`` file and hold it against the size of the file; no number is read.

    Raises
    ------
    NpyError
        The path is no regular file or cannot be read, its content is not what `numpy.save` writes, or it is an
        array of objects, records, or elements of no size.
    """
    with _open(Path(path)) as file:
        return _header(Path(path), file)


def _open(path: Path) -> BinaryIO:
    """Open a regular file, and nothing else: a pipe would wait for a writer, and a device never ends."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        number = os.open(path, flags)
    except FileNotFoundError:
        raise NpyError(f"there is no file {path}; name one that numpy.save wrote") from None
    except OSError as error:
        raise NpyError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL in the name
        raise NpyError(f"there is no file {str(path)!r}; name one that numpy.save wrote") from None
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        what = "a directory" if stat.S_ISDIR(mode) else "a device, a pipe or a socket"
        raise NpyError(f"{path} is {what}; name a file that numpy.save wrote")
    return os.fdopen(number, "rb")


def _header(path: Path, file: BinaryIO) -> Npy:
    size = os.fstat(file.fileno()).st_size
    try:
        start = file.read(_PREFIX + max(_VERSIONS.values()) + _MAX_HEADER)
    except OSError as error:
        raise NpyError(f"{path} cannot be read: {error.strerror}") from None
    version = _version(path, start)
    offset = _PREFIX + _VERSIONS[version]
    offset += int.from_bytes(start[_PREFIX:offset], "little")
    if offset - _PREFIX - _VERSIONS[version] > _MAX_HEADER:
        raise NpyError(f"{path} claims a header of {offset:,} bytes; {_MAX_HEADER:,} are read: save it again")
    if offset > len(start):
        raise NpyError(f"{path} is cut short in its header: {size:,} bytes, at least {offset:,} by its own account")
    shape, fortran_order, dtype = _parsed(path, version, start[_PREFIX:offset])
    if len(shape) > MAX_AXES:
        raise NpyError(f"{path} holds an array of {len(shape)} axes; arrays have up to {MAX_AXES}: reshape it")
    _check(path, shape, dtype)
    claimed, there = math.prod(shape) * dtype.itemsize, size - offset
    if claimed != there:
        what = "is cut short" if claimed > there else "goes on after its array"
        raise NpyError(
            f"{path} {what}: its header says {dtype} {shape}, {claimed:,} bytes, and {there:,} follow; save it again"
        )
    return Npy(path, shape, dtype, fortran_order, offset)


def _version(path: Path, start: bytes) -> tuple[int, int]:
    if start[:2] == _ZIP:
        raise NpyError(f"{path} is a zip archive, as .npz files are; save each array to an .npy file of its own")
    if not start.startswith(np.lib.format.MAGIC_PREFIX):
        raise NpyError(f"{path} is not an .npy file: it begins with {start[:6]!r}; write it with numpy.save")
    if len(start) < _PREFIX + 4:
        raise NpyError(f"{path} is cut short: it has {len(start)} bytes; save it again")
    version = start[_PREFIX - 2], start[_PREFIX - 1]
    if version not in _VERSIONS:
        known = ", ".join(f"{major}.{minor}" for major, minor in _VERSIONS)
        raise NpyError(f"{path} has .npy version {version[0]}.{version[1]}; known are {known}: save it again")
    return version


def _parsed(path: Path, version: tuple[int, int], header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Let NumPy parse a header of bounded length; 3.0 differs from 2.0 in the names of fields only."""
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote, which are fine
            return read(io.BytesIO(header), max_header_size=_MAX_HEADER)
    except Exception:  # of the parser, of NumPy's checks, of dtypes, MemoryError and RecursionError among them
        begins = header[_VERSIONS[version] :][:60]
        raise NpyError(
            f"{path} has a header that is not a dict of descr, fortran_order and shape: it begins with {begins!r}; "
            "save it again"
        ) from None


def _check(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        raise NpyError(f"{path} holds Python objects, which are not loaded, for they can run code; save numbers")
    if dtype.names is not None or dtype.subdtype is not None or not dtype.itemsize:
        raise NpyError(f"{path} holds elements of dtype {str(dtype)[:60]}, not numbers; save one field")
    elements = math.prod(size for size in shape if size)
    if any(type(size) is not int or size < 0 for size in shape) or elements * dtype.itemsize > sys.maxsize:
        raise NpyError(f"{path} claims the shape {str(shape)[:100]}, which no array has; save it again")
