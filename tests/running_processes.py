"""Processes of the machine, as `ps` lists them."""

import subprocess


def running(name: str) -> list[str]:
    listing = subprocess.run(["ps", "-eo", "pid,stat,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listing.splitlines() if name in line and " Z" not in line]
