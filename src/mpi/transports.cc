// What MPI libraries do with network cards, while memory may move.
//
// A library that registers memory with a card has the kernel pin it. Evicting a pinned page loses data: the file gets another
// page, while the card writes to the old one. So cards are used by copying, where that was shown: received data goes through
// the library's own buffers, and nothing is kept registered between messages. Which setting of which library does that is one
// table, below; what it rests on is docs/mpi.md, *Network cards*. A transport without such a setting stays off, by name.
// (Windows that the library registers are held for their life: backend/windows.inc.)
//
// XPMEM and KNEM map or pin pages of other processes, and stay off. Cross-memory attach fails on memory that is on storage, but
// where the fault engine serves the kernel.
//
// The settings are environment variables, which libraries read when MPI begins; a program may get at MPI's functions past
// Headroom's wrappers, so they are set before the program begins. Not by setenv(): shells define that themselves, and it must
// not be called before they have begun. The environment as it was stays whole, since other threads may be reading it; the new
// texts can be written to, as shells do.
#include "mpi/transports.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <initializer_list>

#include "base/log.h"
#include "base/system_calls.h"

namespace headroom::mpi {
namespace {

constexpr size_t kMostValue = 512;
constexpr size_t kMostChanges = 40;

/// What is set in place of what the user has (nullptr: nothing).
struct Change {
  char name[48];
  const char* before;
  char after[kMostValue];
  bool is_unset;
};
Change changes[kMostChanges];
size_t change_count = 0;
char overridden[1024];

const char* value_now(const char* name) {
  const size_t length = strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') {
      return *entry + length + 1;
    }
  }
  return nullptr;
}

Change* change_of(const char* name) {
  for (size_t index = 0; index < change_count; ++index) {
    if (strcmp(changes[index].name, name) == 0) {
      return &changes[index];
    }
  }
  return nullptr;
}

/// What the user has set, whatever was made of it since.
const char* users_value(const char* name) {
  const Change* change = change_of(name);
  const char* now = value_now(name);
  const bool is_ours = change != nullptr && (now == nullptr ? change->is_unset : strcmp(now, change->after) == 0);
  return is_ours ? change->before : now;
}

void say_overridden(const char* name, const char* before, const char* after) {
  const size_t length = strlen(overridden);
  (void)snprintf(overridden + length, sizeof overridden - length, "%s%s=%s -> %s", length == 0 ? "" : "; ", name, before,
                 after);
}

/// Sets what the library is to read; nullptr: nothing.
void set(const char* name, const char* value) {
  const char* before = users_value(name);
  const char* now = value_now(name);
  if (value == now || (now != nullptr && value != nullptr && strcmp(now, value) == 0)) {
    return;
  }
  Change* change = change_of(name);
  if (change == nullptr && change_count < kMostChanges) {
    change = &changes[change_count++];
    (void)snprintf(change->name, sizeof change->name, "%s", name);
  }
  if (change != nullptr) {
    base::log_debug(base::Part::kMpi, "%s is %s for the MPI library", name, value != nullptr ? value : "not set");
    change->before = before;
    (void)snprintf(change->after, sizeof change->after, "%s", value != nullptr ? value : "");
    change->is_unset = value == nullptr;
  }
}

/// Puts the changes into effect.
void apply_changes() {
  size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr) {
    ++count;
  }
  constexpr size_t kLongest = sizeof(Change::name) + 1 + kMostValue;
  const size_t entries = count + change_count + 1;
  auto* fresh = static_cast<char**>(base::reserve_memory(entries * sizeof(char*) + change_count * kLongest));
  if (fresh == nullptr) {
    return;
  }
  auto* text = reinterpret_cast<char*>(fresh + entries);
  size_t filled = 0;
  for (size_t index = 0; index < count; ++index) {
    bool is_changed = false;
    for (size_t each = 0; each < change_count; ++each) {
      const size_t length = strlen(changes[each].name);
      is_changed = is_changed || (strncmp(environ[index], changes[each].name, length) == 0 && environ[index][length] == '=');
    }
    if (!is_changed) {
      fresh[filled++] = environ[index];
    }
  }
  for (size_t each = 0; each < change_count; ++each) {
    if (changes[each].is_unset) {
      continue;
    }
    (void)snprintf(text, kLongest, "%.47s=%.511s", changes[each].name, changes[each].after);
    fresh[filled++] = text;
    text += kLongest;
  }
  fresh[filled] = nullptr;
  environ = fresh;
}

// --- the table ----------------------------------------------------------------------------------------------------------

