"""requirements/*.txt install what the extras of pyproject.toml promise: the same packages and bounds, or a pin."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement

try:
    import tomllib
except ImportError:  # Python 3.10, where pytest needs its forerunner
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
FILES = {
    "build": ["build-system"],
    "dev": ["dependencies", "cli", "models", "dev"],
    "docs": ["docs"],
    "bench": ["bench"],
    "heavy": ["torch", "jax", "transformers", "onnx"],
}
# Tools that pip would find by itself, and the driver of the browser: nobody who installs regard needs them.
APART = {"build": {"cmake", "ninja"}, "heavy": {"playwright"}}


def by_name(lines):
    found = {}
    for need in map(Requirement, lines):
        assert found.setdefault(need.name, need.specifier) == need.specifier, f"{need.name} has two ranges"
    return found


def listed(file):
    lines = (ROOT / "requirements" / f"{file}.txt").read_text().splitlines()
    return by_name(line for line in lines if line and not line.startswith("#"))


def promised(extras):
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = whole["project"]
    known = {"build-system": whole["build-system"]["requires"], "dependencies": project["dependencies"]}
    known |= project["optional-dependencies"]
    return by_name(line for extra in extras for line in known[extra])


def differences(given, promise):
    """What is in one and not in the other, or is not the promised range nor a version within it."""
    for name in sorted({*given, *promise}):
        if name not in given or name not in promise:
            yield f"{name} is only in the {'extra' if name in promise else 'file'}"
            continue
        pins = [clause.version for clause in given[name] if clause.operator == "=="]
        if not (given[name] == promise[name] or (pins and all(pin in promise[name] for pin in pins))):
            yield f"{name}{given[name]} is not {name}{promise[name]}"


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_its_extras(file):
    given = {name: bounds for name, bounds in listed(file).items() if name not in APART.get(file, ())}
    assert list(differences(given, promised(FILES[file]))) == []


def test_constraints_are_within_the_extras():
    pins = listed("constraints")
    promise = promised(FILES["heavy"])
    assert list(differences(pins, {name: promise[name] for name in pins})) == []


@pytest.mark.parametrize(
    ("given", "promise", "found"),
    [
        (["a>=1"], ["a>=1", "b"], ["b is only in the extra"]),
        (["a>=1", "b"], ["a>=1"], ["b is only in the file"]),
        (["a>=1"], ["a>=2"], ["a>=1 is not a>=2"]),
        (["a==1"], ["a>=2"], ["a==1 is not a>=2"]),
        (["a==2.5"], ["a>=2,<3"], []),
    ],
)
def test_differences_are_seen(given, promise, found):
    assert list(differences(by_name(given), by_name(promise))) == found
