// See attributes_of_self.h.
#include "mpi/backend/objects/attributes_of_self.h"

#include "base/system_calls.h"
#include "mpi/backend/state.h"
#include "mpi/services.h"

namespace headroom::mpi {
namespace {

constexpr int kMostOfSelf = 256;

int keys_of_self[kMostOfSelf];
int keys_of_self_count = 0;
base::FutexLock keys_of_self_lock;

/// The attribute was set last of all, or is gone.
void note_key_of_self(MPI_Comm comm, int keyval, int error, bool is_set) {
  if (comm != MPI_COMM_SELF || error != MPI_SUCCESS) {
    return;
  }
  const base::LockHolder lock(keys_of_self_lock);
  int kept = 0;
  for (int index = 0; index < keys_of_self_count; ++index) {
    if (keys_of_self[index] != keyval) {
      keys_of_self[kept++] = keys_of_self[index];
    }
  }
  keys_of_self_count = kept;
  if (is_set && keys_of_self_count < kMostOfSelf) {
    keys_of_self[keys_of_self_count++] = keyval;
  }
}

/// Whether it is still set. (From Fortran it may have been deleted unseen, and its key too: that is no error of the program's.)
bool is_set_on_self(int keyval) {
  MPI_Errhandler before = MPI_ERRHANDLER_NULL;
  real.Comm_get_errhandler[1](MPI_COMM_SELF, &before);
  real.Comm_set_errhandler[1](MPI_COMM_SELF, MPI_ERRORS_RETURN);
  void* value = nullptr;
  int is_set = 0;
  const int error = real.Comm_get_attr[1](MPI_COMM_SELF, keyval, &value, &is_set);
  real.Comm_set_errhandler[1](MPI_COMM_SELF, before);
  real.Errhandler_free[1](&before);
  return error == MPI_SUCCESS && is_set != 0;
}

}  // namespace

int serve_Comm_set_attr(MPI_Comm comm, int comm_keyval, void* attribute_val, Entry entry) {
  const int error = real.Comm_set_attr[entry](comm, comm_keyval, attribute_val);
  note_key_of_self(comm, comm_keyval, error, true);
  return error;
}

int serve_Attr_put(MPI_Comm comm, int keyval, void* attribute_val, Entry entry) {
  const int error = real.Attr_put[entry](comm, keyval, attribute_val);
  note_key_of_self(comm, keyval, error, true);
  return error;
}

int serve_Comm_delete_attr(MPI_Comm comm, int comm_keyval, Entry entry) {
  const int error = real.Comm_delete_attr[entry](comm, comm_keyval);
  note_key_of_self(comm, comm_keyval, error, false);
  return error;
}

int serve_Attr_delete(MPI_Comm comm, int keyval, Entry entry) {
  const int error = real.Attr_delete[entry](comm, keyval);
  note_key_of_self(comm, keyval, error, false);
  return error;
}

void delete_attributes_of_self() {
  if (!direct_on) {
    return;
  }
  for (;;) {
    int keyval = MPI_KEYVAL_INVALID;
    {
      const base::LockHolder lock(keys_of_self_lock);
      if (keys_of_self_count == 0) {
        return;
      }
      keyval = keys_of_self[--keys_of_self_count];
    }
    if (is_set_on_self(keyval)) {
      real.Comm_delete_attr[1](MPI_COMM_SELF, keyval);
    }
  }
}

}  // namespace headroom::mpi
