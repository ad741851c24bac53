"""tools/package.py: which interpreters, versions and tests it takes, and what it says when some are missing."""

import email
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from test_requirements import by_name, promised

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("package_tool", ROOT / "tools" / "package.py")
tool = sys.modules["package_tool"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

CLAIMS = email.message_from_string("""Requires-Dist: numpy>=1.26
Requires-Dist: typer>=0.15.4; extra == 'cli'
Requires-Dist: tokenizers>=0.19,<1; extra == "models"
Requires-Dist: pytest>=8; extra == 'dev'
""")
OLD, NEW, NEWER = (tool.Python(f"/python3.{minor}", (3, minor)) for minor in (10, 12, 13))


def test_an_interpreter_that_runs():
    assert tool.asked(Path(sys.executable)) == tool.Python(sys.executable, sys.version_info[:2])


@pytest.mark.parametrize("kind", ["link to nowhere", "no program", "fails"])
def test_what_does_not_run_is_no_interpreter(tmp_path, kind):
    path = tmp_path / "python3.11"
    if kind == "link to nowhere":
        path.symlink_to(tmp_path / "gone")
    else:
        path.write_text("no program" if kind == "no program" else "#!/bin/sh\nexit 1\n")
        path.chmod(0o755)
    assert tool.asked(path) is None


def test_the_oldest_case_has_every_floor():
    oldest, newest = tool.cases(CLAIMS, [OLD, NEW, NEWER])
    assert (oldest.builder, oldest.runner, newest.builder, newest.runner) == (OLD, OLD, NEW, NEWER)
    assert (oldest.pins, oldest.extra_pins) == (("numpy==1.26",), ("typer==0.15.4", "tokenizers==0.19"))
    assert (newest.pins, newest.extra_pins) == (("numpy>=1.26",), ("typer>=0.15.4", "tokenizers>=0.19,<1"))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([OLD, NEW, NEWER], []),
        ([NEW, NEWER], ["Python 3.10 is not on this machine"]),
        ([OLD, NEW], ["one wheel of the stable ABI on two versions"]),
        ([NEW], ["Python 3.10 is not on this machine", "one wheel of the stable ABI on two versions"]),
    ],
)
def test_the_last_line_knows_what_was_not_tested(found, words):
    gaps = tool.untested((3, 10), found)
    assert [word in gap for word, gap in zip(words, gaps, strict=True)] == [True] * len(words)
    assert ("ready to release" in tool.verdict(gaps, ["a.whl"])) == (not words)


def test_every_test_is_run_but_those_apart(tmp_path):
    names = {path.name for path in tool.suite(ROOT / "tests")}
    assert {"test_biases.py", "test_multihead.py", "test_onnx_attention.py", "test_cli_plan.py"} <= names
    assert len(names) + len(tool.APART) == len(list((ROOT / "tests").glob("test_*.py")))
    with pytest.raises(SystemExit, match="APART names tests that do not exist: benchmarks, benchmarks_amx, "):
        tool.suite(tmp_path)


def test_it_runs_pytest_as_the_makefile_does():
    (workers,) = re.findall(r"^WORKERS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert workers.split() == list(tool.WORKERS)
    assert by_name(tool.TOOLS).items() <= promised(["dev"]).items()
