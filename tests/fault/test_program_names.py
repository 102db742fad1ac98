"""Programs whose own names get in the way of the C library's: functions whose address a program without PIE takes (the whole
process then means a stub in the program, which leads nowhere until it is relocated), and names that a program defines itself.
"""

import re
import subprocess

import pytest

from conftest import BUILD, ROOT, compile_program, headroom_run

LIBRARY = BUILD / "wheel/libheadroom.so"
RESOLVER = BUILD / "wheel/src/CMakeFiles/headroom.dir/mpi/before_relocation.cc.o"


def undefined_names(file) -> list[str]:
    listed = subprocess.run(
        ["nm", *(["-D"] if file == LIBRARY else []), "-u", str(file)], capture_output=True, text=True, check=True
    )
    return re.findall(r"^ *[Uwv] ([^@\s]+)", listed.stdout, re.M)


def test_what_runs_before_relocation_calls_nothing():
    assert set(undefined_names(RESOLVER)) <= {"_DYNAMIC", "_GLOBAL_OFFSET_TABLE_", "_r_debug"}


def test_a_program_without_pie_takes_every_address(mpi, tmp_path):
    """Of every function and variable that Headroom itself uses of others; with the pager's work done on top."""
    names = [name for name in undefined_names(LIBRARY) if not name.startswith(("_ITM_", "__gmon", "__cxa_", "_Z"))]
    assert {"strcmp", "dl_iterate_phdr", "_r_debug", "environ"} <= set(names)
    body = "".join(f"  taken[{index}] = (void*)&{name};\n" for index, name in enumerate(names))
    declared = "".join(f"extern char {name}[];\n" for name in names)
    source = tmp_path / "addresses.c"
    source.write_text(f"{declared}void* volatile taken[{len(names)}];\nvoid take_addresses(void) {{\n{body}}}\n")
    taken = tmp_path / "addresses.o"
    flags = ["-no-pie", "-fno-pie"]
    subprocess.run(["gcc", "-c", "-w", "-fno-builtin", "-fno-pie", "-o", taken, source], check=True)
    program = tmp_path / "takes_addresses"
    text = ROOT / "tests/programs/fault/takes_addresses.c"
    subprocess.run(
        [mpi.compiler, "-O2", *flags, "-o", program, text, taken, "-Wl,--no-as-needed", "-lgcc_s", "-lm", "-ldl"], check=True
    )
    symbols = subprocess.run(["readelf", "-W", "--dyn-syms", "-r", program], capture_output=True, text=True, check=True).stdout
    assert re.search(r"R_\w+_COPY.* _r_debug", symbols) and re.search(
        r" [0-9a-f]*[1-9a-f][0-9a-f]* +0 FUNC +GLOBAL DEFAULT +UND strcmp", symbols
    )
    run = headroom_run([program], tmp_path, mpi.command(2), memory="64M", direct="on")
    assert run.status == 0, run.errors
    assert run.output.count("right") == 2
    run.assert_paged(2 * 64 << 20, 64 << 20)
    # What the program refers to is Headroom's: its messages are seen.
    assert run.total("messages_direct") == 2


def test_a_program_that_defines_such_names_itself(mpi, tmp_path):
    program = compile_program(mpi, "takes_addresses.c", "-DOWN_NAMES", "-rdynamic", "-fno-builtin")
    run = headroom_run([program], tmp_path, mpi.command(2), memory="64M", direct="on")
    assert run.status == 0, run.errors
    assert run.output.count("right") == 2
    assert run.total("messages_direct") == 2


def test_a_program_that_the_loader_is_told_to_run(tmp_path):
    """It has the loader's list in a copy, and the kernel knows of the loader alone."""
    program = compile_program(None, "copied_loader_list.c", "-no-pie", "-fno-pie")
    loader = re.search(r"interpreter: (.*)]", subprocess.run(["readelf", "-l", program], capture_output=True, text=True).stdout)
    run = headroom_run([loader[1], program], tmp_path, memory="64M")
    assert run.status == 0 and run.output == "right\n", run.errors


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a rank"])
def test_a_compiler(inside, tmp_path):
    """Compilers are programs without PIE, and start others."""
    source = tmp_path / "nothing.c"
    source.write_text("int main(void) { return 0; }\n")
    words = ["gcc", "-o", str(tmp_path / "nothing"), str(source)]
    before = []
    if inside:
        before = [compile_program(None, "starts_command.c")]
    run = headroom_run([*before, *words], tmp_path, memory="64M")
    assert run.status == 0 and "signal" not in run.errors, run.errors
    assert subprocess.run([tmp_path / "nothing"], check=False).returncode == 0
