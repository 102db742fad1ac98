"""Signals reach the ranks once, by whatever they were started, and nobody is left."""

import os
import re
import signal
import subprocess
import time
from functools import partial

import pytest

from conftest import HEADROOM, compile_program, environment, plain_run
from running_processes import running

MIB = 1 << 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("launcher", ["headroom run -n", "mpiexec"])
def test_stopping_the_launcher(mpi, launcher, number):
    """A signal to `headroom run -n`, or to mpiexec itself, reaches the ranks; nobody is left. What ranks say then is lost
    with mpiexec, which does not wait for it."""
    program = compile_program(mpi, "wait_and_die.c")
    options = ["--memory", "64M", "--", program, "sleep"]
    before = [HEADROOM, "run", "-n", 3] if launcher == "headroom run -n" else [*mpi.command(3), HEADROOM, "run"]
    command = [str(word) for word in (*before, *options)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    heard = partial(signal.signal, number, signal.SIG_DFL)  # whoever runs the tests may ignore it, and what is ignored stays so
    with subprocess.Popen(command, text=True, env=environment(), start_new_session=True, preexec_fn=heard, **pipes) as child:
        assert child.stdout.readline().strip() == "waiting"
        child.send_signal(number)
        errors = child.communicate(timeout=30)[1]
        assert child.returncode != 0
    if number == signal.SIGTERM and launcher == "headroom run -n":
        assert "headroom: warning: told to stop by signal 15 (Terminated); the ranks are told too" in errors
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and running(program.name):
        time.sleep(0.1)
    assert not running(program.name)


@pytest.mark.parametrize("place", [{}, {"SLURM_PROCID": "0"}], ids=["alone", "in a rank's place"])
def test_a_rank_that_is_told_to_stop_says_so(mpi, place):
    """Without a launcher, which may be gone before what its ranks say has come through it. Who starts it from a shell that runs
    in a rank's place signals this process alone, although it leads its group."""
    program = compile_program(mpi, "wait_and_die.c")
    command = [str(word) for word in (HEADROOM, "run", "--memory", "64M", "--", program, "sleep")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment() | place, start_new_session=True, **pipes) as child:
        assert child.stdout.readline().strip() == "waiting"
        child.send_signal(signal.SIGTERM)
        errors = child.communicate(timeout=30)[1]
        assert child.returncode == -signal.SIGTERM
    assert re.search(r"process \d+, .*\) was ended by signal 15 \(Terminated\): the job was told to stop: by", errors), errors
    assert not running(program.name)


@pytest.mark.parametrize("launched", [True, False])
def test_who_has_hung_up_does_not_end_what_ignores_it(mpi, launched):
    """As nohup does: the terminal may go."""
    program = compile_program(mpi, "wait_and_die.c")
    before = [HEADROOM, "run", *(["-n", 2] if launched else [])]
    command = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *map(str, [*before, "--memory", "64M", "--", program, "sleep"])]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment(), start_new_session=True, **pipes) as child:
        assert child.stdout.readline().strip() == "waiting"
        os.kill(child.pid, signal.SIGHUP)
        time.sleep(0.5)
        assert child.poll() is None and len(running(str(program))) >= (2 if launched else 1)
        os.kill(child.pid, signal.SIGTERM)
        child.communicate(timeout=30)
    assert not running(str(program))


def test_signals_that_python_ignores_reach_the_program():
    for name in ("PIPE", "XFSZ"):
        done = plain_run([HEADROOM, "run", "--memory", "64M", "sh", "-c", f"kill -{name} $$; echo alive"])
        assert (done.returncode, done.stdout) == (-getattr(signal, f"SIG{name}"), "")


@pytest.mark.parametrize("launcher", ["headroom run -n", "mpiexec"])
def test_a_signal_arrives_once(mpi, launcher):
    """Launchers signal whole process groups, and Headroom has a process of its own in each."""
    program = compile_program(mpi, "count_signals.c")
    before = [HEADROOM, "run", "-n", 2] if launcher == "headroom run -n" else [*mpi.command(2), HEADROOM, "run"]
    command = [str(word) for word in (*before, "--memory", "64M", "--", program)]
    with subprocess.Popen(command, text=True, env=environment(), stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout.readline().strip() == "waiting"
        child.send_signal(signal.SIGUSR1)
        output = child.communicate(timeout=30)[0]
        assert child.returncode == 0
    assert sorted(output.splitlines()) == ["rank 0 got 1", "rank 1 got 1"]
