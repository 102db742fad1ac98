// MPI_Init, MPI_Finalize and their relatives: the setup before the library begins, the agreement after it, and the end.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "mpi/backend/abi.h"
#include "mpi/backend/agreement.h"
#include "mpi/backend/collectives/nonblocking_form.h"
#include "mpi/backend/guards.h"
#include "mpi/backend/messages/waiting.h"
#include "mpi/backend/objects/attributes_of_self.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

bool library_spins() {
  // Open MPI yields by itself where its launcher knows of more ranks than cores.
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  return real.Get_library_version[1] == nullptr || real.Get_library_version[1](version, &length) != MPI_SUCCESS ||
         strstr(version, "Open MPI") == nullptr;
}

/// Lets the library make progress, so that it is known whether its progress loop goes through Headroom's hook: MPI_Init may
/// return before a rank has polled its network once. (A probe of MPI_COMM_SELF would not poll the network.)
void make_some_progress() {
  constexpr int kProbes = 64;
  for (int probe = 0; probe < kProbes; ++probe) {
    int found = 0;
    real.Iprobe[1](MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }
}

/// Before the library's own MPI_Init: the core decides by the library's version and place what to tell it.
void before_library_begins() {
  static char version[MPI_MAX_LIBRARY_VERSION_STRING + 1];  // 8 KiB
  int length = 0;
  if (real.Get_library_version[1] == nullptr || real.Get_library_version[1](version, &length) != MPI_SUCCESS) {
    version[0] = 0;
  }
  Dl_info place = {};
  (void)dladdr(reinterpret_cast<void*>(real.Comm_rank[1]), &place);
  core->before_init(HEADROOM_ABI_NAME, version, place.dli_fname);
}

void agree_at_init() {
  int rank = 0;
  int size = 1;
  real.Comm_rank[1](MPI_COMM_WORLD, &rank);
  real.Comm_size[1](MPI_COMM_WORLD, &size);
  const bool spins = library_spins();
  library_counts = spins;  // both are so unless it is Open MPI
  core->after_init(rank, size, HEADROOM_ABI_NAME, spins);
  make_some_progress();
  node_registers = core->registers_memory();
  const int wanted = core->needs_nonblocking_form() ? 1 : 0;  // nodes may differ
  int agreed = wanted;
  if (size > 1) {
    real.Allreduce[1](&wanted, &agreed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  }
  nonblocking_form = agreed != 0;
  agree_on_direct(size);
  if (nonblocking_form) {
    real.Comm_create_keyval[1](MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &form_key, nullptr);
  }
  core->note_nonblocking_form(nonblocking_form);
  core->note_pins_of_library();
}

}  // namespace

int serve_Init(int* argc, char*** argv, Entry entry) {
  const InsideLibrary inside;
  before_library_begins();
  const int error = real.Init[entry](argc, argv);
  if (error == MPI_SUCCESS) {
    agree_at_init();
  }
  return error;
}

int serve_Init_thread(int* argc, char*** argv, int required, int* provided, Entry entry) {
  const InsideLibrary inside;
  before_library_begins();
  const int error = real.Init_thread[entry](argc, argv, required, provided);
  if (error == MPI_SUCCESS) {
    agree_at_init();
  }
  return error;
}

int serve_Session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session, Entry entry) {
  const InsideLibrary inside;
  before_library_begins();
  const int error = real.Session_init[entry](info, errhandler, session);
  if (error == MPI_SUCCESS) {
    core->after_session_init(HEADROOM_ABI_NAME, library_spins());
    node_registers = core->registers_memory();
    core->note_pins_of_library();
  }
  return error;
}

int serve_Comm_create_from_group(MPI_Group group, const char* tag, MPI_Info info, MPI_Errhandler errhandler, MPI_Comm* comm,
                                 Entry entry) {
  const InsideLibrary inside;
  const WithoutSlot waiting;
  const int error = real.Comm_create_from_group[entry](group, tag, info, errhandler, comm);
  if (error == MPI_SUCCESS && nonblocking_form && *comm != MPI_COMM_NULL) {
    // Made from a session: other members may know no MPI_COMM_WORLD, so its collectives keep the blocking form.
    real.Comm_set_attr[1](*comm, form_key, reinterpret_cast<void*>(intptr_t{2}));
  }
  return error;
}

int serve_Finalize(Entry entry) {
  delete_attributes_of_self();
  end_direct();
  const InsideLibrary inside;
  const WithoutSlot waiting;
  nonblocking_form = false;
  const int error = real.Finalize[entry]();
  core->after_finalize();
  return error;
}

/// The job ends here, and the library may end this process without any of its exit handlers.
int serve_Abort(MPI_Comm comm, int errorcode, Entry entry) {
  core->before_abort();
  const InsideLibrary inside;
  return real.Abort[entry](comm, errorcode);
}

}  // namespace headroom::mpi
