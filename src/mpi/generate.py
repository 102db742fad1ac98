"""Generates from functions.txt what would otherwise be written 700 times.

usage: generate.py KIND functions.txt OUTPUT

functions           function_table.h: the list of names as a preprocessor macro, for the assembler and for C++
real                real_functions.h: the MPI library's functions, with their types
services            services.h: what serves each function that is not only forwarded
generated-services  generated_services.cc: these of functions that may block and are not written by hand
entries             entries.cc: the entry points, by which the library's own calls pass
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple


class Function(NamedTuple):
    name: str
    kind: str
    result: str
    parameters: str

    @property
    def argument_names(self) -> list[str]:
        if self.parameters == "void":
            return []
        return [re.search(r"(\w+)(\[[^]]*\])*$", part.strip()).group(1) for part in self.parameters.split(",")]


# Served by backend/collectives where messages are direct.
DIRECT = {"Barrier", "Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv", "Alltoall", "Alltoallv"}
DIRECT |= {"Alltoallw", "Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan"}
DIRECT |= {f"Neighbor_{what}" for what in ("allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw")}

# Served by backend/windows where a window is direct.
DIRECT_WINDOW = {f"Win_{what}" for what in ("fence", "start", "complete", "post", "wait", "test", "lock", "lock_all", "unlock")}
DIRECT_WINDOW |= {f"Win_{what}" for what in ("unlock_all", "flush", "flush_all", "flush_local", "flush_local_all", "sync")}
DIRECT_WINDOW |= {"Win_get_attr", "Put", "Get", "Accumulate", "Get_accumulate", "Fetch_and_op", "Compare_and_swap"}
DIRECT_WINDOW |= {"Rput", "Rget", "Raccumulate", "Rget_accumulate"}

STRAIGHT = {"frequent": "t", "collective": "t", "reduction": "t", "own-waiting": "w", "own-polling": "p", "polling": "p"}
STRAIGHT |= {"own-direct": "d", "nonblocking": "d", "one-sided": "d"}


def read_functions(path: str) -> list[Function]:
    functions = []
    for line in Path(path).read_text().splitlines():
        if line and not line.startswith("#"):
            functions.append(Function(*(part.strip() for part in line.split("|"))))
    return functions


def function_table(functions: list[Function]) -> str:
    lines = ["/* Generated from functions.txt; do not edit. X(index, name) for every MPI function. */"]
    lines.append(f"#define HEADROOM_FUNCTION_COUNT {len(functions)}")
    lines.append("#define HEADROOM_FUNCTIONS(X) \\")
    lines.append(" \\\n".join(f"  X({index}, {function.name})" for index, function in enumerate(functions)))
    forwarded = "".join("f" if function.kind == "forward" else "w" for function in functions)
    lines.append("/* One letter a function: f if it is only forwarded, w if it has a wrapper. */")
    lines.append(f'#define HEADROOM_FUNCTION_KINDS "{forwarded}"')
    straight = "".join(STRAIGHT.get(function.kind, "n") for function in functions)
    lines.append(
        "/* When a wrapper may be left out: n never, t unless ranks take turns; and where no message is direct: w unless ranks"
        " take turns, p if ranks wait as the library likes, d always. */"
    )
    lines.append(f'#define HEADROOM_FUNCTION_SHORTCUTS "{straight}"')
    return "\n".join(lines) + "\n"


def collective_body(function: Function, known: set[str]) -> list[str]:
    arguments = ", ".join(function.argument_names)
    immediate = "I" + function.name[0].lower() + function.name[1:]
    if immediate not in known:
        raise SystemExit(f"{function.name} has no nonblocking form {immediate}")
    exact = " && is_exact_in_any_order(op, datatype)" if function.kind == "reduction" else ""
    return [
        f"  if (takes_nonblocking_form(comm){exact} && real.{immediate}[1] != nullptr) {{",
        "    MPI_Request request = MPI_REQUEST_NULL;",
        f"    const int error = real.{immediate}[1]({arguments}, &request);",
        "    return error == MPI_SUCCESS ? finish_collective(request) : error;",
        "  }",
    ]


def blocking_name(function: Function) -> str:
    """Of a nonblocking collective."""
    return function.name[1].upper() + function.name[2:]


def direct_body(function: Function) -> list[str]:
    name, ending, names = function.name, "Waits()", function.argument_names
    if function.kind == "nonblocking":
        name, ending, names = blocking_name(function), f"Starts({names[-1]})", names[:-1]
    what = name.removesuffix("_c")
    lines = [
        "  if (direct_on) {",
        "    Communicator& communicator = *communicator_of(comm);",
        "    int error = MPI_SUCCESS;",
        f"    if (may_be_direct(communicator) && direct_{what}({ending}, {', '.join(names)}, error)) {{",
        "      return error;",
        "    }",
    ]
    unseen = {"Allreduce": "unseen_allreduces", "Reduce": "unseen_trees"}.get(function.name.removesuffix("_c"))
    if unseen:
        lines.append("    if (may_be_reduced(sendbuf, recvbuf, count, datatype, op)) {")
        lines.append(f"      show_unseen(communicator, comm, &Communicator::{unseen});")
        lines.append("    }")
    if what in ("Allreduce", "Scan", "Reduce"):
        filled = "root" if what == "Reduce" else "communicator.rank"
        lines.append(f"    expect_result_of_library(communicator, {filled}, sendbuf, recvbuf, count, datatype, op);")
    return [*lines, "    count_left_to_library(communicator, comm);", "  }"]


def window_body(function: Function) -> list[str]:
    name = function.name.removesuffix("_c")
    arguments = ", ".join(["*window", *(argument for argument in function.argument_names if argument != "win")])
    return [
        "  if (direct_on) {",
        "    if (Window* window = window_of(win)) {",
        f"      return direct_{name}({arguments});",
        "    }",
        "  }",
    ]


# Communicators all of whose ranks make the call.
ARRIVE = {"comm", "comm_old", "oldcomm", "local_comm"}


def serving(function: Function) -> str:
    """The head of the function that serves the program's calls; `entry` says by which of its two names it was called."""
    parameters = "" if function.parameters == "void" else f"{function.parameters}, "
    return f"{function.result} serve_{function.name}({parameters}Entry entry)"


