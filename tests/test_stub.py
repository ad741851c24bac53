"""_native.pyi says what the built module takes: names, parameters, defaults, and types as far as they are known."""

import ast
from pathlib import Path

import pytest
from nanobind.stubgen import StubGen

import regard
from regard import _native

WRITTEN = (Path(regard.__file__).parent / "_native.pyi").read_text()
ANY = {"Array": "object"}  # the module takes any object with a buffer; its caller may give arrays only


class Renamed(ast.NodeTransformer):
    def visit_Name(self, node):
        return ast.Name(ANY.get(node.id, node.id))


def text(node):
    return None if node is None else ast.unparse(Renamed().visit(node))


def signature(function):
    a = function.args
    kinds = {"positional": a.posonlyargs, "either": a.args, "keyword": a.kwonlyargs, "rest": [a.vararg, a.kwarg]}
    names = [(kind, p.arg, text(p.annotation)) for kind, several in kinds.items() for p in several if p]
    return names, [text(d) for d in (*a.defaults, *a.kw_defaults)], text(function.returns)


def signatures(stub):
    """Of each function and method, by its dotted name; a class by its name alone."""
    found = {}
    for node in ast.parse(stub).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = "class"
            methods = (m for m in node.body if isinstance(m, ast.FunctionDef))
            found.update((f"{node.name}.{m.name}", signature(m)) for m in methods)
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = signature(node)
    return found


@pytest.fixture(scope="module")
def made():
    generator = StubGen(_native, quiet=True)
    generator.put(_native)
    return signatures(generator.get())


def test_the_stub_is_what_the_module_is(made):
    written = signatures(WRITTEN)
    assert set(written) == set(made)
    assert {name: (written[name], made[name]) for name in made if written[name] != made[name]} == {}


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("def kernel(", "def kernels(", "kernel"),
        ("class Sizes:", "class Size:", "Sizes"),
        ("d: int, dv: int) -> tuple", "dv: int, d: int) -> tuple", "kernel"),
        ("writable: bool = False", "writable: bool = True", "View.__init__"),
        ("writable: bool = False", "writable: bool", "View.__init__"),
        ("state: Array | None", "state: Array", "Call.attend"),
        ("softcap: float", "softcap: int", "ScoreMap.__init__"),
        ("begin: int,\n    end: int,", "begin: int,", "weights"),
        ("def targets() -> list", "def targets(all: bool) -> list", "targets"),
    ],
)
def test_a_stub_that_differs_is_seen(made, old, new, name):
    assert old in WRITTEN
    assert signatures(WRITTEN.replace(old, new)).get(name) != made[name]
