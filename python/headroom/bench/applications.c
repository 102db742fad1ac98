/* What `headroom bench paging` runs of applications: applications NAME MIB BUDGET
 *
 *   pagerank  each rank has MIB of a graph's edges, and all ranks' values; five iterations go over the edges
 *   coarsen   each rank coarsens a graph level by level, keeping all levels (MIB together), and goes back through them to the
 *             finest, giving them up on the way, as multilevel partitioners do: the footprint grows and shrinks
 *   mttkrp    a sparse tensor (MIB of each rank) times matrices, in each of its three directions, twice
 *
 * BUDGET (MiB, of all ranks together) is for the lower bound: what a rank with an equal part of it must read if it knows what
 * it will use (least_reads.h); what is alive beyond the budget must have been written once. Content is checked. Prints, for
 * building the data and for using them, "PHASE<tab>seconds<tab>bytes<tab>MiB read<tab>MiB written<tab>MiB that must be
 * read<tab>MiB that must be written" (of the slowest rank; the others of all ranks; read and written under Headroom only).
 */
#include <headroom/headroom.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "least_reads.h"

static int rank, ranks, wrong;
static double budget, alive, most_alive; /* MiB of all ranks */
static uint64_t passed;                  /* bytes that this rank went over */
static uint64_t checksum;                /* of the result; the same in all ranks */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint32_t next_random(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return (uint32_t)(*state >> 32);
}

static double mib_of_all(uint64_t bytes) { return (double)bytes / 1048576 * ranks; }

