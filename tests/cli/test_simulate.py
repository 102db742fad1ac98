"""`headroom simulate io`: the plans of calls, on nodes that are not there."""

import re

from conftest import HEADROOM, plain_run


def simulated(*options) -> dict[str, tuple[float, float, int]]:
    """Of each plan: the slowest aggregator's time, as a multiple of the mean's, and how many aggregate."""
    done = plain_run([HEADROOM, "simulate", "io", *options])
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^(\w[\w ,()]*?) {2,}([\d.]+) +([\d.]+) +(\d+) +\d+", done.stdout, re.M)
    return {plan.split()[0]: (float(slowest), float(multiple), int(many)) for plan, slowest, multiple, many in rows}


def test_dealt_by_weight_all_end_together():
    """The paper's number of processes, 12 on a node; and with a node's memory spread more or less."""
    for nodes in (10, 90):
        plans = simulated("--nodes", nodes, "--spread", 1)
        assert set(plans) == {"even", "bisected", "dealt"}
        assert plans["dealt"][1] < 1.07
        assert plans["dealt"][0] < min(plans["even"][0], plans["bisected"][0])
    same = simulated("--nodes", 64, "--spread", 0, "--left", 500)
    assert same["dealt"][0] <= same["bisected"][0] * 1.01
    assert same["dealt"][2] == same["even"][2] == 64


def test_a_million_nodes():
    plans = simulated("--nodes", 1_000_000)
    assert plans["dealt"][1] < 1.07 and plans["dealt"][2] > 900_000


def test_what_makes_no_sense_is_refused():
    done = plain_run([HEADROOM, "simulate", "io", "--nodes", 0])
    assert done.returncode != 0 and "--nodes" in done.stderr
