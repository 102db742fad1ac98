// Names of MPI's functions in the symbol table of this library and of MPI libraries, looked up and hidden by hand
// (before_relocation.cc). Usable while the loader is at work.
#pragma once

#include <link.h>

#include <cstdint>

namespace headroom::mpi {

/// The tables of an object in which names are looked up.
struct SymbolTables {
  ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;

  bool are_known() const { return symbols != nullptr && gnu_hash != nullptr; }
};

/// "PMPI_Send" and so on, by index in functions.txt.
const char* profiled_name_of(int index);

/// The symbol of this name; nullptr: the object has none.
ElfW(Sym) * find_symbol(const SymbolTables& tables, const char* name);

/// The tables of the first MPI library among the loaded objects; not known: there is none.
SymbolTables tables_of_mpi_library();

/// Whether the MPI library whose SymbolTables `tables` points to lacks a function.
bool is_absent_from(int index, void* tables);

/// Makes names absent from this library's symbol table, for all that look them up from now on, and the others present. `lacks`
/// says which, by index in functions.txt.
void hide_names(bool (*lacks)(int index, void* context), void* context);

}  // namespace headroom::mpi
