// See operations.h.
#include "mpi/backend/objects/operations.h"

namespace headroom::mpi {
namespace {

template <typename Handle, typename... Others>
inline bool is_one_of(Handle handle, Others... others) {
  return ((handle == others) || ...);
}

}  // namespace

Elements elements_of(MPI_Datatype datatype) {
  if (is_one_of(datatype, MPI_INT, MPI_LONG, MPI_INT64_T, MPI_INT32_T, MPI_UINT64_T, MPI_UNSIGNED_LONG, MPI_UNSIGNED,
                MPI_UINT32_T, MPI_LONG_LONG, MPI_UNSIGNED_LONG_LONG, MPI_SHORT, MPI_UNSIGNED_SHORT, MPI_INT16_T, MPI_UINT16_T,
                MPI_INT8_T, MPI_UINT8_T, MPI_SIGNED_CHAR, MPI_UNSIGNED_CHAR, MPI_CHAR)) {
    return Elements::kInteger;
  }
  if (is_one_of(datatype, MPI_DOUBLE, MPI_FLOAT, MPI_LONG_DOUBLE, MPI_DOUBLE_PRECISION, MPI_REAL, MPI_REAL4, MPI_REAL8)) {
    return Elements::kReal;
  }
  if (is_one_of(datatype, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8)) {
    return Elements::kFortranInteger;
  }
  if (is_one_of(datatype, MPI_AINT, MPI_OFFSET, MPI_COUNT)) {
    return Elements::kAddress;
  }
  if (is_one_of(datatype, MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_INT, MPI_2INT, MPI_SHORT_INT, MPI_LONG_DOUBLE_INT, MPI_2REAL,
                MPI_2DOUBLE_PRECISION, MPI_2INTEGER)) {
    return Elements::kPair;
  }
  if (is_one_of(datatype, MPI_C_DOUBLE_COMPLEX, MPI_C_FLOAT_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX, MPI_COMPLEX,
                MPI_DOUBLE_COMPLEX)) {
    return Elements::kComplex;
  }
  return is_one_of(datatype, MPI_C_BOOL, MPI_LOGICAL) ? Elements::kLogical
         : datatype == MPI_BYTE                       ? Elements::kByte
                                                      : Elements::kOther;
}

Operation operation_of(MPI_Op op) {
  return op == MPI_SUM                                        ? Operation::kSum
         : is_one_of(op, MPI_MAX, MPI_MIN)                    ? Operation::kLargest
         : op == MPI_PROD                                     ? Operation::kProduct
         : is_one_of(op, MPI_LAND, MPI_LOR, MPI_LXOR)         ? Operation::kLogical
         : is_one_of(op, MPI_BAND, MPI_BOR, MPI_BXOR)         ? Operation::kBitwise
         : is_one_of(op, MPI_MAXLOC, MPI_MINLOC)              ? Operation::kPlace
         : is_one_of(op, MPI_REPLACE, MPI_NO_OP, MPI_OP_NULL) ? Operation::kNone
                                                              : Operation::kPrograms;
}

bool is_defined(Operation operation, Elements elements) {
  const bool is_number =
      elements == Elements::kInteger || elements == Elements::kFortranInteger || elements == Elements::kAddress;
  switch (operation) {
    case Operation::kSum:
    case Operation::kProduct:
      return is_number || elements == Elements::kReal || elements == Elements::kComplex;
    case Operation::kLargest:
      return is_number || elements == Elements::kReal;
    case Operation::kLogical:
      return elements == Elements::kInteger || elements == Elements::kLogical;
    case Operation::kBitwise:
      return is_number || elements == Elements::kByte;
    case Operation::kPlace:
      return elements == Elements::kPair;
    default:
      return false;
  }
}

Order order_of(MPI_Op op, MPI_Datatype datatype) {
  const Operation operation = operation_of(op);
  if (operation == Operation::kPrograms) {
    return Order::kMatters;
  }
  const Elements elements = elements_of(datatype);
  if (!is_defined(operation, elements)) {
    return Order::kUndefined;
  }
  if ((elements != Elements::kReal && elements != Elements::kComplex) || operation == Operation::kLargest) {
    return Order::kAny;
  }
  return operation == Operation::kSum || elements == Elements::kReal ? Order::kAmongMore : Order::kMatters;
}

bool is_pair(MPI_Datatype datatype) { return elements_of(datatype) == Elements::kPair; }

bool is_exact_in_any_order(MPI_Op op, MPI_Datatype datatype) {
  const Elements elements = elements_of(datatype);
  return elements != Elements::kReal && elements != Elements::kPair && order_of(op, datatype) == Order::kAny;
}

}  // namespace headroom::mpi
