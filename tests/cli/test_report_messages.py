"""What a report says of messages: its figures are the run's counters, it is silent where there are none, and it advises where
the counters show a problem, and only there."""

import json
import re
import subprocess

import pytest

from conftest import HEADROOM, compile_program, environment, headroom_run

MIB = 1 << 20
SHORT, MIDDLE, LONG = 8, 64 << 10, MIB  # bytes, as in known_messages.c
HEADING = "<h2>Messages</h2>"


def report(folder, *more: str) -> str:
    command = [HEADROOM, "report", "--no-measure", folder, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def traced(mpi, folder, kinds: str, **settings):
    """A run of two ranks whose trace is in the folder."""
    folder.parent.mkdir(exist_ok=True)
    program = compile_program(mpi, "known_messages.c")
    run = headroom_run([program, *kinds.split()], folder.parent, before=mpi.command(2), memory="1G", trace=folder, **settings)
    assert run.status == 0 and run.output == "ok\n", run.errors
    return run


def advice(mpi, folder, kinds: str, **settings) -> list[str]:
    """But for the first word, which is on memory."""
    traced(mpi, folder, kinds, **settings)
    (node,) = json.loads(report(folder, "--json"))
    return node["advice"][1:]


def row(page: str, counter: str) -> list[str]:
    """The number and the content that the page shows of a counter, if it shows it."""
    found = re.search(f"<tr><td>{counter}</td><td>([^<]*)</td><td>([^<]*)</td><td>[^<]{{5,}}</td></tr>", page)
    return list(found.groups()) if found else []


def test_figures_are_the_counters(mpi, tmp_path):
    short, long, stack, late, puts, unasked, barriers = 60, 12, 30, 5, 40, 25, 7
    kinds = {"short": short, "long": long, "stack": stack, "late": late, "unasked": unasked, "barrier": barriers, "put": puts}
    kinds |= {"multiply": 9, "between": 11, "forbidden": 3, "put_on_stack": 2}
    folder = tmp_path / "run"
    run = traced(mpi, folder, " ".join(f"{kind} {count}" for kind, count in kinds.items()), attach="on")
    total = run.report["total"]
    sent, of_a_record = short + unasked + late + long + stack + late, short + unasked + late
    assert total["messages_direct"] == sent and total["passed_for_communicator"] == 11 and total["passed_for_arguments"] == 3
    assert total["messages_direct_bytes"] == of_a_record * SHORT + (long + late) * LONG + stack * MIDDLE

    (node,) = json.loads(report(folder, "--json"))
    ways, ranks, copied_by = (node["messages"][part] for part in ("ways", "ranks", "copied_by"))
    inline = total["messages_collective"] + of_a_record
    assert ways == {
        "in one record": {"messages": inline, "bytes": of_a_record * SHORT + total["messages_collective_bytes"]},
        "fetched": {"messages": long, "bytes": long * LONG},
        "attached": {"messages": stack, "bytes": stack * MIDDLE},
        "copied aside": {"messages": late, "bytes": late * LONG},
        "streamed": {"messages": 0, "bytes": 0},
        "between nodes": {"messages": 0, "bytes": 0},
        "one-sided": {"messages": puts, "bytes": puts * SHORT},
        "the MPI library's": {"messages": 11 + 3, "bytes": 11 * SHORT},
    }
    for way, counted in ways.items():
        of_ranks = [ranks[rank][way] for rank in ("0", "1")]
        assert sum(each["messages"] for each in of_ranks) == counted["messages"], way
        assert sum(each["bytes"] for each in of_ranks) == counted["bytes"], way
    assert ranks["1"]["fetched"]["messages"] == long and ranks["0"]["copied aside"]["messages"] == late
    # The sender may have come too late to take part in what the receiver fetched.
    alone, together = copied_by["the receiver"], copied_by["both sides at once"]
    assert together == {"messages": total["messages_helped"], "bytes": total["messages_helped_bytes"]}
    assert alone["messages"] + together["messages"] == long + stack
    assert alone["bytes"] + together["bytes"] == long * LONG + stack * MIDDLE
    assert copied_by["the sender, then the receiver"]["messages"] == inline + late
    queues = [rank["messages_unexpected_peak"] for rank in run.report["ranks"]]
    assert node["messages"]["longest_queue"] == max(queues) >= unasked

    said = report(folder)
    assert all(text in said for text in node["advice"])
    page = (folder / "report.html").read_text()
    assert HEADING in page and page.count("<svg") == 8
    assert row(page, "messages_direct") == [f"{sent}", f"{total['messages_direct_bytes'] / MIB:.1f} MiB"]
    assert row(page, "messages_attached") == [f"{stack}", f"{stack * MIDDLE / MIB:.1f} MiB"]
    assert row(page, "messages_shared") == [f"{total['messages_shared']}", f"{total['messages_shared_bytes'] / MIB:.1f} MiB"]
    assert total["messages_shared"] >= total["messages_helped"] and total["messages_shared"] >= long
    assert row(page, "messages_unexpected_peak") == [f"{max(queues)}", ""]
    assert row(page, "collectives_direct") == [f"{total['collectives_direct']}", ""]
    assert total["collectives_direct"] >= 2 * barriers
    assert row(page, "collectives_passed_for_operation") == ["18", ""]
    assert row(page, "one_sided_bytes") == ["", f"{puts * SHORT} B"]
    assert row(page, "windows_passed") == ["2", ""]
    assert row(page, "messages_streamed") == []

    # A run of a version that counted less is drawn without.
    figures = json.loads((folder / "run.json").read_text())
    del figures["total"]["messages_aside_streams"]
    (folder / "run.json").write_text(json.dumps(figures))
    report(folder)
    assert HEADING not in (folder / "report.html").read_text()


def test_no_section_without_messages(tmp_path):
    folder = tmp_path / "run"
    run = headroom_run([compile_program(None, "plain.cc", compiler="g++"), 64], tmp_path, memory="1G", trace=folder)
    assert run.status == 0, run.errors
    (node,) = json.loads(report(folder, "--json"))
    assert node["messages"] == {} and len(node["advice"]) == 1
    report(folder)
    page = (folder / "report.html").read_text()
    assert HEADING not in page and page.count("<svg") == 6


@pytest.mark.parametrize(
    ("few", "many", "word"),
    [
        (
            "between 99",
            "between 100",
            r"^100 of 100 messages were left to the MPI library since the communicator is the library's: ",
        ),
        ("forbidden 99", "forbidden 100", r"^100 of 100 messages were left to the MPI library since MPI forbids the arguments"),
        ("multiply 49", "multiply 50", r"^100 of 100 collectives were left .* on this node; reductions .*--reductions direct"),
        # A sender that has waited for a while copies aside, so not all of them are read so.
        ("stack 99", "stack 200", r"^[12]\d\d messages were read by cross-memory attach.*--large 64K"),
        ("late 99", "late 100", r"^100 of 100 messages .* copied aside, one copy more, since their receivers did not come"),
        ("unasked 990", "unasked 1000", r"^100\d messages waited at rank 1 .* posted earlier"),
        ("put 5", "put_on_stack 5", r"^100% of the windows .* MPI_Alloc_mem"),
    ],
    ids=lambda value: value.split()[0],
)
def test_advice_where_the_counters_show_a_problem(mpi, few, many, word, tmp_path):
    settings = {"attach": "on"} if "stack" in few else {}
    assert advice(mpi, tmp_path / "few", few, **settings) == []
    (said,) = advice(mpi, tmp_path / "many", many, **settings)
    assert re.search(word, said)


def test_advice_on_copies_that_attaching_would_spare(mpi, tmp_path):
    (said,) = advice(mpi, tmp_path / "all", "stack 100", attach="off")
    assert re.search(r"^100 of 100 messages .* copied aside as they were sent, .*--large 64K", said)
    assert advice(mpi, tmp_path / "some", "stack 100 long 901", attach="off") == []


def test_what_is_rare_is_not_advised_on(mpi, tmp_path):
    """A hundred in more than a thousand cost little."""
    assert advice(mpi, tmp_path / "run", "between 100 forbidden 100 stack 100 long 901", attach="on") == []
