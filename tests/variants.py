"""Which variants of a test run: tests differ in the MPI library, the pager's engine and more, and all products of these take
hours on two cores.

`make check` runs of the products of library and engine every third one (every second of two and two), like the fields of one
colour of a board: each test runs with each library, and which engine it meets there differs from test to test. Tests that take
long say by @every_second(...) in which other parameters they are thinned out, or are marked only_in_suites. What is left out is
reported as deselected.
`make suites` sets HEADROOM_SUITES=all: everything runs; so it does where a file, a test or a word (-k) is asked for.
"""

import os
import zlib

import pytest

EVERY_VARIANT = os.environ.get("HEADROOM_SUITES") == "all"
PRODUCTS = [("mpi", "engine"), ("mpi", "short")]


def every_second(*parameters: str):
    """Of the values of one parameter, or of the products of several, every second runs."""
    return pytest.mark.every_second(*parameters)


only_in_suites = pytest.mark.only_in_suites


def named(value) -> str:
    return str(getattr(value, "name", value))


def left_out(items: list) -> list:
    """Of the variants of one test."""
    marker = items[0].get_closest_marker("every_second")
    variants = [{name: named(value) for name, value in item.callspec.params.items()} for item in items]
    thinned = (
        tuple(name for name in marker.args if name in variants[0])
        if marker
        else next((names for names in PRODUCTS if all(name in variants[0] for name in names)), ())
    )
    values = {name: list(dict.fromkeys(variant[name] for variant in variants)) for name in thinned}
    if len(thinned) > 1 and sum(len(known) > 1 for known in values.values()) < 2:
        return []

    colours = 3 if not marker and any(len(known) > 2 for known in values.values()) else 2

    def colour(variant: dict[str, str]) -> int:
        others = sorted((name, value) for name, value in variant.items() if name not in thinned)
        return (
            sum(values[name].index(variant[name]) for name in thinned)
            + zlib.crc32(f"{items[0].originalname} {others}".encode())
        ) % colours

    return [item for item, variant in zip(items, variants, strict=True) if thinned and colour(variant) != 0]


def thin_out(config, items: list) -> None:
    """Of the collected tests, unless the command names some."""
    if EVERY_VARIANT or config.option.keyword or config.args_source is not config.ArgsSource.TESTPATHS:
        return
    by_test = {}
    for item in items:
        if hasattr(item, "callspec"):
            by_test.setdefault((item.path, item.originalname), []).append(item)
    gone = [item for variants in by_test.values() for item in left_out(variants)]
    gone += [item for item in items if item.get_closest_marker("only_in_suites") and item not in gone]
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in gone]