def entry_point(function: Function) -> str:
    """What a call meets first: the library's own calls pass, the program's are served."""
    arguments = ", ".join(function.argument_names)
    lines = ["template <Entry kEntry>", f"{function.result} enter_{function.name}({function.parameters}) {{"]
    if function.kind != "own-always":
        lines.append("  if (is_inner(kEntry, __builtin_return_address(0))) {")
        lines.append(f"    return real.{function.name}[kEntry]({arguments});")
        lines.append("  }")
    lines.append(f"  return serve_{function.name}({', '.join([*function.argument_names, 'kEntry'])});")
    return "\n".join([*lines, "}"])


def service(index: int, function: Function, known: set[str]) -> str:
    arguments = ", ".join(function.argument_names)
    lines = [f"{serving(function)} {{"]
    if function.kind == "nonblocking" or function.name.removesuffix("_c") in DIRECT:
        lines += direct_body(function)
    if function.name.removesuffix("_c") in DIRECT_WINDOW:
        lines += window_body(function)
    if function.kind == "needs-view":
        lines += ["  if (const int error = give_view_of(fh); error != MPI_SUCCESS) {", "    return error;", "  }"]
    if function.kind == "shared-file":
        lines += [
            f"  if (refuses_shared(fh, {function.argument_names[-1]})) {{",
            "    return MPI_ERR_UNSUPPORTED_OPERATION;",
            "  }",
        ]
    lines.append("  const InsideLibrary inside;")
    if function.kind in ("collective", "reduction"):
        lines += collective_body(function, known)
    if function.kind in ("blocking", "needs-view", "shared-file"):
        lines.append("  const WaysMayChange change;")
    if function.kind in ("collective", "reduction", "constructor", "blocking") and "uffer" not in function.name:
        # (Not calls about buffers, which a rank makes alone.)
        lines += [f"  arrive_together({name});" for name in function.argument_names if name in ARRIVE][:1]
    if function.kind not in ("nonblocking", "one-sided", "polling"):
        lines.append("  const WithoutSlot waiting;")
    if function.kind == "constructor":
        parent, made = function.argument_names[0], function.argument_names[-1]
        lines[-1] = "  int error = MPI_SUCCESS;"
        lines += ["  {", "    const WithoutSlot waiting;", f"    error = real.{function.name}[entry]({arguments});", "  }"]
        lines.append(f"  note_constructor(error, {parent}, {index}, error == MPI_SUCCESS ? *{made} : MPI_COMM_NULL);")
        lines.append("  return error;")
    elif function.kind == "polling":
        lines.append("  return poll_library(entry, [&](int profiled, int& error) {")
        lines.append(f"    error = real.{function.name}[profiled]({arguments});")
        lines.append("    return look_by(*flag);")
        lines.append("  });")
    else:
        lines.append(f"  return real.{function.name}[entry]({arguments});")
    lines.append("}")
    return "\n".join(lines)


