"""Build what would be released and test it where it would be installed: `make package`.

The sdist is built from the tree, a wheel from the sdist, isolated; the wheel goes into a fresh environment in a
temporary folder, and tests run there from the unpacked sdist, with its src taken away. Once with the oldest Python,
dependencies and extras that the metadata claim; once with the newest of all that there are, on a wheel that the oldest
Python with a stable ABI has built. The archives are kept in build/package.
"""

from __future__ import annotations

import argparse
import email.message
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import scikit_build_core.build

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "package"
FIRST_WITH_ABI3 = (3, 12)  # wheel.py-api of pyproject.toml
TOOLS = ("pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6")
WORKERS = ("-n", "logical", "--maxprocesses", "8", "--dist", "worksteal")  # as in the Makefile
EXTRAS = ("cli", "models")
# Every tests/test_*.py is run as installed but these.
APART = {
    "benchmarks": "needs the extra bench; times nothing, but reads the tree",
    "benchmarks_amx": "as benchmarks",
    "benchmarks_bfloat16": "as benchmarks",
    "benchmarks_fair": "as benchmarks",
    "benchmarks_results": "as benchmarks",
    "benchmarks_work": "as docs_speed",
    "bert": "needs the model, 90 MB",
    "canonical_order_amx": "minutes; compiles native, whatever Python there is",
    "canonical_order_pairs": "as canonical_order_amx",
    "check_mutants": "minutes; all faults of the catalogue: other tests plant some of each kind in this NumPy",
    "check_oracle": "minutes; the catalogue of faults, in float64, whatever NumPy there is",
    "chunks": "minutes; which thread folds which keys is the native module's",
    "concurrency": "needs threadpoolctl; threads are the native module's, whatever NumPy there is",
    "contributing": "reads src",
    "docs_pages": "needs the extra docs, and minutes",
    "docs_speed": "reads docs",
    "experiments": "compares files of the tree",
    "growth": "as benchmarks",
    "interrupts": "minutes; signals are the native module's",
    "memory": "minutes; memory is the native module's",
    "memory_combined": "minutes; memory is the native module's",
    "package_tool": "tests this file, with what a build needs",
    "processes": "minutes; processes are the native module's",
    "requirements": "compares files of the tree",
    "stub": "needs nanobind",
    "symbols": "minutes; compiles native, whatever Python there is",
    "view": "needs the model, 90 MB",
}


@dataclass(frozen=True)
class Python:
    """An interpreter of this machine."""

    path: str
    version: tuple[int, int]

    def __str__(self) -> str:
        return "Python {}.{}".format(*self.version)


@dataclass(frozen=True)
class Case:
    """A wheel built by one interpreter, installed into another, with these requirements besides."""

    name: str
    builder: Python
    runner: Python
    pins: tuple[str, ...]
    extra_pins: tuple[str, ...]


def run(*command: object, **options: object) -> None:
    """Run a command, with nothing of this tree or this environment on its path; fail if it fails."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    env |= {"PYTHONDONTWRITEBYTECODE": "1", "REGARD_PACKAGE": str(OUT), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run([str(c) for c in command], env=env, check=False, **options)
    if done.returncode:
        sys.exit(f"package: failed, exit code {done.returncode}: {' '.join(str(c) for c in command)}")


def asked(path: Path) -> Python | None:
    """Return the interpreter at a path, or None if it does not run or is not one that wheels are made for."""
    code = "import sys; print(sys.implementation.name, *sys.version_info[:2], getattr(sys.flags, 'gil', 1))"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
    except OSError:  # a broken link, or nothing that this machine can start
        return None
    name, *numbers = done.stdout.split() or [""]
    if done.returncode or name != "cpython" or numbers[2] == "0":
        return None
    return Python(str(path), (int(numbers[0]), int(numbers[1])))


def interpreters(oldest: tuple[int, int]) -> list[Python]:
    """Return one interpreter per version from the oldest on, oldest first: this one, those of PATH, those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = (Path(d) for d in os.environ.get("PATH", "").split(os.pathsep) if d)
    places = [Path(sys.executable)]
    places += sorted(p for d in on_path for p in d.glob("python3.*") if re.fullmatch(r"python3\.\d+", p.name))
    places += sorted(pyenv.glob("versions/3.*/bin/python3"))
    found: dict[tuple[int, int], Python] = {}
    for python in filter(None, map(asked, places)):
        if python.version >= oldest:
            found.setdefault(python.version, python)
    return [found[version] for version in sorted(found)]


def build_sdist() -> Path:
    """Build the sdist into OUT."""
    os.chdir(ROOT)
    return OUT / scikit_build_core.build.build_sdist(str(OUT))


