"""What is read of .npy files, and what is refused: by one error, at once, and without believing a header."""

import io
import os
import threading
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from regard import RegardError
from regard.cli._npy import NpyError, npy_file


def saved(array, version=(1, 0)):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version, allow_pickle=True)
    return file.getvalue()


def made(header, data=b"", version=(1, 0), length=None):
    """Write a file by hand: a header of any content that claims any length."""
    text = header.encode() + b"\n"
    size = len(text) if length is None else length
    return np.lib.format.magic(*version) + size.to_bytes(2 if version == (1, 0) else 4, "little") + text + data


def header(descr="'<f4'", order="False", shape="(2, 3)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


DATA = bytes(24)


# --- read rightly ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)], ids=str)
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2", "|b1", "<i8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reads_what_numpy_saves(tmp_path, version, dtype, order):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype, order=order)
    (tmp_path / "x.npy").write_bytes(saved(array, version))
    file = npy_file(tmp_path / "x.npy")
    assert (file.shape, file.dtype.str) == ((2, 3, 4), array.dtype.str)
    read = file.read()
    assert read.dtype == array.dtype
    assert not read.flags.writeable
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,) * 20])
def test_reads_odd_shapes(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.ones(shape, np.float32))
    read = npy_file(tmp_path / "x.npy").read()
    assert read.shape == shape
    assert (read == 1).all()


def test_bfloat16_is_void_of_two_bytes(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3), ml_dtypes.bfloat16))
    dtype = npy_file(tmp_path / "x.npy").dtype
    assert (dtype.kind, dtype.itemsize) == ("V", 2)


def test_header_of_python_2(tmp_path):
    (tmp_path / "x.npy").write_bytes(made(header(shape="(2L, 3L)"), DATA))
    assert npy_file(tmp_path / "x.npy").shape == (2, 3)


