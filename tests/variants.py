"""Which variants of a test run: tests differ in the MPI library, the pager's engine and more, and all products of these take
hours on two cores.

`make check` runs so many variants of each test that each value of each of its parameters is there: each library, each engine,
each kind, but not each with each. Of what tests mark as any_of("mpi") one value is enough, another one from test to test; what
they mark only_in_suites does not run. What is left out is reported as deselected.
`make suites` sets HEADROOM_SUITES=all: everything runs; so it does where a file, a test or a word (-k) is asked for.
"""

import collections
import os
import zlib

import pytest

EVERY_VARIANT = os.environ.get("HEADROOM_SUITES") == "all"


def any_of(*parameters: str):
    """One value of each of these parameters is enough."""
    return pytest.mark.any_of(*parameters)


only_in_suites = pytest.mark.only_in_suites


def named(value) -> str:
    return str(getattr(value, "name", value))


def values_of(item, without: tuple) -> set[tuple[str, str]]:
    return {(name, named(value)) for name, value in item.callspec.params.items() if name not in without}


def chosen(items: list) -> list:
    """Of the variants of one test, as few as have each value: the one with most new values first, then the one whose values
    ran least."""
    marker = items[0].get_closest_marker("any_of")
    without = marker.args if marker else ()
    missing = set().union(*(values_of(item, without) for item in items))
    used = collections.Counter()
    found = []

    def worth(item) -> tuple:
        values = values_of(item, ())
        chance = zlib.crc32(f"{item.originalname} {sorted(values)}".encode())
        return len(missing & values), -sum(used[value] for value in values), chance

    while missing or not found:
        best = max((item for item in items if item not in found), key=worth)
        missing -= values_of(best, ())
        used.update(values_of(best, ()))
        found.append(best)
    return found


def thin_out(config, items: list) -> None:
    """Of the collected tests, unless the command names some."""
    if EVERY_VARIANT or config.option.keyword or config.args_source is not config.ArgsSource.TESTPATHS:
        return
    kept = [item for item in items if not item.get_closest_marker("only_in_suites")]
    by_test = {}
    for item in kept:
        if hasattr(item, "callspec"):
            by_test.setdefault((item.path, item.originalname), []).append(item)
    run = {item.nodeid for variants in by_test.values() for item in chosen(variants)}
    gone = [item for item in items if item not in kept or (hasattr(item, "callspec") and item.nodeid not in run)]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in gone]