def unpacked(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist; return its folder."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    return folder / sdist.name.removesuffix(".tar.gz")


def metadata(folder: Path) -> email.message.Message:
    """Read the metadata of an unpacked sdist."""
    return email.message_from_string((folder / "PKG-INFO").read_text(encoding="utf-8"))


def required(claims: email.message.Message, extra: str = "") -> tuple[str, ...]:
    """Return what regard alone needs, or what an extra adds."""
    parts = (line.partition(";") for line in claims.get_all("Requires-Dist"))
    return tuple(r.strip() for r, _, marker in parts if marker.replace('"', "'").strip() == extra_marker(extra))


def extra_marker(extra: str) -> str:
    """Return the marker of an extra's requirements; regard's own have none."""
    return f"extra == '{extra}'" if extra else ""


def floors(requirements: tuple[str, ...]) -> tuple[str, ...]:
    """Return the oldest version that each requirement allows."""
    return tuple(requirement.replace(">=", "==").partition(",")[0] for requirement in requirements)


def cases(claims: email.message.Message, found: list[Python]) -> list[Case]:
    """Return what to test with the interpreters of this machine."""
    own = required(claims)
    extras = tuple(r for extra in EXTRAS for r in required(claims, extra))
    stable = [python for python in found if python.version >= FIRST_WITH_ABI3]
    newest = found[-1]
    return [
        Case("oldest", found[0], found[0], floors(own), floors(extras)),
        Case("newest", stable[0] if stable else newest, newest, own, extras),
    ]


def untested(oldest: tuple[int, int], found: list[Python]) -> list[str]:
    """Return what must be tested before a release and cannot be on this machine."""
    gaps = []
    if found[0].version != oldest:
        wanted = "Python {}.{}".format(*oldest)
        gaps.append(f"{wanted} is not on this machine; the oldest dependencies are tested with {found[0]}")
    if len([python for python in found if python.version >= FIRST_WITH_ABI3]) < 2:
        first = "{}.{}".format(*FIRST_WITH_ABI3)
        gaps.append(f"one wheel of the stable ABI on two versions of Python; that needs two of {first} or newer")
    return gaps


def suite(folder: Path) -> list[Path]:
    """Return the tests to run as installed."""
    found = {path.stem.removeprefix("test_"): path for path in sorted(folder.glob("test_*.py"))}
    if gone := sorted(APART.keys() - found.keys()):
        sys.exit(f"package: APART names tests that do not exist: {', '.join(gone)}")
    return [path for name, path in found.items() if name not in APART]


def verdict(gaps: list[str], archives: list[str]) -> str:
    """Return the last line."""
    if gaps:
        return f"package: built, but not to be released before what is NOT TESTED above is: {' '.join(archives)}"
    return f"package: ready to release: {' '.join(archives)}"


def environment(python: Python, folder: Path) -> Path:
    """Make an empty environment; return its interpreter."""
    run(python.path, "-m", "venv", folder)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def pip(python: Path, *arguments: object) -> None:
    """Run pip; NumPy and its kind as wheels only, for a build of them would hide that there is none."""
    run(python, "-m", "pip", "--quiet", *arguments)


def build_wheel(case: Case, sdist: Path, folder: Path) -> Path:
    """Build a wheel from the sdist as pip does for a user: with what build-system asks for and nothing else."""
    python = environment(case.builder, folder / "builder")
    pip(python, "wheel", "--no-deps", "--no-cache-dir", "--wheel-dir", folder / "wheel", sdist)
    (wheel,) = (folder / "wheel").iterdir()
    return Path(shutil.copy(wheel, OUT))


def test(case: Case, sdist: Path, folder: Path) -> None:
    """Build, install and test one case."""
    start = time.monotonic()
    needs = ", ".join(case.pins + case.extra_pins)
    print(f"== {case.name}: wheel built by {case.builder}, run by {case.runner} with {needs}", flush=True)
    wheel = build_wheel(case, sdist, folder)
    tree = unpacked(sdist, folder)
    shutil.rmtree(tree / "src")
    python = environment(case.runner, folder / "user")
    settings = ("--rootdir", tree, "-c", tree / "pyproject.toml")
    pytest = (python, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *settings)
    binary = ("--prefer-binary", "--only-binary", "numpy,ml-dtypes,safetensors,tokenizers")
    pip(python, "install", *binary, wheel, *case.pins, *TOOLS)
    run(*pytest, tree / "tests/package/test_archives.py", tree / "tests/package/test_bare.py", cwd=folder)
    pip(python, "install", *binary, f"{wheel}[{','.join(EXTRAS)}]", *case.pins, *case.extra_pins)
    tests = (tree / "tests/package/test_installed.py", *suite(tree / "tests"))
    run(*pytest, "-m", "not alone", *WORKERS, *tests, cwd=folder)
    run(*pytest, "-m", "alone", *tests, cwd=folder)
    print(f"== {case.name}: {wheel.name} in {time.monotonic() - start:.0f} s", flush=True)


def main() -> None:
    """Build and test."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    sdist = build_sdist()
    with tempfile.TemporaryDirectory(prefix="regard-package-") as name:
        folder = Path(name)
        claims = metadata(unpacked(sdist, folder / "claims"))
        major, minor = claims["Requires-Python"].removeprefix(">=").split(".")
        oldest = int(major), int(minor)
        found = interpreters(oldest)
        gaps = untested(oldest, found)
        for gap in gaps:
            print(f"package: NOT TESTED: {gap}", flush=True)
        for case in cases(claims, found):
            test(case, sdist, folder / case.name)
    print(verdict(gaps, sorted(p.name for p in OUT.iterdir())))


if __name__ == "__main__":
    main()
