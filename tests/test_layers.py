"""The import rule: a module imports only from layers below its own, and a module without a layer fails."""

import ast
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[1]
LAYERS = [
    ["_cached", "_errors", "_types", "_native"],  # the extension imports nothing of regard's
    ["_files", "_libraries"],
    ["_fit"],
    ["masks", "numerics"],
    ["biases"],
    ["_arrays", "_runtime"],
    ["_plan"],
    ["_engine", "state"],
    ["reference"],
    ["_attention"],
    ["positions"],
    ["layers"],
    ["models"],
    ["onnx", "transformers"],  # bridges
    ["check", "viz", "bench"],
    ["cli"],
]
# Within check: what a finding is made of comes before what is found, and that before the report.
CHECK = [
    ["_clock", "arrays", "answers"],
    ["faults", "candidate"],
    ["findings", "habits"],
    ["instruments"],
    ["gradients"],
    ["report"],
    ["_run", "_options"],
    ["check"],  # the function, in __init__
    ["apart", "_pytest"],
]


def ranked(layers):
    return {name: rank for rank, row in enumerate(layers) for name in row}


RANK = ranked(LAYERS)


def imports(node, depth, package="regard"):
    """Names that a statement imports from outside of the package, ``depth`` levels down, that its file is in."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level >= depth:  # leaves the package that the file is in
        return [f"{package}.{node.module or alias.name}" for alias in node.names]
    return []


def wrong_way(root, rank=RANK, package="regard"):
    depth = len(package.split("."))
    for path in sorted(root.rglob("*.py")):
        here = path.relative_to(root).parts[0].removesuffix(".py")
        if here == "__init__":
            continue
        if here not in rank:
            yield f"{path.relative_to(root)} has no layer"
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            for name in imports(node, len(path.relative_to(root).parts), package):
                there = ([*name.split("."), ""])[depth:][:1]
                inside = name.startswith(f"{package}.")
                if inside and there != [here] and rank.get("".join(there), 99) >= rank[here]:
                    yield f"{path.relative_to(root)} may not import {name}"


def test_every_import_points_down():
    assert list(wrong_way(Path(regard.__file__).parent)) == []


def test_every_import_within_check_points_down():
    root = Path(regard.__file__).parent / "check"
    assert list(wrong_way(root, ranked(CHECK), "regard.check")) == []


def test_the_rule_within_check_can_say_no(tmp_path):
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "_case.py").write_text("from regard.check.report._report import Report\n")
    (tmp_path / "_clock.py").write_text("from ._run import run\nfrom regard._types import Array\n")
    assert list(wrong_way(tmp_path, ranked(CHECK), "regard.check")) == [
        "_clock.py may not import regard.check._run",
        "answers/_case.py may not import regard.check.report._report.Report",
    ]


@pytest.mark.parametrize(
    ("path", "line", "found"),
    [
        ("masks/x.py", "from regard._plan import Plan", "masks/x.py may not import regard._plan.Plan"),
        ("_plan.py", "import regard.state", "_plan.py may not import regard.state"),
        ("state.py", "from regard import Causal", "state.py may not import regard.Causal"),
        ("masks/x.py", "from regard import numerics", "masks/x.py may not import regard.numerics"),
        ("newcomer.py", "", "newcomer.py has no layer"),
        ("state.py", "from ._attention import forward", "state.py may not import regard._attention"),
        ("masks/x.py", "from .._plan import Plan", "masks/x.py may not import regard._plan"),
    ],
)
def test_the_rule_can_say_no(tmp_path, path, line, found):
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(line + "\n")
    (tmp_path / "_plan2").mkdir()
    assert list(wrong_way(tmp_path)) == [found]


def too_long(root):
    """Files of over 400 lines in the folders that hold Python."""
    for folder in ("src", "tests", "tools", "benchmarks", "docs"):
        for path in sorted((root / folder).rglob("*.py")):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if lines > 400:
                yield f"{path.relative_to(root).as_posix()} has {lines} lines"


def test_no_python_file_is_over_400_lines():
    assert list(too_long(ROOT)) == []


@pytest.mark.parametrize("folder", ["src/regard", "tests/heavy", "tools", "benchmarks", "docs/figures"])
def test_a_long_file_is_seen(tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "short.py").write_text("x\n" * 400)
    (tmp_path / folder / "long.py").write_text("x\n" * 401)
    assert list(too_long(tmp_path)) == [f"{folder}/long.py has 401 lines"]
