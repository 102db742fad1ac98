/* Random nested datatypes, of all constructors. */
#pragma once

#include <mpi.h>
#include <stdint.h>

static uint64_t state;
static unsigned pick(unsigned below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(state >> 33) % below;
}

enum { ATOMS = 9 };
/* Plain Open MPI 5.0.11 packs overlapping parts and complex numbers of 16 bytes differently from how it sends them, in 1 of 300
   such datatypes; MPICH does not, and agrees with Headroom about the same ones. It also refuses to spread an array of some. */
#ifdef OPEN_MPI
#define ANOTHER_BASIC MPI_LONG_LONG
enum { kPacksOverlaps = 0, kSpreadsAnything = 0 };
#else
#define ANOTHER_BASIC MPI_C_DOUBLE_COMPLEX
enum { kPacksOverlaps = 1, kSpreadsAnything = 1 };
#endif

/* A basic datatype, or several: the same ones for the same `kind`, with gaps as it happens. */
static MPI_Datatype atom_of(unsigned kind) {
  const MPI_Datatype basic[] = {MPI_INT, MPI_CHAR, MPI_DOUBLE, MPI_SHORT, ANOTHER_BASIC, MPI_2INT, MPI_DOUBLE_INT};
  MPI_Datatype made;
  if (kind == 6 && pick(2) == 0) { /* what MPI_DOUBLE_INT consists of */
    int lengths[2] = {1, 1};
    MPI_Aint places[2] = {8 * (MPI_Aint)pick(2), 16 + 4 * (MPI_Aint)pick(3)};
    MPI_Datatype types[2] = {MPI_DOUBLE, MPI_INT};
    MPI_Type_create_struct(2, lengths, places, types, &made);
  } else if (kind < 7) {
    MPI_Type_dup(basic[kind], &made);
  } else if (kind == 7) {
    int lengths[4] = {1, 3, 1, 2};
    const MPI_Aint gap = pick(3), first = 24 * (MPI_Aint)pick(2);
    MPI_Aint places[4] = {first, first + 4 + gap, first + 8 + 8 * gap, gap == 0 ? first + 17 : first + 40};
    MPI_Datatype types[4] = {MPI_INT, MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
    MPI_Type_create_struct(4, lengths, places, types, &made);
  } else {
    MPI_Datatype precise;
    MPI_Type_create_f90_real(12, 100, &precise);
    MPI_Type_dup(precise, &made);
  }
  return made;
}

/* `overlaps`: parts may lie over each other, and runs may repeat; only what is sent may be so. */
static MPI_Datatype random_type(int depth, unsigned kind, int overlaps) {
  MPI_Datatype old, made;
  if (depth == 0) {
    return atom_of(kind);
  }
  const int count = 1 + (int)pick(4);
  old = random_type(depth - 1, kind, overlaps);
  MPI_Aint lower, extent, true_lower, true_extent;
  MPI_Type_get_extent(old, &lower, &extent);
  MPI_Type_get_true_extent(old, &true_lower, &true_extent);
  if (extent < true_extent && !(overlaps && extent > 0)) { /* would overlap itself */
    MPI_Datatype wider;
    MPI_Type_create_resized(old, true_lower, true_extent, &wider);
    MPI_Type_free(&old);
    old = wider;
    extent = true_extent;
  }
  const int over = overlaps && pick(3) == 0;
  int lengths[4], places[4];
  MPI_Aint offsets[4];
  MPI_Datatype types[4];
  for (int i = 0; i < count; ++i) {
    lengths[i] = (int)pick(3);
    places[i] = over ? (int)pick(4) : (i * 4 + (int)pick(2));
    offsets[i] = places[i] * extent;
    types[i] = old;
  }
  const int blocks = 1 + (int)pick(3), stride = over ? (int)pick(3) - 1 : 3 + (int)pick(3);
  const MPI_Aint bytes_between = over ? (MPI_Aint)pick(2) * extent : (pick(2) ? 2 : -3) * extent;
  const int large_counts = pick(2) == 0; /* where the library has them; the same datatypes where not */
#if MPI_VERSION >= 4
  MPI_Count long_lengths[4], long_places[4], long_offsets[4];
  for (int i = 0; i < count; ++i) {
    long_lengths[i] = lengths[i];
    long_places[i] = places[i];
    long_offsets[i] = offsets[i];
  }
#define MADE(plain, large) (large_counts ? (large) : (plain))
#else
  (void)large_counts;
#define MADE(plain, large) (plain)
#endif
  switch (pick(depth == 1 || kSpreadsAnything ? 12 : 11)) {
    case 0:
      MADE(MPI_Type_contiguous(count, old, &made), MPI_Type_contiguous_c(count, old, &made));
      break;
    case 1:
      MADE(MPI_Type_vector(count, blocks, stride, old, &made), MPI_Type_vector_c(count, blocks, stride, old, &made));
      break;
    case 2:
      MADE(MPI_Type_create_hvector(count, 2, bytes_between, old, &made),
           MPI_Type_create_hvector_c(count, 2, bytes_between, old, &made));
      break;
    case 3:
      MADE(MPI_Type_indexed(count, lengths, places, old, &made),
           MPI_Type_indexed_c(count, long_lengths, long_places, old, &made));
      break;
    case 4:
      MADE(MPI_Type_create_hindexed(count, lengths, offsets, old, &made),
           MPI_Type_create_hindexed_c(count, long_lengths, long_offsets, old, &made));
      break;
    case 5:
      MADE(MPI_Type_create_indexed_block(count, 2, places, old, &made),
           MPI_Type_create_indexed_block_c(count, 2, long_places, old, &made));
      break;
    case 6:
      MADE(MPI_Type_create_hindexed_block(count, 1, offsets, old, &made),
           MPI_Type_create_hindexed_block_c(count, 1, long_offsets, old, &made));
      break;
    case 7:
      MADE(MPI_Type_create_struct(count, lengths, offsets, types, &made),
           MPI_Type_create_struct_c(count, long_lengths, long_offsets, types, &made));
      break;
    case 8: {
      const MPI_Aint wider = extent + 4 * (MPI_Aint)pick(3) + 4;
      MADE(MPI_Type_create_resized(old, lower - 4, wider, &made), MPI_Type_create_resized_c(old, lower - 4, wider, &made));
      break;
    }
    case 9: {
      const int sizes[3] = {2 + (int)pick(3), 3, 2 + (int)pick(2)}, parts[3] = {2, 1 + (int)pick(2), 1},
                starts[3] = {0, 1, (int)pick(2)};
      MPI_Type_create_subarray(3, sizes, parts, starts, pick(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, old, &made);
      break;
    }
    case 11: {
      const int sizes[3] = {1 + (int)pick(7), 1 + (int)pick(9), 1 + (int)pick(4)}, grid[3] = {2, 3, 1};
      int kinds[3], arguments[3];
      for (int i = 0; i < 3; ++i) {
        const int distributed = i < 2, cyclic = pick(2) == 0, by_default = pick(2) == 0;
        kinds[i] = !distributed ? MPI_DISTRIBUTE_NONE : cyclic ? MPI_DISTRIBUTE_CYCLIC : MPI_DISTRIBUTE_BLOCK;
        const int least = cyclic ? 1 : (sizes[i] + grid[i] - 1) / grid[i]; /* blocks must hold all of it */
        arguments[i] = by_default || !distributed ? MPI_DISTRIBUTE_DFLT_DARG : least + (int)pick(2);
      }
      const int place = (int)pick(6), c_order = pick(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
#if MPI_VERSION >= 4
      const MPI_Count long_sizes[3] = {sizes[0], sizes[1], sizes[2]};
#endif
      MADE(MPI_Type_create_darray(6, place, 3, sizes, kinds, arguments, grid, c_order, old, &made),
           MPI_Type_create_darray_c(6, place, 3, long_sizes, kinds, arguments, grid, c_order, old, &made));
      break;
    }
    default:
      MPI_Type_dup(old, &made);
  }
  MPI_Type_free(&old);
  return made;
}

/* Committed, of at most 150 atoms of this kind. Both sides of a message are made of as many atoms of one kind, each side of its
   own layout. */
static MPI_Datatype bounded_type(int* atoms, unsigned kind, int overlaps) {
  int atom_bytes;
  MPI_Datatype atom = atom_of(kind);
  MPI_Type_size(atom, &atom_bytes);
  MPI_Type_free(&atom);
  for (;;) {
    MPI_Datatype made = random_type(1 + (int)pick(3), kind, overlaps);
    MPI_Aint lower, extent;
    MPI_Type_get_extent(made, &lower, &extent);
    MPI_Type_size(made, atoms);
    *atoms /= atom_bytes;
    if (*atoms > 0 && *atoms <= 150 && extent > -(64 << 10) && extent < (64 << 10) && lower > -(64 << 10)) {
      MPI_Type_commit(&made);
      return made;
    }
    MPI_Type_free(&made);
  }
}