def test_a_name_that_is_not_unicode(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b.npy"))
    path.write_bytes(saved(np.ones((2, 2))))
    assert npy_file(path).shape == (2, 2)


def test_a_file_that_changed(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(saved(np.ones((2, 2))))
    file = npy_file(path)
    path.write_bytes(saved(np.ones((3, 2))))
    with pytest.raises(NpyError, match="changed while it was read"):
        file.read()


# --- refused --------------------------------------------------------------------------------------

LONG = "1" * 100
REFUSED = {
    "empty": (b"", "is not an .npy file"),
    "text": (b"hello world", "it begins with b'hello '; write it with numpy.save"),
    "pickle": (b"\x80\x04\x95", "is not an .npy file"),
    "wrong magic": (b"\x93NUMPX" + saved(np.ones(3))[6:], "is not an .npy file"),
    "npz": (b"PK\x03\x04" + bytes(40), "is a zip archive, as .npz files are"),
    "empty npz": (b"PK\x05\x06" + bytes(18), "is a zip archive"),
    "magic only": (b"\x93NUMPY\x01\x00", "is cut short: it has 8 bytes"),
    "version 9.9": (b"\x93NUMPY\x09\x09" + bytes(40), "version 9.9; known are 1.0, 2.0, 3.0"),
    "version 1.1": (b"\x93NUMPY\x01\x01" + bytes(40), "version 1.1"),
    "huge header": (made(header(), DATA, (2, 0), length=2**32 - 1), "claims a header of 4,294,967,"),
    "header over the end": (made(header(), b"", length=5000), "is cut short in its header: "),
    "header too long": (made(header() + " " * 10_000, DATA), "claims a header of 10,0.*; 10,000 are read"),
    "header cut off": (made(header(), DATA)[:40], "is cut short in its header"),
    "data cut off": (saved(np.ones((4, 4)))[:-1], "is cut short: .* 128 bytes, and 127 follow"),
    "no data": (made(header()), r"is cut short: its header says float32 \(2, 3\), 24 bytes, and 0 follow"),
    "junk behind": (saved(np.ones((4, 4))) + b"x", "goes on after its array: .* 128 bytes, and 129 follow"),
    "larger than the file": (made(header(shape="(1000000, 1000000)"), DATA), "4,000,000,000,000 bytes, and 24 follow"),
    "negative": (made(header(shape="(-2, -3)"), DATA), r"claims the shape \(-2, -3\), which no array has"),
    "negative product": (made(header(shape="(-6, -1)"), DATA), "which no array has"),
    "overflows to fit": (made(header(shape="(4294967296, 4294967296, 6)"), DATA), "which no array has"),
    "overflows to nothing": (made(header(shape="(9223372036854775808, 2)"), b""), "which no array has"),
    "overflows behind 0": (made(header(shape="(0, 4294967296, 4294967296)")), "which no array has"),
    "100 digits": (made(header(shape=f"({LONG}, 1)"), DATA), "which no array has"),
    "5000 digits": (made(header(shape=f"({LONG * 50}, 1)"), DATA), "header that is not a dict|which no array has"),
    "bools": (made(header(shape="(True, 6)"), DATA), "which no array has"),
    "floats": (made(header(shape="(2.0, 3.0)"), DATA), "header that is not a dict"),
    "a list": (made(header(shape="[2, 3]"), DATA), "header that is not a dict"),
    "no dict": (made("[1, 2]", DATA), "header that is not a dict of descr, fortran_order and shape"),
    "no literal": (made("__import__('os').system('true')", DATA), "header that is not a dict"),
    "a sum": (made(header(shape="(1 + 1, 3)"), DATA), "header that is not a dict"),
    "extra key": (made(header()[:-1] + "'x': 1}", DATA), "header that is not a dict"),
    "key missing": (made("{'descr': '<f4', 'shape': (2, 3)}", DATA), "header that is not a dict"),
    "keys of all kinds": (made("{1: 2, 'a': 3, None: 4}", DATA), "header that is not a dict"),
    "unhashable key": (made("{[]: 2}", DATA), "header that is not a dict"),
    "order is no bool": (made(header(order="2"), DATA), "header that is not a dict"),
    "deep parentheses": (made("(" * 4000 + ")" * 4000, DATA), "header that is not a dict"),
    "deep signs": (made("-" * 8000 + "1", DATA), "header that is not a dict"),
    "deep dicts": (made("{1:" * 2400 + "1" + "}" * 2400, DATA), "header that is not a dict"),
    "not closed": (made("{'descr': '<f4", DATA), "header that is not a dict"),
    "NUL": (made("{'descr': \0}", DATA), "header that is not a dict"),
    "not ASCII": (made(header(descr="'\u00e9'"), DATA, (3, 0)), "header that is not a dict"),
    "no dtype": (made(header(descr="'zz'"), DATA), "header that is not a dict"),
    "descr is a number": (made(header(descr="7"), DATA), "header that is not a dict"),
    "descr in descr": (made(header(descr="(" * 50 + "'<f4'" + ",)" * 50), DATA), "header that is not a dict"),
    "objects": (saved(np.array([1, "a", None], object)), "holds Python objects, which are not loaded"),
    "objects in a record": (saved(np.zeros(2, [("a", object)])), "holds Python objects"),
    "records": (saved(np.zeros(2, [("a", "f4"), ("b", "i4")])), r"elements of dtype \[\('a', '<f4'\)"),
    "arrays as elements": (made(header(descr="('<f4', (3,))", shape="(2,)"), DATA), "not numbers; save one field"),
    "elements of no size": (made(header(descr="'|V0'", shape="(1000000000000,)")), "not numbers"),
    "strings of no size": (made(header(descr="'<U0'", shape="(1000000000000,)")), "not numbers"),
}  # fmt: skip


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
def test_refused_by_one_error_and_little_memory(tmp_path, content):
    data, message = content
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(NpyError, match=message) as raised:
            npy_file(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(raised.value, RegardError)
    text = str(raised.value)
    assert text.startswith(f"{path} ")
    assert "\n" not in text
    assert len(text) < len(str(path)) + 300
    assert peak < 20_000_000  # a header of 10 kB takes Python's parser some megabytes; what it claims takes none


def test_every_cut_of_a_file_is_refused(tmp_path):
    whole = saved(np.ones((2, 3), np.float32))
    for size in range(len(whole)):
        (tmp_path / "x.npy").write_bytes(whole[:size])
        with pytest.raises(NpyError):
            npy_file(tmp_path / "x.npy")


def test_random_damage_is_refused_or_read(tmp_path):
    random = np.random.default_rng(3)
    whole = saved(np.ones((2, 3), np.float32))
    path, read = tmp_path / "x.npy", 0
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(random.integers(1, 4)):
            damaged[random.integers(len(whole) - 24)] = random.integers(256)
        path.write_bytes(damaged)
        try:
            file = npy_file(path)
        except NpyError:
            continue
        read += 1
        assert file.read().nbytes == 24
    assert 0 < read < 250


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.npy", "there is no file"),
        (".", "is a directory; name a file that numpy.save wrote"),
        ("pipe", "is a device, a pipe or a socket"),
        ("/dev/zero", "/dev/zero is a device"),
        ("/dev/full", "/dev/full is a device"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("a" * 300, "cannot be read: File name too long"),
        ("a\0b", "there is no file"),
        ("missing/../x.npy", "there is no file"),
        ("file/x.npy", "cannot be read: Not a directory"),
    ],
    ids=lambda value: value[:20],
)
def test_what_is_no_file_is_refused_at_once(tmp_path, name, message):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    errors = []

    def read():
        try:
            npy_file(tmp_path / name)
        except NpyError as error:
            errors.append(str(error))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(5)
    assert not reader.is_alive(), "it waits"
    assert len(errors) == 1
    assert message in errors[0]
    open_files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]
    assert not [path for path in open_files if str(tmp_path) in path]


def _is_open(fd):
    return os.path.islink(f"/proc/self/fd/{fd}")


def test_a_large_file_is_mapped_and_not_read(tmp_path):
    """256 GB of a sparse file, which no header lies about."""
    path = tmp_path / "x.npy"
    start = made(header(shape=f"({2**18}, {2**18})"))
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + 2**38)
    array = npy_file(path).read()
    assert array.shape == (2**18, 2**18)
    assert array[-1, -1] == 0
