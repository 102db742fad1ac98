"""Commands of gdb for a process under Headroom, live or a core file: gdb -p PID -x setup/headroom_gdb.py, then

headroom-symbols [FILE]   reads the debugging information of build/wheel/libheadroom.so, since the installed library has none
headroom-ledger           the budget, and the members of the job on this node
headroom-blocks [FIRST COUNT]   how many blocks are in which state; or the words of some
headroom-messages         what this process's messages wait for: receives, unexpected messages, sends
"""

import re
import subprocess
from collections import Counter
from pathlib import Path

import gdb

BUILT = Path(__file__).resolve().parent.parent / "build/wheel/libheadroom.so"
MIB = 1 << 20
BLOCK = 256 << 10


def value(name: str) -> gdb.Value:
    symbol = gdb.lookup_global_symbol(name) or gdb.lookup_static_symbol(name)
    if symbol is None:
        raise gdb.GdbError(f"no symbol {name}: headroom-symbols reads them")
    return symbol.value()


def plain(number: gdb.Value) -> int:
    """Of a number, or of a std::atomic around one."""
    while number.type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT:
        fields = number.type.strip_typedefs().fields()
        number = number[next(field for field in fields if hasattr(field, "bitpos"))]  # others are static
    return int(number)


def name_of(enumeration: str, number: int) -> str:
    for field in gdb.lookup_type(enumeration).fields():
        if field.enumval == number:
            return field.name.rpartition("::")[2].removeprefix("k").lower()
    return str(number)


def text_of(envelope: gdb.Value) -> str:
    return f"communicator {int(envelope['context']):#x}, source {int(envelope['source'])}, tag {int(envelope['tag'])}"


class Symbols(gdb.Command):
    def __init__(self):
        super().__init__("headroom-symbols", gdb.COMMAND_FILES)

    def invoke(self, argument, _):
        file = argument or str(BUILT)
        loaded = re.search(r"^(0x[0-9a-f]+)\s.*libheadroom\.so$", gdb.execute("info sharedlibrary", to_string=True), re.M)
        if not loaded:
            raise gdb.GdbError("libheadroom.so is not loaded in this process")
        sections = subprocess.run(["readelf", "-SW", file], capture_output=True, text=True, check=True).stdout
        text = re.search(r"\.text\s+PROGBITS\s+([0-9a-f]+)", sections)
        gdb.execute(f"add-symbol-file {file} -o {int(loaded[1], 16) - int(text[1], 16):#x}", to_string=True)
        print(f"symbols of {file}")


class Ledger(gdb.Command):
    def __init__(self):
        super().__init__("headroom-ledger", gdb.COMMAND_DATA)

    def invoke(self, argument, _):
        session = value("headroom::pager::detail::the_session")
        ledger = session["ledger"].dereference()
        budget, free = int(ledger["budget"]) / MIB, plain(ledger["free_bytes"]) / MIB
        print(f"budget {budget:.1f} MiB, free {free:.1f} MiB, {plain(ledger['alive'])} alive")
        print(f"memory is {'short' if plain(ledger['short_memory']) else 'enough'}")
        print("member  process  rank    state     runs slots   reserved      other      asked")
        members = ledger["members"]
        for index in range(members.type.range()[1] + 1):
            member = members[index]
            state = plain(member["state"]) & 7
            if state == 0:
                continue
            turns = member["turns"]
            sizes = "".join(
                f" {plain(member['memory'][name]) / MIB:6.1f} MiB" for name in ("reserved_bytes", "other_bytes", "asked_bytes")
            )
            print(
                f"{index:>6} {plain(member['pid']):>8} {plain(member['rank']):>5} "
                f"{name_of('headroom::node::MemberState', state):>8} "
                f"{name_of('headroom::node::RunState', plain(turns['run_state'])):>8} {plain(turns['slots']):>5}{sizes}"
            )


class Blocks(gdb.Command):
    def __init__(self):
        super().__init__("headroom-blocks", gdb.COMMAND_DATA)

    def invoke(self, argument, _):
        partition = value("headroom::pager::detail::the_partition")
        blocks, count = partition["blocks"], plain(partition["committed"]) // BLOCK
        fields = gdb.lookup_type("headroom::arena::BlockState").fields()
        states = {field.enumval: field.name.rpartition("::k")[2].lower() for field in fields}
        chosen = [int(word, 0) for word in argument.split()]
        if chosen:
            for block in range(chosen[0], min(count, chosen[0] + (chosen[1] if len(chosen) > 1 else 1))):
                word = plain(blocks[block])
                holds = (word >> 16) & 0xFFFF
                marks = [name for name, bit in (("dirty", 3), ("copy", 4), ("mapped", 5), ("writable", 6)) if word >> bit & 1]
                print(f"block {block}: {states.get(word & 7, '?')}, {holds} holds, {' '.join(marks) or 'no marks'} ({word:#x})")
            return
        found = Counter(plain(blocks[block]) & 7 for block in range(count))
        each = ", ".join(f"{many} {states.get(state, state)}" for state, many in sorted(found.items()))
        print(f"{count} blocks of 256 KiB: {each}")


class Messages(gdb.Command):
    def __init__(self):
        super().__init__("headroom-messages", gdb.COMMAND_DATA)

    def invoke(self, argument, _):
        endpoint = value("headroom::direct::(anonymous namespace)::the_endpoint")
        if not bool(endpoint["open_"]):
            print("messages are the MPI library's")
            return
        print(f"receives that wait: {int(endpoint['posted_']['count_'])}")
        for kind in range(4):
            index = endpoint["posted_"]["indexes_"][kind]
            for bucket in range(int(index["room_"]) if int(index["count_"]) else 0):
                entry = index["buckets_"][bucket]["first"]
                while int(entry):
                    envelope = entry["envelope"]
                    open_ = [word for word, bit in (("any source", 1), ("any tag", 2)) if kind & bit]
                    print(f"  {text_of(envelope)} {' '.join(open_)}".rstrip())
                    entry = entry["hooks"][kind]["next"]
        print("messages that nobody asked for yet:")
        message = endpoint["unexpected_"]["first_"]
        while int(message):
            envelope = message["envelope"]
            print(f"  {text_of(envelope)}")
            message = message["arrival"]["next"]
        print("sends that are complete for the program alone:")
        sending = endpoint["left_"]["first_"]
        while int(sending):
            print(f"  to member {int(sending['member'])}, {int(sending['aside_bytes'])} bytes aside")
            sending = sending["next"]


for command in (Symbols, Ledger, Blocks, Messages):
    command()
