"""What is in the sdist and in the wheel that tools/package.py has built, and what is not."""

import os
import re
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

OUT = Path(os.environ["REGARD_PACKAGE"])
TREE = OUT.parents[1]
TOP = {
    ".clang-format", "CHANGELOG.md", "CMakeLists.txt", "CONTRIBUTING.md", "DESIGN.md", "LICENSE", "Makefile",
    "PKG-INFO", "README.md", "benchmarks", "docs", "experiments", "native", "pyproject.toml", "requirements", "src",
    "tests", "tools",
}  # fmt: skip
LEFTOVER = re.compile(r"(^|/)(__pycache__|build|dist|\.[^/]*)(/|$)|\.(so|pyd|pyc|o|whl|html~)$|\.egg-info")


def read_sdist():
    (path,) = OUT.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {m.name.partition("/")[2]: archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()}


def read_wheel():
    path = max(OUT.glob("*.whl"), key=lambda p: p.stat().st_mtime)  # of this case; others are kept beside it
    with zipfile.ZipFile(path) as archive:
        return path.name, {name: archive.read(name) for name in archive.namelist()}


SDIST = read_sdist()
NAME, WHEEL = read_wheel()


def test_the_sdist_has_all_that_a_build_and_its_tests_need():
    assert {PurePosixPath(name).parts[0] for name in SDIST} == TOP
    sources = {path.relative_to(TREE).as_posix() for path in (TREE / "native").rglob("*.*")}
    assert {name for name in SDIST if name.startswith("native/")} == sources
    written = {p.relative_to(TREE).as_posix() for p in (TREE / "src").rglob("*") if p.is_file()}
    assert {name for name in SDIST if name.startswith("src/")} == {n for n in written if not LEFTOVER.search(n)}


def test_the_sdist_has_no_leftover():
    assert [name for name in SDIST if LEFTOVER.search(name) and name != ".clang-format"] == []


@pytest.mark.parametrize("name", [".ci/run", "src/x/__pycache__/y.pyc", "build/tests/a", "src/regard/_native.abi3.so"])
def test_a_leftover_would_be_seen(name):
    assert LEFTOVER.search(name)


@pytest.mark.parametrize("archive", [SDIST, WHEEL], ids=["sdist", "wheel"])
def test_nothing_names_the_machine_that_built_it(archive):
    places = [f"{place}/".encode() for place in (TREE, Path.home()) if place != Path(place.anchor)]
    assert [(name, place) for name, data in archive.items() for place in places if place in data] == []


def test_the_wheel_is_the_package_and_its_module():
    package = {n.removeprefix("src/"): data for n, data in SDIST.items() if n.startswith("src/")}
    info = {name for name in WHEEL if name.startswith("regard-")}
    (module,) = set(WHEEL) - set(package) - info
    assert re.fullmatch(r"regard/_native(\.[\w-]+)?\.(so|pyd)", module)
    assert {name: WHEEL.get(name) for name in package} == package
    assert {"regard/py.typed", "regard/_native.pyi", "regard/viz/assets/page.html"} <= set(package)
    files = {PurePosixPath(name).relative_to(PurePosixPath(name).parts[0]).as_posix() for name in info}
    assert files == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_the_tag_is_true():
    """A module that says abi3 in the wheel's name but not in its own is found by no other Python."""
    (module,) = (n for n in WHEEL if re.search(r"_native.*\.(so|pyd)$", n))
    if "-abi3-" in NAME:
        assert NAME.split("-")[2] == "cp312"
        assert module in ("regard/_native.abi3.so", "regard/_native.pyd")
        assert sys.version_info >= (3, 12)
    else:
        assert sys.version_info < (3, 12)
        assert f"-cp3{sys.version_info.minor}-cp3{sys.version_info.minor}-" in NAME