def real_functions(functions: list[Function]) -> str:
    served = [f for f in functions if f.kind != "forward" or f.name in used_by_hand(functions)]
    lines = ["// Generated from functions.txt; do not edit.", "#pragma once", "namespace headroom::mpi {"]
    lines.append(
        "/// [0] is the MPI_ name as the next library in line (a tool, or libmpi) defines it, [1] libmpi's PMPI_ name."
    )
    lines.append("struct RealFunctions {")
    lines += [f"  {f.result} (*{f.name}[2])({f.parameters});" for f in served]
    lines += ["};", "inline RealFunctions real;", "}  // namespace headroom::mpi", ""]
    lines.append("#define HEADROOM_SERVED_FUNCTIONS(X) \\")
    lines.append(" \\\n".join(f"  X({index}, {f.name})" for index, f in enumerate(functions) if f in served))
    return "\n".join(lines) + "\n"


def wrapped_functions(functions: list[Function]) -> list[tuple[int, Function]]:
    return [(index, function) for index, function in enumerate(functions) if function.kind != "forward"]


def services(functions: list[Function]) -> str:
    lines = ["// Generated from functions.txt; do not edit.", "#pragma once", '#include "mpi/backend/abi.h"']
    lines.append("namespace headroom::mpi {")
    lines += [f"{serving(function)};" for _, function in wrapped_functions(functions)]
    lines.append("}  // namespace headroom::mpi")
    return "\n".join(lines) + "\n"


# Of what the generated services call.
HEADERS_OF_SERVICES = ["abi", "guards", "state", "messages/network", "messages/polling"]
HEADERS_OF_SERVICES += [f"objects/{name}" for name in ("communicators", "operations")]
HEADERS_OF_SERVICES += [f"collectives/{name}" for name in ("barriers", "collective_moves", "collective_reductions")]
HEADERS_OF_SERVICES += [f"collectives/{name}" for name in ("collectives", "exchange", "folding", "neighborhoods")]
HEADERS_OF_SERVICES += [f"collectives/{name}" for name in ("nonblocking_collectives", "nonblocking_form")]
HEADERS_OF_SERVICES += [f"windows/{name}" for name in ("epochs", "one_sided", "windows")] + ["files/file_views"]


def generated_services(functions: list[Function]) -> str:
    known = {function.name for function in functions}
    lines = ["// Generated from functions.txt; do not edit."]
    lines += [f'#include "mpi/backend/{header}.h"' for header in HEADERS_OF_SERVICES]
    lines.append('#include "mpi/services.h"')
    lines.append("namespace headroom::mpi {")
    lines += [service(index, f, known) + "\n" for index, f in wrapped_functions(functions) if not f.kind.startswith("own")]
    lines.append("}  // namespace headroom::mpi")
    return "\n".join(lines) + "\n"