static void* get(uint64_t bytes) {
  void* memory = malloc(bytes);
  if (memory == NULL) {
    fprintf(stderr, "applications: no memory for %llu MiB\n", (unsigned long long)(bytes >> 20));
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  know_array(memory, bytes);
  return memory;
}

/* Bytes that are alive, and written, in each rank. */
static void count_alive(uint64_t bytes) {
  alive += mib_of_all(bytes);
  most_alive = alive > most_alive ? alive : most_alive;
}

static void* take(uint64_t bytes) {
  count_alive(bytes);
  return get(bytes);
}

static void give_back(void* memory, uint64_t bytes) {
  free(memory);
  alive -= mib_of_all(bytes);
}

/* This rank has walked arrays, in step: WALKED({array, bytes}, ...). */
#define WALKED(...)                                                \
  do {                                                             \
    const struct Walked walked[] = {__VA_ARGS__};                  \
    passed += walk((int)(sizeof walked / sizeof *walked), walked); \
  } while (0)

static void read_statistics(uint64_t moved[2]) {
  struct headroom_statistics statistics = {.size = sizeof statistics};
  if (headroom_read_statistics && headroom_read_statistics(&statistics) == 0) {
    moved[0] = statistics.read_bytes;
    moved[1] = statistics.written_bytes;
  }
}

/* Runs one phase and prints its line. */
static void run_phase(const char* name, void (*phase)(uint64_t), uint64_t mib) {
  uint64_t before[2] = {0, 0}, after[2] = {0, 0};
  passed = 0;
  meet();
  const int began = meetings;
  const double written_before = most_alive > budget ? most_alive - budget : 0;
  MPI_Barrier(MPI_COMM_WORLD);
  read_statistics(before);
  const double started = now();
  phase(mib);
  MPI_Barrier(MPI_COMM_WORLD);
  double seconds = now() - started, slowest = 0;
  read_statistics(after);
  uint64_t mine[3] = {passed, after[0] - before[0], after[1] - before[1]}, all[3];
  MPI_Reduce(mine, all, 3, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  const double must_write = (most_alive > budget ? most_alive - budget : 0) - written_before;
  if (rank == 0) {
    const double must_read = least_reads(began, (uint32_t)ranks, budget * 1048576) / 1048576;
    printf("%s\t%.6f\t%llu\t%.1f\t%.1f\t%.1f\t%.1f\n", name, slowest, (unsigned long long)all[0], (double)all[1] / 1048576,
           (double)all[2] / 1048576, must_read, must_write);
    fflush(stdout);
  }
}

/* --- PageRank ---------------------------------------------------------------------------------------------------------- */
enum { kDegree = 64, kIterations = 5 };
static uint32_t* sources;
static double *values, *new_values;
static uint64_t rows, sources_sum;

static void build_pagerank(uint64_t mib) {
  rows = (mib << 20) / sizeof *sources / kDegree;
  sources = take(rows * kDegree * sizeof *sources);
  values = take(rows * (uint64_t)ranks * sizeof *values);
  new_values = take(rows * sizeof *new_values);
  uint64_t state = 88172645463325252u + (uint64_t)rank;
  for (uint64_t edge = 0; edge < rows * kDegree; ++edge) {
    const uint64_t random = next_random(&state);
    sources[edge] = (uint32_t)((random * random >> 32) * rows * (uint64_t)ranks >> 32); /* the first ones far more often */
    sources_sum += sources[edge];
  }
  for (uint64_t row = 0; row < rows * (uint64_t)ranks; ++row) {
    values[row] = (double)(1 + row % 1000);
    new_values[row % rows] = 1;
  }
  WALKED({sources, rows * kDegree * sizeof *sources});
  WALKED({values, rows * (uint64_t)ranks * sizeof *values}, {new_values, rows * sizeof *new_values});
}

static void use_pagerank(uint64_t mib) {
  (void)mib;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    uint64_t sum = 0;
    for (uint64_t row = 0; row < rows; ++row) {
      double value = 0;
      for (uint64_t edge = row * kDegree; edge < (row + 1) * kDegree; ++edge) {
        value += values[sources[edge]];
        sum += sources[edge];
      }
      new_values[row] = 0.15 + 0.85 * value / kDegree;
    }
    wrong |= sum != sources_sum;
    WALKED({sources, rows * kDegree * sizeof *sources}, {values, rows * (uint64_t)ranks * sizeof *values},
           {new_values, rows * sizeof *new_values});
    MPI_Allgather(new_values, (int)rows, MPI_DOUBLE, values, (int)rows, MPI_DOUBLE, MPI_COMM_WORLD);
    meet();
  }
  for (uint64_t row = 0; row < rows * (uint64_t)ranks; ++row) {
    uint64_t bits = 0;
    memcpy(&bits, &values[row], sizeof bits);
    checksum = checksum * 31 + bits;
  }
}

/* --- a sparse tensor times matrices ------------------------------------------------------------------------------------- */
enum { kLength = 16384, kColumns = 16, kSweeps = 2 };
struct Entry {
  uint32_t at[3];
  float value;
};
static struct Entry* entries;
static uint64_t entry_count;
static double *factors[3], *product;

static void build_mttkrp(uint64_t mib) {
  const uint64_t factor_bytes = (uint64_t)kLength * kColumns * sizeof(double);
  entry_count = (mib << 20) / sizeof *entries;
  entries = take(entry_count * sizeof *entries);
  uint64_t state = 2463534242u + (uint64_t)rank;
  for (uint64_t each = 0; each < entry_count; ++each) { /* in order of the first direction, as such files are */
    entries[each] = (struct Entry){
        {(uint32_t)(each * kLength / entry_count), next_random(&state) % kLength, next_random(&state) % kLength}, 1};
  }
  for (int mode = 0; mode < 3; ++mode) {
    factors[mode] = take(factor_bytes);
    for (uint64_t each = 0; each < (uint64_t)kLength * kColumns; ++each) {
      factors[mode][each] = 1;
    }
  }
  product = take(factor_bytes);
  for (uint64_t each = 0; each < (uint64_t)kLength * kColumns; ++each) {
    product[each] = 1;
  }
  WALKED({entries, entry_count * sizeof *entries});
  WALKED({factors[0], factor_bytes}, {factors[1], factor_bytes}, {factors[2], factor_bytes}, {product, factor_bytes});
}

static void use_mttkrp(uint64_t mib) {
  (void)mib;
  for (int step = 0; step < 3 * kSweeps; ++step) {
    const int mode = step % 3, one = (mode + 1) % 3, other = (mode + 2) % 3;
    memset(product, 0, (uint64_t)kLength * kColumns * sizeof *product);
    for (uint64_t each = 0; each < entry_count; ++each) {
      const struct Entry* entry = &entries[each];
      double* to = product + (uint64_t)entry->at[mode] * kColumns;
      const double* left = factors[one] + (uint64_t)entry->at[one] * kColumns;
      const double* right = factors[other] + (uint64_t)entry->at[other] * kColumns;
      for (int column = 0; column < kColumns; ++column) {
        to[column] += (double)entry->value * left[column] * right[column];
      }
    }
    const uint64_t factor_bytes = (uint64_t)kLength * kColumns * sizeof(double);
    WALKED({entries, entry_count * sizeof *entries}, {product, factor_bytes}, {factors[one], factor_bytes},
           {factors[other], factor_bytes});
    MPI_Allreduce(MPI_IN_PLACE, product, kLength * kColumns, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    meet();
    double sum = 0;
    for (uint64_t each = 0; each < (uint64_t)kLength * kColumns; ++each) {
      sum += product[each];
      checksum = checksum * 31 + (uint64_t)product[each];
    }
    wrong |= sum != (double)entry_count * ranks * kColumns; /* all factors are 1, and sums of ones are exact */
  }
}

/* --- coarsening a graph -------------------------------------------------------------------------------------------------- */
enum { kLevels = 24, kNeighbours = 8, kNone = -1 };
struct Level {
  uint64_t vertices, edges, offset_bytes, edge_bytes;
  uint64_t* offsets;                 /* of each vertex's edges */
  uint32_t *ends, *weights, *coarse; /* coarse: the vertex of the next level */
};
static struct Level levels[kLevels];
static int level_count;

static void take_level(struct Level* level, uint64_t vertices, uint64_t edges) {
  level->vertices = vertices;
  level->offset_bytes = (vertices + 1) * sizeof *level->offsets;
  level->offsets = take(level->offset_bytes);
  level->ends = get(edges * sizeof *level->ends); /* more than are written, mostly */
  level->weights = get(edges * sizeof *level->weights);
  level->coarse = take(vertices * sizeof *level->coarse);
}

/* All edges are there. */
static void end_level(struct Level* level) {
  level->offsets[level->vertices] = level->edges;
  level->edge_bytes = level->edges * sizeof *level->ends;
  count_alive(2 * level->edge_bytes);
}

/* What is walked together of a level. */
#define EDGES_OF(level) \
  {(level)->ends, (level)->edge_bytes}, { (level)->weights, (level)->edge_bytes }
#define OFFSETS_OF(level) {(level)->offsets, (level)->offset_bytes}
#define COARSE_OF(level) {(level)->coarse, (level)->vertices * sizeof *(level)->coarse}

static void give_level_back(struct Level* level) {
  give_back(level->offsets, level->offset_bytes);
  give_back(level->ends, level->edge_bytes);
  give_back(level->weights, level->edge_bytes);
  give_back(level->coarse, level->vertices * sizeof *level->coarse);
}

/* A ring with shortcuts: three neighbours on each side, and two up to a thousand away. */
static void build_coarsen(uint64_t mib) {
  const uint64_t vertices = (mib << 20) / (2 * (8 + kNeighbours * 8 + 4)); /* all levels together have about twice the first */
  struct Level* level = &levels[0];
  take_level(level, vertices, vertices * kNeighbours);
  uint64_t state = 362436069u + (uint64_t)rank;
  for (uint64_t vertex = 0; vertex < vertices; ++vertex) {
    level->offsets[vertex] = level->edges;
    for (int each = 0; each < kNeighbours; ++each) {
      const int64_t away = each < 3 ? each + 1 : each < 6 ? 2 - each : (int64_t)(next_random(&state) % 2048) - 1024;
      const uint64_t end = (uint64_t)((int64_t)(vertex + vertices) + away) % vertices;
      level->ends[level->edges] = (uint32_t)end;
      level->weights[level->edges++] = 1 + (uint32_t)((vertex ^ end) % 7);
    }
  }
  end_level(level);
  level_count = 1;
  WALKED(OFFSETS_OF(level), EDGES_OF(level));
}

/* Pairs each vertex with the neighbour it is most heavily joined to; returns how many vertices remain. */
static uint64_t match(struct Level* level) {
  uint64_t count = 0;
  memset(level->coarse, 0xff, level->vertices * sizeof *level->coarse);
  for (uint64_t vertex = 0; vertex < level->vertices; ++vertex) {
    if (level->coarse[vertex] != (uint32_t)kNone) {
      continue;
    }
    uint64_t best = vertex;
    uint32_t weight = 0;
    for (uint64_t edge = level->offsets[vertex]; edge < level->offsets[vertex + 1]; ++edge) {
      const uint32_t end = level->ends[edge];
      if (level->coarse[end] == (uint32_t)kNone && level->weights[edge] > weight && end != vertex) {
        best = end;
        weight = level->weights[edge];
      }
    }
    level->coarse[vertex] = level->coarse[best] = (uint32_t)count++;
  }
  return count;
}

/* The next level: what was paired is one vertex, edges between the same two are one. */
static void contract(struct Level* fine, struct Level* coarse, uint64_t vertices) {
  take_level(coarse, vertices, fine->edges);
  const uint64_t table_bytes = vertices * sizeof(uint64_t);
  uint64_t* first = take(vertices * sizeof *first); /* of the two; each is met twice at most */
  uint64_t* place = take(table_bytes);              /* where the edge to a vertex is, if it is one of the present vertex */
  uint64_t* second = take(table_bytes);
  memset(first, 0xff, table_bytes);
  memset(second, 0xff, table_bytes);
  memset(place, 0xff, table_bytes);
  for (uint64_t vertex = 0; vertex < fine->vertices; ++vertex) {
    uint64_t* which = first[fine->coarse[vertex]] == UINT64_MAX ? first : second;
    which[fine->coarse[vertex]] = vertex;
  }
  uint64_t weight_before = 0, weight_after = 0;
  for (uint64_t vertex = 0; vertex < vertices; ++vertex) {
    const uint64_t begin = coarse->edges, parts[2] = {first[vertex], second[vertex]};
    coarse->offsets[vertex] = begin;
    for (int part = 0; part < 2 && parts[part] != UINT64_MAX; ++part) {
      for (uint64_t edge = fine->offsets[parts[part]]; edge < fine->offsets[parts[part] + 1]; ++edge) {
        const uint32_t end = fine->coarse[fine->ends[edge]];
        weight_before += fine->weights[edge];
        if (end == vertex) {
          weight_after += fine->weights[edge]; /* inside it now */
        } else if (place[end] != UINT64_MAX && place[end] >= begin) {
          coarse->weights[place[end]] += fine->weights[edge];
        } else {
          place[end] = coarse->edges;
          coarse->ends[coarse->edges] = end;
          coarse->weights[coarse->edges++] = fine->weights[edge];
        }
      }
    }
    for (uint64_t edge = begin; edge < coarse->edges; ++edge) {
      weight_after += coarse->weights[edge];
    }
  }
  end_level(coarse);
  WALKED({first, table_bytes});
  WALKED({second, table_bytes});
  WALKED({place, table_bytes});
  WALKED(COARSE_OF(fine), {first, table_bytes}, {second, table_bytes});
  WALKED({first, table_bytes}, {second, table_bytes}, {place, table_bytes}, COARSE_OF(fine), OFFSETS_OF(fine), EDGES_OF(fine),
         OFFSETS_OF(coarse), EDGES_OF(coarse));
  wrong |= weight_before != weight_after;
  give_back(first, table_bytes);
  give_back(place, table_bytes);
  give_back(second, table_bytes);
}

static void use_coarsen(uint64_t mib) {
  (void)mib;
  while (level_count < kLevels) {
    struct Level* fine = &levels[level_count - 1];
    const uint64_t vertices = match(fine);
    WALKED(COARSE_OF(fine)); /* the memset */
    WALKED(COARSE_OF(fine), OFFSETS_OF(fine), EDGES_OF(fine));
    /* All ranks go equally deep. */
    const uint64_t mine[2] = {vertices, vertices * 20 > fine->vertices * 19};
    uint64_t most[2];
    MPI_Allreduce(mine, most, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    meet();
    if (most[0] < 1000 || most[1] != 0) {
      break;
    }
    contract(fine, &levels[level_count++], vertices);
  }
  /* Back to the finest: each level's vertices get the side of theirs in the next, and the cut is counted. */
  uint8_t* sides = take(levels[level_count - 1].vertices);
  WALKED({sides, levels[level_count - 1].vertices});
  for (uint64_t vertex = 0; vertex < levels[level_count - 1].vertices; ++vertex) {
    sides[vertex] = vertex * 2 >= levels[level_count - 1].vertices;
  }
  for (int number = level_count - 1; number >= 0; --number) {
    struct Level* level = &levels[number];
    uint64_t cut = 0, all_cut = 0;
    if (number < level_count - 1) {
      uint8_t* finer = take(level->vertices);
      for (uint64_t vertex = 0; vertex < level->vertices; ++vertex) {
        finer[vertex] = sides[level->coarse[vertex]];
      }
      WALKED({finer, level->vertices}, COARSE_OF(level), {sides, levels[number + 1].vertices});
      give_back(sides, levels[number + 1].vertices);
      give_level_back(&levels[number + 1]);
      sides = finer;
    }
    for (uint64_t vertex = 0; vertex < level->vertices; ++vertex) {
      for (uint64_t edge = level->offsets[vertex]; edge < level->offsets[vertex + 1]; ++edge) {
        cut += sides[vertex] != sides[level->ends[edge]] ? level->weights[edge] : 0;
      }
    }
    WALKED(OFFSETS_OF(level), EDGES_OF(level), {sides, level->vertices});
    MPI_Allreduce(&cut, &all_cut, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    meet();
    static uint64_t cut_before = 0; /* contracting keeps it */
    wrong |= number < level_count - 1 && all_cut != cut_before;
    cut_before = all_cut;
    checksum = checksum * 31 + all_cut;
  }
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*build)(uint64_t);
    void (*use)(uint64_t);
  } programs[] = {{"pagerank", build_pagerank, use_pagerank},
                  {"coarsen", build_coarsen, use_coarsen},
                  {"mttkrp", build_mttkrp, use_mttkrp}};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const uint64_t mib = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
  budget = argc == 4 ? atof(argv[3]) : 0;
  int known = 0;
  for (size_t each = 0; each < sizeof programs / sizeof *programs; ++each) {
    if (mib > 0 && strcmp(argv[1], programs[each].name) == 0) {
      known = 1;
      run_phase("build", programs[each].build, mib);
      run_phase(programs[each].name, programs[each].use, mib);
    }
  }
  if (!known) {
    fprintf(stderr, "usage: applications pagerank|coarsen|mttkrp MIB BUDGET\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  uint64_t least = 0, most = 0;
  MPI_Allreduce(&checksum, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&checksum, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  wrong |= least != most;
  if (rank == 0) {
    printf("checksum %llx\n", (unsigned long long)checksum);
  }
  int any_wrong = 0;
  MPI_Allreduce(&wrong, &any_wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (any_wrong && rank == 0) {
    fprintf(stderr, "applications: wrong content in %s\n", argv[1]);
  }
  MPI_Finalize();
  return any_wrong;
}