enum class How : unsigned char {
  kAlways,  // whatever the user has set
  kUnlessSet,
  kIfSet,  // only against what the user has set: usually it is so
};
struct Setting {
  const char* name;
  const char* value;
  How how;
};

/// UCX from 1.16 on, before which these protocols cannot be told. No cache of registrations; long messages as the short ones,
/// by active messages of at most 256 KiB; and none of them from or into the program's memory.
constexpr Setting kUcx[] = {
    {"RCACHE_ENABLE", "n", How::kAlways},       {"ZCOPY_THRESH", "inf", How::kAlways}, {"RNDV_SCHEME", "am", How::kAlways},
    {"RNDV_THRESH", "262144", How::kUnlessSet}, {"PROTO_ENABLE", "y", How::kIfSet},    {"RC_TM_ENABLE", "n", How::kIfSet},
    {"RC_MLX5_TM_ENABLE", "n", How::kIfSet},    {"DC_TM_ENABLE", "n", How::kIfSet},    {"DC_MLX5_TM_ENABLE", "n", How::kIfSet},
};
/// Open MPI reads its own names of UCX's settings, too, and they win.
constexpr const char* kPrefixesOfUcx[] = {"UCX_", "MPI_UCX_"};

constexpr Setting kOpenMpi[] = {
    {"OMPI_MCA_mpi_leave_pinned", "0", How::kAlways},
    {"OMPI_MCA_mpi_leave_pinned_pipeline", "0", How::kAlways},
    {"OMPI_MCA_opal_common_ucx_opal_mem_hooks", "0", How::kAlways},
};

/// What has no setting that was shown to copy.
struct List {
  const char* name;
  const char* off;
};
constexpr List kWithoutRegistering[] = {
    {"FI_PROVIDER", "cxi,efa,opx,psm2,psm3,verbs,usnic"},
    {"OMPI_MCA_btl", "openib,ofi,uct,ugni,usnic,portals4"},
    {"OMPI_MCA_mtl", "ofi,psm,psm2,portals4"},
};

// --- lists --------------------------------------------------------------------------------------------------------------

/// UCX's names for several transports at once.
struct Alias {
  const char* name;
  const char* means;
};
constexpr Alias kAliases[] = {
    {"sm", "posix,sysv,xpmem,knem,cma"}, {"shm", "posix,sysv,xpmem,knem,cma"}, {"mm", "posix,sysv,xpmem"}};

/// Whether a list has the name; of UCX's, "rc_v" is one of "ib".
bool has_name(const char* list, const char* name, size_t length) {
  for (const char* at = list; *at != 0; at += strcspn(at, ",") + (at[strcspn(at, ",")] != 0 ? 1 : 0)) {
    const size_t own = strcspn(at, ",");
    if (own == length && strncmp(at, name, length) == 0) {
      return true;
    }
  }
  return false;
}

constexpr const char* kOfInfiniband[] = {"rc", "ud", "dc", "srd", "ib"};

bool is_off(const char* off, const char* name, size_t length) {
  if (has_name(off, name, length)) {
    return true;
  }
  for (const char* transport : kOfInfiniband) {
    const size_t own = strlen(transport);
    if (length >= own && strncmp(name, transport, own) == 0 && (length == own || name[own] == '_')) {
      return has_name(off, "ib", 2);
    }
  }
  return false;
}

class Text {
 public:
  Text(char* out, size_t room) : out_(out), room_(room) { out_[0] = 0; }
  void add(const char* word, size_t length, const char* between) {
    const size_t more = length + (filled_ > 0 ? strlen(between) : 0);
    fits_ = fits_ && filled_ + more < room_;
    if (!fits_) {
      return;
    }
    if (filled_ > 0) {
      strcpy(out_ + filled_, between);
    }
    filled_ += more;
    memcpy(out_ + filled_ - length, word, length);
    out_[filled_] = 0;
  }
  [[nodiscard]] bool fits() const { return fits_; }
  [[nodiscard]] bool is_empty() const { return filled_ == 0; }

 private:
  char* out_;
  size_t room_;
  size_t filled_ = 0;
  bool fits_ = true;
};

template <typename Each>
void for_each_name(const char* list, Each each) {
  while (*list != 0) {
    const size_t length = strcspn(list, ",");
    if (length > 0) {
      each(list, length);
    }
    list += length + (list[length] != 0 ? 1 : 0);
  }
}

void exclude_all(const char* off, char* out, size_t room) { (void)snprintf(out, room, "^%s", off); }

}  // namespace

