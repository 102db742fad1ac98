// The datatypes that the predefined operations of reductions are defined for, and where their order matters.
//
// Decided by the handles alone, which all ranks pass alike. A reduction that is not defined is left to the library, which says
// so or has a meaning of its own for it.
#pragma once

#include <cstdint>

#include "mpi/backend/abi.h"
#include "mpi/backend/objects/communicators.h"

namespace headroom::mpi {

enum class Elements : uint8_t { kInteger, kFortranInteger, kAddress, kReal, kComplex, kLogical, kByte, kPair, kOther };

enum class Operation : uint8_t {
  kSum,
  kProduct,
  kLargest,  // or smallest
  kLogical,
  kBitwise,
  kPlace,     // of the largest or the smallest
  kPrograms,  // the program's own
  kNone,      // no reduction's
};

/// Whether folding in another order gives the same bits.
enum class Order : uint8_t {
  kUndefined,  // the operation is not defined for the datatype
  kMatters,
  kAmongMore,  // of two operands none: x op y has the bits of y op x
  kAny,
};

/// MPI_CHAR is no number for MPI, but is one for both libraries.
Elements elements_of(MPI_Datatype datatype);

/// The predefined operation that it is; kPrograms for those of the program, kNone for those of no reduction.
Operation operation_of(MPI_Op op);

/// MPI 4.1, sections 6.9.2 and 6.9.4; for predefined operations.
bool is_defined(Operation operation, Elements elements);

/// Products of complex numbers are not turned round: of ab + cd a compiler may round one product and fuse the other. IEEE 754's
/// sums and products are. Of largest and smallest numbers a NaN or the sign of a zero may differ.
Order order_of(MPI_Op op, MPI_Datatype datatype);

/// The same, remembered. It depends on the handles alone: those that are not predefined may be used again, but not as others.
inline Order order_on(Communicator& communicator, MPI_Op op, MPI_Datatype datatype) {
  if (__builtin_expect(communicator.last_op != op || communicator.last_datatype != datatype, 0)) {
    communicator.last_order = order_of(op, datatype);
    communicator.last_op = op;
    communicator.last_datatype = datatype;
  }
  return communicator.last_order;
}

/// Whether it is one of MPI_MINLOC's and MPI_MAXLOC's.
bool is_pair(MPI_Datatype datatype);

/// Integers: not even a NaN may differ.
bool is_exact_in_any_order(MPI_Op op, MPI_Datatype datatype);

}  // namespace headroom::mpi
