"""Build what would be released and test it where it would be installed: `make package`.

The sdist is built from the tree, a wheel from the sdist, isolated; the wheel goes into a fresh environment in a
temporary folder, and tests run there from the unpacked sdist, with its src taken away. Once with the oldest Python and
dependencies that the metadata claim; once with the newest of both that there are, on a wheel that the oldest Python
with a stable ABI has built. The archives are kept in build/package.
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
TOOLS = ("pytest>=8", "hypothesis>=6")
SUITE = ("lesson", "agree", "bits", "contract", "options", "masks_*", "messages", "state", "weights", "runtime",
         "imports", "docs", "judges")  # fmt: skip


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
    done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
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


def cases(claims: email.message.Message) -> list[Case]:
    """Return what to test, and say what this machine cannot."""
    oldest = tuple(int(n) for n in claims["Requires-Python"].removeprefix(">=").split("."))
    needed = [r for r in claims.get_all("Requires-Dist") if "extra ==" not in r]
    floors = tuple(r.replace(">=", "==") for r in needed)
    found = interpreters(oldest)
    if found[0].version != oldest:
        print("package: NOT TESTED: Python {}.{} is not on this machine;".format(*oldest), end=" ")
        print(f"the oldest dependencies are tested with {found[0]}")
    stable = [python for python in found if python.version >= FIRST_WITH_ABI3]
    if len(stable) < 2:
        print("package: NOT TESTED: one wheel of the stable ABI on two versions of Python; that needs two of", end=" ")
        print("{}.{} or newer".format(*FIRST_WITH_ABI3))
    newest = found[-1]
    return [
        Case("oldest", found[0], found[0], floors),
        Case("newest", stable[0] if stable else newest, newest, tuple(needed)),
    ]


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
    print(
        f"== {case.name}: wheel built by {case.builder}, run by {case.runner} with {', '.join(case.pins)}", flush=True
    )
    wheel = build_wheel(case, sdist, folder)
    tree = unpacked(sdist, folder)
    shutil.rmtree(tree / "src")
    python = environment(case.runner, folder / "user")
    pytest = (
        python,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "--rootdir",
        tree,
        "-c",
        tree / "pyproject.toml",
    )
    binary = ("--prefer-binary", "--only-binary", "numpy,ml-dtypes")
    pip(python, "install", *binary, wheel, *case.pins, *TOOLS)
    run(*pytest, tree / "tests/package/test_archives.py", tree / "tests/package/test_bare.py", cwd=folder)
    pip(python, "install", *binary, f"{wheel}[cli]", *case.pins)
    suite = sorted(p for name in SUITE for p in (tree / "tests").glob(f"test_{name}.py"))
    run(*pytest, tree / "tests/package/test_installed.py", *suite, cwd=folder)
    print(f"== {case.name}: {wheel.name} in {time.monotonic() - start:.0f} s", flush=True)


def main() -> None:
    """Build and test."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    sdist = build_sdist()
    with tempfile.TemporaryDirectory(prefix="regard-package-") as name:
        folder = Path(name)
        for case in cases(metadata(unpacked(sdist, folder / "claims"))):
            test(case, sdist, folder / case.name)
    print("package: ready to release:", *sorted(p.name for p in OUT.iterdir()))


if __name__ == "__main__":
    main()