bool exclude_from_list(const char* given, const char* off, char* out, size_t room) {
  if (*off == 0) {
    return false;
  }
  if (given == nullptr || *given == 0 || strcmp(given, "all") == 0) {
    exclude_all(off, out, room);
    return true;
  }
  Text text(out, room);
  bool changes_it = false;
  if (*given == '^') {
    text.add(given, strlen(given), "");
    for_each_name(off, [&](const char* name, size_t length) {
      if (!has_name(given + 1, name, length)) {
        text.add(name, length, ",");
        changes_it = true;
      }
    });
    return changes_it && text.fits();
  }
  const auto keep = [&](const char* name, size_t length) {
    if (*name == '\\') {  // exactly this one, as UCX has it
      ++name;
      --length;
    }
    // "ud:aux" is UCX's for an auxiliary use, "verbs;ofi_rxm" libfabric's for one provider over another.
    const size_t plain = strcspn(name, ":;") < length ? strcspn(name, ":;") : length;
    if (is_off(off, name, plain)) {
      changes_it = true;
    } else {
      text.add(name, length, ",");
    }
  };
  for_each_name(given, [&](const char* name, size_t length) {
    for (const Alias& alias : kAliases) {
      if (strlen(alias.name) == length && strncmp(alias.name, name, length) == 0) {
        bool meets_it = false;
        for_each_name(alias.means,
                      [&](const char* one, size_t one_length) { meets_it = meets_it || is_off(off, one, one_length); });
        if (meets_it) {
          for_each_name(alias.means, keep);
          return;
        }
      }
    }
    keep(name, length);
  });
  if (changes_it && text.is_empty()) {
    exclude_all(off, out, room);
  }
  return changes_it && text.fits();
}

namespace {

void exclude(const char* name, const char* off) {
  char value[kMostValue];
  const char* given = users_value(name);
  if (exclude_from_list(given, off, value, sizeof value)) {
    set(name, value);
    if (given != nullptr && *given != '^') {  // else it was excluded already, or all but some
      say_overridden(name, given, value);
    }
  } else if (change_of(name) != nullptr) {
    set(name, given);  // more is known than before the program began: the user's list is right as it is
  }
}

void apply(const char* prefix, const Setting& setting) {
  char name[sizeof(Change::name)];
  (void)snprintf(name, sizeof name, "%s%s", prefix, setting.name);
  const char* given = users_value(name);
  if ((setting.how == How::kUnlessSet && given != nullptr) || (setting.how == How::kIfSet && given == nullptr)) {
    return;
  }
  set(name, setting.value);
  if (given != nullptr && strcmp(given, setting.value) != 0) {
    say_overridden(name, given, setting.value);
  }
}

bool exists(const char* root, const char* path) {
  char whole[256];
  (void)snprintf(whole, sizeof whole, "%s%s", root, path);
  return access(whole, F_OK) == 0;
}

/// Looks at each entry of a folder of the system's.
template <typename Each>
void for_each_entry(const char* root, const char* path, Each each) {
  char whole[256];
  (void)snprintf(whole, sizeof whole, "%s%s", root, path);
  if (DIR* folder = opendir(whole)) {
    while (const dirent* entry = readdir(folder)) {
      if (entry->d_name[0] != '.') {
        each(entry->d_name);
      }
    }
    closedir(folder);
  }
}

}  // namespace

Cards find_cards(const char* root) {
  Cards cards;
  bool all_on_demand = true;
  for_each_entry(root, "/sys/class/infiniband", [&](const char* name) {
    char path[384];
    char driver[256] = {};
    (void)snprintf(path, sizeof path, "%s/sys/class/infiniband/%s/device/driver", root, name);
    const ssize_t length = readlink(path, driver, sizeof driver - 1);
    const char* base = length > 0 && strrchr(driver, '/') != nullptr ? strrchr(driver, '/') + 1 : driver;
    cards.efa = cards.efa || strcmp(base, "efa") == 0;
    cards.hfi1 = cards.hfi1 || strcmp(base, "hfi1") == 0;
    cards.infiniband = cards.infiniband || (strcmp(base, "efa") != 0 && strcmp(base, "hfi1") != 0);
    all_on_demand = all_on_demand && strcmp(base, "mlx5_core") == 0;  // not those that are made of software
  });
  cards.on_demand = cards.infiniband && all_on_demand;
  for_each_entry(root, "/sys/class/cxi", [&](const char*) { cards.cxi = true; });
  cards.cxi = cards.cxi || exists(root, "/dev/cxi0");
  cards.hfi1 = cards.hfi1 || exists(root, "/dev/hfi1_0");
  cards.gni = exists(root, "/dev/kgni0");
  cards.xpmem = exists(root, "/dev/xpmem");
  cards.knem = exists(root, "/dev/knem");
  return cards;
}

