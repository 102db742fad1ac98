"""Whether the runs of setup/check_vm.sh are as they must be; says which are not.

usage: judge.py RESULT"""

import re
import sys
from pathlib import Path

text = Path(sys.argv[1]).read_text()
cases = {}
for part in re.split(r"^case ", text, flags=re.M)[1:]:
    name, _, rest = part.partition("\n")
    found = re.findall(r"rank (\d) \w+: wrong (\d+), pinned (-?\d+)", rest)
    cases[name] = {int(rank): (int(wrong), int(pinned)) for rank, wrong, pinned in found} | {"text": rest}

# Of the user's, and what they must become.
SETTINGS = ("UCX_TLS=rc,sm -> ", "UCX_RCACHE_ENABLE=y -> n", "UCX_ZCOPY_THRESH=0 -> inf", "UCX_RNDV_SCHEME=get_zcopy -> am")
bad = []


def must(holds: bool, what: str) -> None:
    if not holds:
        bad.append(what)


guarded = [f"{engine} {what}" for engine in ("userfaultfd", "userfaultfd-user", "sigsegv") for what in ("messages", "window")]
for name in [*guarded, "pinning messages", "pinning window", "attached", "large", "kept", "beyond"]:
    case = cases.get(name, {"text": "did not run"})
    must({0, 1} <= case.keys(), f"{name}: ended early:\n{case['text'][-1500:]}")
    wrong = sum(case[rank][0] for rank in (0, 1) if rank in case)
    must(wrong == 0, f"{name}: {wrong} samples are wrong")
for name in ("pinning messages", "pinning window"):
    said = cases.get(name, {"text": ""})["text"]
    for setting in SETTINGS:
        must(setting in said, f"{name}: does not say {setting}")
must("MPI_ERR_NO_MEM" in cases.get("large", {"text": ""})["text"], "large: does not say why the window is refused")
unguarded = cases.get("unguarded", {"text": ""})
wrong = sum(unguarded[rank][0] for rank in (0, 1) if rank in unguarded)
if wrong == 0:  # not an error: whether the library then registers depends on its version and settings
    print("unguarded: nothing was wrong either, so the cases above do not show what would go wrong without the settings")
print("\n".join(bad) if bad else f"network cards: {len(cases)} cases are as they must be")
sys.exit(1 if bad else 0)
