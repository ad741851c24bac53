"""The import rule: a module imports only from layers below its own, and a module without a layer fails."""

import ast
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[1]
LAYERS = [
    ["_errors", "_types", "_native"],  # the extension imports nothing of regard's
    ["_libraries"],
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
    ["check", "viz"],
    ["cli"],
]
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}


def imports(node, depth):
    """Names that a statement imports from outside of the package, ``depth`` levels down, that its file is in."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level >= depth:  # leaves the package that the file is in
        return [f"regard.{node.module or alias.name}" for alias in node.names]
    return []


def wrong_way(root):
    for path in sorted(root.rglob("*.py")):
        here = path.relative_to(root).parts[0].removesuffix(".py")
        if here == "__init__":
            continue
        if here not in RANK:
            yield f"{path.relative_to(root)} has no layer"
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            for name in imports(node, len(path.relative_to(root).parts)):
                there = ([*name.split("."), ""])[1]
                if name.split(".")[0] == "regard" and there != here and RANK.get(there, 99) >= RANK[here]:
                    yield f"{path.relative_to(root)} may not import {name}"


def test_every_import_points_down():
    assert list(wrong_way(Path(regard.__file__).parent)) == []


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
