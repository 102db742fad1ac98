"""A Slurm of two nodes on this machine, for the tests alone: Debian's, with folders, ports and a key of its own. Needs root.

Both nodes have this machine's name; only Slurm tells them apart: each has its own slurmd, and slurmstepd, from which Headroom
knows which ranks share a node.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from conftest import environment

NODES = ("headroom1", "headroom2")
CGROUPS = Path("/sys/fs/cgroup")
ENDED = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL"}


def where(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


CONFIGURATION = """
ClusterName=headroom
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/{tracking}
TaskPlugin=task/{limits}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerNode=2048
MpiDefault=pmi2
FirstJobId={first_job}
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=20
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 RealMemory=4096 State=UNKNOWN
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 RealMemory=4096 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """`with Slurm() as slurm:` the daemons run. `cgroups`: Slurm knows processes by their cgroups, and limits their memory by
    them, as most installations do; else it knows them by their process groups, and limits nothing."""

    def __init__(self, cgroups: bool = False):
        self.cgroups = cgroups

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
            self._write_files()
            stack.callback(self._remove_cgroups)
            self.environment = environment() | {"SLURM_CONF": str(self.folder / "slurm.conf")}
            names = ("socket", "key-file", "log-file", "pid-file", "seed-file")
            files = [f"--{name}={self.folder}/munge.{name.removesuffix('-file')}" for name in names]
            self._start(stack, "munged", "--foreground", "--force", *files)
            self._wait_until(lambda: (self.folder / "munge.socket").exists())
            self._start(stack, "slurmctld", "-D", "-c")
            for node in NODES:
                self._start(stack, "slurmd", "-D", "-N", node)
            stack.callback(self._end_jobs)
            self._wait_until(lambda: self.ask("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * len(NODES))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _write_files(self) -> None:
        for name in ("state", *NODES):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        text = CONFIGURATION.format(
            host=socket.gethostname().split(".")[0],
            ports=free_ports(3),
            folder=self.folder,
            nodes=NODES,
            # MPICH names shared memory by the job, and waits for ever if it finds what a killed one of that number has left.
            first_job=1000 + int(time.time()) % 60_000_000,
            tracking="cgroup" if self.cgroups else "pgid",
            limits="cgroup" if self.cgroups else "none",
        )
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "cgroup.conf").write_text("ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nAllowedSwapSpace=0\n")

    def _start(self, stack: contextlib.ExitStack, program: str, *words: str) -> None:
        log = stack.enter_context((self.folder / f"{program}{len(words)}.output").open("ab"))
        child = subprocess.Popen(
            [where(program), *words], env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )

        def end():
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

        stack.callback(end)

    def _wait_until(self, is_so, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                logs = "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))
                raise AssertionError(f"Slurm is not there after {seconds} s\n{self.ask('sinfo', '-N', '-l')}\n{logs}")
            time.sleep(0.1)

    def _end_jobs(self) -> None:
        self.ask("scancel", "--user=root")
        with contextlib.suppress(AssertionError):
            self._wait_until(lambda: not self.ask("squeue", "-h"), 20)

    def _remove_cgroups(self) -> None:
        for top in (CGROUPS / controller / f"slurm_{node}" for controller in ("memory", "freezer") for node in NODES):
            folders = sorted(top.rglob("*/"), key=lambda folder: len(folder.parts), reverse=True) if top.is_dir() else []
            for folder in [*(folder for folder in folders if folder.is_dir()), top]:
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def ask(self, program: str, *words: str) -> str:
        done = subprocess.run([program, *words], env=self.environment, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout.strip()

    def submit(self, script: Path, command: str, *options: str) -> "Job":
        """A batch script of one command; `#SBATCH` is spelled as options."""
        script.write_text(f"#!/bin/bash\n{command}\n")
        output = script.with_suffix(".out")
        words = ["sbatch", "--parsable", "--output", str(output), *options, str(script)]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return Job(self, done.stdout.strip(), output)


class Job:
    def __init__(self, slurm: Slurm, number: str, output: Path):
        self.slurm = slurm
        self.number = number
        self._output = output

    @property
    def output(self) -> str:
        return self._output.read_text() if self._output.exists() else ""

    def said(self, text: str, seconds: float = 60) -> None:
        """Returns when its output has it."""
        deadline = time.monotonic() + seconds
        while text not in self.output:
            assert time.monotonic() < deadline, f"{self._told()}\n{self.output}"
            time.sleep(0.1)

    def _told(self) -> str:
        return self.slurm.ask("scontrol", "show", "job", "-o", self.number)

    def wait(self, seconds: float = 120) -> tuple[str, str]:
        """Its state and exit status when it has ended, as Slurm writes them."""
        deadline = time.monotonic() + seconds
        while True:
            told = self._told()
            states = set(re.findall(r"JobState=(\w+)", told))
            if states and states <= ENDED:
                return ",".join(sorted(states)), ",".join(sorted(set(re.findall(r" ExitCode=(\S+)", told))))
            assert time.monotonic() < deadline, f"{told}\n{self.output}"
            time.sleep(0.1)