namespace {

using Version = void (*)(unsigned*, unsigned*, unsigned*);

/// UCX's function that says which it is: of the one that is loaded, or that a plug-in of the MPI library at `library` will
/// load.
Version version_of_ucx(const char* library) {
  if (void* loaded = dlsym(RTLD_DEFAULT, "ucp_get_version")) {
    return reinterpret_cast<Version>(loaded);
  }
  const char* slash = library != nullptr ? strrchr(library, '/') : nullptr;
  const int length = slash != nullptr ? static_cast<int>(slash - library) : 0;
  for (const char* place : {"", "/openmpi", "/mpich"}) {
    char path[1200];
    (void)snprintf(path, sizeof path, "%.*s%s/libucp.so.0", length, length > 0 ? library : "", place);
    if (void* found = length > 0 ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : nullptr) {
      return reinterpret_cast<Version>(dlsym(found, "ucp_get_version"));
    }
  }
  void* found = dlopen("libucp.so.0", RTLD_LAZY | (library != nullptr ? RTLD_LOCAL : RTLD_NOLOAD));
  return found != nullptr ? reinterpret_cast<Version>(dlsym(found, "ucp_get_version")) : nullptr;
}

}  // namespace

bool does_ucx_copy(const Cards& cards, const char* library) {
  if (!cards.register_memory()) {
    return true;
  }
  const Version version = version_of_ucx(library);
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  if (version != nullptr) {
    version(&major, &minor, &release);
  }
  return major > 1 || (major == 1 && minor >= 16);
}

void make_transports_copy(const Cards& cards, bool serves, const char* library) {
  const bool attaches = serves;
  if (attaches && !cards.are_any()) {
    return;
  }
  overridden[0] = 0;
  char off[64];
  (void)snprintf(off, sizeof off, "%s%s%s", attaches ? "" : "cma,", cards.are_any() ? "xpmem,knem," : "",
                 does_ucx_copy(cards, library) ? "" : "ib,");
  if (const size_t length = strlen(off); length > 0) {
    off[length - 1] = 0;
  }
  exclude("UCX_TLS", off);
  if (value_now("MPI_UCX_TLS") != nullptr) {
    exclude("MPI_UCX_TLS", off);
  }
  exclude("OMPI_MCA_smsc", attaches ? "xpmem,knem" : cards.are_any() ? "cma,xpmem,knem" : "cma");
  if (!attaches) {
    for (const Setting& setting :
         {Setting{"OMPI_MCA_btl_vader_single_copy_mechanism", "none", How::kAlways},
          Setting{"MPIR_CVAR_CH4_CMA_ENABLE", "0", How::kAlways}, Setting{"FI_SHM_DISABLE_CMA", "1", How::kAlways}}) {
      apply("", setting);
    }
  }
  if (cards.xpmem) {
    apply("", {"MPIR_CVAR_CH4_XPMEM_ENABLE", "0", How::kAlways});
    apply("", {"FI_SHM_USE_XPMEM", "0", How::kIfSet});
  }
  if (cards.register_memory()) {
    for (const char* prefix : kPrefixesOfUcx) {
      for (const Setting& setting : kUcx) {
        apply(prefix, setting);
      }
      apply(prefix, cards.on_demand ? Setting{"REG_NONBLOCK_MEM_TYPES", "host", How::kUnlessSet}
                                    : Setting{"REG_NONBLOCK_MEM_TYPES", "", How::kIfSet});
    }
    for (const Setting& setting : kOpenMpi) {
      apply("", setting);
    }
    for (const List& list : kWithoutRegistering) {
      exclude(list.name, list.off);
    }
    const char* intel = users_value("I_MPI_OFI_PROVIDER");
    if (intel != nullptr && has_name(kWithoutRegistering[0].off, intel, strcspn(intel, ";"))) {
      say_overridden("I_MPI_OFI_PROVIDER", intel, "tcp");
      set("I_MPI_OFI_PROVIDER", "tcp");
      set("FI_PROVIDER", "tcp");
    }
  }
  apply_changes();
}

const char* overridden_settings() { return overridden; }

const char* why_it_cannot_copy(const Cards& cards, const char* version) {
  if (strstr(version, "CRAY MPICH") != nullptr && (cards.cxi || cards.gni)) {
    return "Cray MPICH registers memory with this node's network cards, and cannot be told to copy";
  }
  if (strstr(version, "MVAPICH") != nullptr && cards.register_memory()) {
    return "MVAPICH registers memory with this node's network cards, and was never seen to copy";
  }
  return nullptr;
}

}  // namespace headroom::mpi
