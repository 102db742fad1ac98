"""The tests that were skipped are those that tests/skips.toml lists for what this machine lacks, and it lists every test for
everything that the test says it needs. setup/check.sh runs the unit tests first and leaves their outcomes in
build/unit_tests-*.xml."""

import ast
import re
import tomllib
import xml.etree.ElementTree
from pathlib import Path

import pytest

from conditions import LACKS, may_be_skipped
from conftest import BUILD

TESTS = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("preset", ["release", "sanitize", "threads"])
def test_unit_tests_skip_only_what_is_listed(preset):
    outcomes = xml.etree.ElementTree.parse(BUILD / f"unit_tests-{preset}.xml").getroot().findall("testcase")
    assert len(outcomes) > 30
    wrong = [
        f"{test.get('name')}: {test.get('status')}"
        for test in outcomes
        if (test.get("status") != "run") != may_be_skipped(f"unit: {test.get('name').split(' ')[0]}")
    ]
    assert not wrong


def needs_of(functions: dict[str, ast.FunctionDef], name: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """What a function says that it needs, itself or through others of its file."""
    needs: set[str] = set()
    for call in (node for node in ast.walk(functions[name]) if isinstance(node, ast.Call)):
        called = call.func.id if isinstance(call.func, ast.Name) else ""
        if called == "need":
            needs |= {word.value for word in call.args if isinstance(word, ast.Constant)}
        elif called in functions and called not in seen:
            needs |= needs_of(functions, called, seen | {name})
    return needs


def test_every_need_is_listed():
    listed = tomllib.loads((TESTS / "skips.toml").read_text())["skip"]
    assert {entry["needs"] for entry in listed} == LACKS.keys()
    missing = []
    for path in sorted(TESTS.glob("*/test_*.py")):
        functions = {node.name: node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
        for name in (name for name in functions if name.startswith("test_")):
            for need in needs_of(functions, name):
                patterns = [entry["test"] for entry in listed if entry["needs"] == need]
                # One that is parametrized may be listed with some of its parameters only.
                if not any(re.search(rf"\b{name}\b", pattern) or re.search(pattern, name) for pattern in patterns):
                    missing.append(f"{name} needs {need}")
    assert not missing
