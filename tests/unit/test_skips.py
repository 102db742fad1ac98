"""The unit tests that GoogleTest skipped are those that tests/skips.toml lists for what this machine lacks. setup/check.sh runs
the unit tests first and leaves their outcomes in build/unit_tests-*.xml."""

import xml.etree.ElementTree

import pytest

from conditions import may_be_skipped
from conftest import BUILD


@pytest.mark.parametrize("preset", ["release", "sanitize"])
def test_unit_tests_skip_only_what_is_listed(preset):
    outcomes = xml.etree.ElementTree.parse(BUILD / f"unit_tests-{preset}.xml").getroot().findall("testcase")
    assert len(outcomes) > 40
    wrong = [
        f"{test.get('name')}: {test.get('status')}"
        for test in outcomes
        if (test.get("status") != "run") != may_be_skipped(f"unit: {test.get('name').split(' ')[0]}")
    ]
    assert not wrong