def entries(functions: list[Function]) -> str:
    wrapped = wrapped_functions(functions)
    lines = ["// Generated from functions.txt; do not edit.", '#include "mpi/backend/entries.h"', '#include "mpi/services.h"']
    lines += ["namespace headroom::mpi {", "namespace {"]
    lines += [entry_point(function) + "\n" for _, function in wrapped]
    lines += ["}  // namespace", "void enter_functions(BackendRequest& request) {"]
    for index, function in wrapped:
        lines.append(f"  if (request.real[{2 * index}] != nullptr) {{")
        for entry in (0, 1):
            address = f"reinterpret_cast<void*>(enter_{function.name}<{entry}>)"
            lines.append(f"    request.wrapper[{2 * index + entry}] = {address};")
        lines.append("  }")
    lines += ["}", "}  // namespace headroom::mpi"]
    return "\n".join(lines) + "\n"


def used_by_hand(functions: list[Function]) -> set[str]:
    """Functions that the hand-written part calls although it does not wrap them."""
    wanted = {"Comm_rank", "Comm_size", "Comm_group", "Group_translate_ranks", "Group_free", "Group_size", "Comm_test_inter"}
    wanted |= {"Comm_create_keyval", "Comm_set_attr", "Comm_get_attr", "Get_library_version", "Initialized"}
    wanted |= {"Isend", "Issend", "Irsend", "Irecv", "Isend_c", "Issend_c", "Irsend_c", "Irecv_c", "Imrecv", "Imrecv_c"}
    wanted |= {"File_call_errhandler", "File_set_errhandler", "File_get_errhandler"}
    wanted |= {"Comm_get_errhandler", "Comm_set_errhandler", "Errhandler_free"}
    wanted |= {
        "Ibarrier",
        "Ireduce_scatter_block",
        "Isendrecv",
        "Type_size",
        "Reduce_local",
        "Comm_call_errhandler",
        "Add_error_class",
        "Allgather",
    }
    wanted |= {"Type_get_envelope", "Type_get_envelope_c", "Type_get_contents", "Type_create_keyval", "Type_set_attr"}
    wanted |= {
        "Type_get_attr",
        "Type_get_extent",
        "Type_get_true_extent",
        "Type_free",
        "Type_contiguous",
        "Type_commit",
        "Pack",
        "Comm_free",
    }
    wanted |= {"Topo_test", "Cartdim_get", "Cart_get", "Cart_shift", "Graph_neighbors_count", "Graph_neighbors"}
    wanted |= {"Dist_graph_neighbors_count", "Dist_graph_neighbors", "Group_incl", "Comm_set_errhandler", "Type_size_x"}
    wanted |= {"Status_set_elements_x", "Status_set_cancelled", "Recv_init", "Get_count", "Test_cancelled", "Query_thread"}
    wanted |= {"Win_call_errhandler", "Win_get_group", "Win_set_errhandler", "Win_get_errhandler", "Type_get_contents_c"}
    wanted |= {f"File_{what}" for what in ("get_amode", "get_atomicity", "get_position", "get_size")}
    wanted |= {
        "Info_get",
        "Info_set",
        "Info_free",
        "Error_class",
        "Error_string",
        "Comm_split",
        "Comm_create_group",
        "Grequest_start",
        "Grequest_complete",
    }
    for function in functions:
        if function.kind in ("collective", "reduction"):
            wanted.add("I" + function.name[0].lower() + function.name[1:])
    return wanted


def main() -> None:
    kind, source, output = sys.argv[1:4]
    functions = read_functions(source)
    makers = {"functions": function_table, "real": real_functions, "services": services, "entries": entries}
    makers["generated-services"] = generated_services
    Path(output).write_text(makers[kind](functions))


if __name__ == "__main__":
    main()
