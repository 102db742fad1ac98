"""What `headroom bench paging` measures: ranks, memory and phases of each group."""

from typing import NamedTuple

MIB = 1 << 20
GIB = 1 << 30
SWAP_BYTES = 4 * GIB
SWEEPS = ["touch", "read", "read", "read", "write", "update", "update", "update", "backward", "strided"]
# A pass over what is in memory takes 20 ms, and one differs by 4 % from the next: more of them.
PASSES = ["touch", *["read"] * 24, "write", *["update"] * 24, "backward", "strided"]


class Group(NamedTuple):
    ranks: int
    mib: int  # of each rank
    budget: int  # MiB
    phases: list[str]  # of paging.c; one word that has no phase's name: of applications.c
    what: str
    bound: bool = False  # each rank to a core, by the launcher

    @property
    def is_application(self) -> bool:
        return self.phases[0] in ("pagerank", "coarsen", "mttkrp")

    @property
    def fits(self) -> bool:
        return self.what == "memory enough"

    @property
    def limit(self) -> int:
        """Bytes, for all sides alike: the budget, and room for code, stacks and page tables, as much as Headroom needs. (The
        most that these groups were seen to take beyond it: 9 MiB of one rank, 18 to 20 of 4, 30 to 37 of 8, 62 of 16; of the
        quick one 6, where memory moves in pages of 4 KiB.)"""
        return self.budget * MIB * 33 // 32 + (self.ranks + 1) * 4 * MIB

    def needed_bytes(self, swap: bool) -> int:
        """What the storage must have room for, beside other things: the disk is measured with a file of 1 GiB."""
        return (SWAP_BYTES if swap and not self.fits else 0) + max(GIB, 2 * self.ranks * self.mib * MIB) + GIB // 2


GROUPS = {
    "quick": Group(
        1,
        96,
        48,
        [
            *["hash-insert:20000", "hash-find:2000"],  # into memory that is zero
            *["touch", "read", "read", "update", "random-read:2000"],
            *["objects-tree:5000", "objects-lists:5000", "objects-threads:5000"],
            *["random-zipf-read:2000", "random-zipf-update:2000", "tree-build", "tree-find:2000", "tree-update:2000"],
        ],
        "twice the budget",
    ),
    "quick coarsen": Group(2, 96, 64, ["coarsen"], "three times the budget"),
    "memory": Group(1, 512, 2048, [*PASSES, "random-read:2000000"], "memory enough"),
    "objects": Group(1, 2, 2048, ["objects-tree:1000000", "objects-lists:1000000", "objects-threads:500000"], "memory enough"),
    "sweeps": Group(1, 1024, 512, SWEEPS, "twice the budget"),
    "rounds": Group(4, 256, 512, SWEEPS, "twice the budget"),
    "patterns": Group(1, 512, 256, ["touch", "in-step", "in-step", "in-step", "columns"], "twice the budget"),
    "random": Group(1, 768, 256, ["touch", "random-read:60000", "random-update:60000"], "three times the budget"),
    "random bound": Group(
        1, 768, 256, ["touch", "random-read:60000", "random-update:60000"], "three times the budget, bound to a core", True
    ),
    "random of 8": Group(
        8, 96, 256, ["touch", *["random-read:12000"] * 3, *["random-update:12000"] * 3], "three times the budget"
    ),
    "hot and cold": Group(
        1, 768, 256, ["touch", *["random-hot-read:300000"] * 4, *["random-hot-update:200000"] * 3], "three times the budget"
    ),
    "hash table": Group(1, 768, 256, ["hash-insert:200000", *["hash-find:60000"] * 3], "three times the budget"),
    "b-tree": Group(
        1, 768, 256, ["tree-build", *["tree-find:60000"] * 3, *["tree-update:60000"] * 3], "three times the budget"
    ),
    "zipf": Group(
        1, 768, 256, ["touch", *["random-zipf-read:200000"] * 3, *["random-zipf-update:200000"] * 3], "three times the budget"
    ),
    "pagerank": Group(4, 256, 384, ["pagerank"], "three times the budget"),
    "pagerank of 16": Group(16, 64, 512, ["pagerank"], "three times the budget"),
    "coarsen": Group(4, 256, 384, ["coarsen"], "up to three times the budget"),
    "mttkrp": Group(8, 128, 384, ["mttkrp"], "three times the budget"),
}
