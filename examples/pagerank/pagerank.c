/* PageRank by power iteration, distributed by target vertex: an ordinary MPI program.
 *
 *   pagerank [--tolerance T] [--top N] FILE                      a Matrix Market file or an edge list
 *   pagerank [--tolerance T] [--top N] --kronecker SCALE [--per-vertex D] [--seed S]
 *
 * Damping 0.85; vertices without outgoing edges spread their rank evenly. Stops when the ranks change by less than
 * T * vertices in sum (as networkx does). Prints the top vertices and a checksum of all ranks' bits, which is the same for
 * the same graph, library and number of ranks. */
#include <getopt.h>
#include <math.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

static const double kDamping = 0.85;
enum { kMostTop = 1000, kMostIterations = 200 };

void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "pagerank: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

void* need(uint64_t bytes, const char* what) {
  void* memory = malloc(bytes);
  if (memory == NULL) {
    fail("no memory for %s (%llu bytes)", what, (unsigned long long)bytes);
  }
  return memory;
}

typedef struct {
  double tolerance;
  int top, scale, per_vertex;
  uint64_t seed;
  const char* file;
} Options;

static Options read_options(int count, char** words) {
  Options options = {.tolerance = 1e-9, .top = 5, .scale = -1, .per_vertex = 16, .seed = 1};
  static const struct option known[] = {
      {"tolerance", required_argument, NULL, 't'}, {"top", required_argument, NULL, 'n'},
      {"kronecker", required_argument, NULL, 'k'}, {"per-vertex", required_argument, NULL, 'd'},
      {"seed", required_argument, NULL, 's'},      {NULL, 0, NULL, 0}};
  for (int letter; (letter = getopt_long(count, words, "", known, NULL)) != -1;) {
    switch (letter) {
      case 't':
        options.tolerance = atof(optarg);
        break;
      case 'n':
        options.top = atoi(optarg);
        break;
      case 'k':
        options.scale = atoi(optarg);
        break;
      case 'd':
        options.per_vertex = atoi(optarg);
        break;
      case 's':
        options.seed = strtoull(optarg, NULL, 10);
        break;
      default:
        fail("see the beginning of examples/pagerank/pagerank.c for the options");
    }
  }
  options.file = optind < count ? words[optind] : NULL;
  if ((options.file == NULL) == (options.scale < 0) || options.scale > 31 || options.per_vertex < 1 || options.top < 0 ||
      options.top > kMostTop || !(options.tolerance > 0)) {
    fail("usage: pagerank [--tolerance T] [--top N] FILE | --kronecker SCALE [--per-vertex D] [--seed S]");
  }
  return options;
}

static double sum_over_ranks(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return value;
}

typedef struct {
  double* all;  /* rank divided by degree, of every vertex */
  double* mine; /* rank of this process's vertices */
  int *counts, *at;
} Vectors;

static Vectors make_vectors(const Graph* graph, int ranks) {
  Vectors v = {need(graph->vertices * sizeof(double), "ranks"), need((graph->count + 1) * sizeof(double), "ranks"),
               need((uint64_t)ranks * sizeof(int), "counts"), need((uint64_t)ranks * sizeof(int), "counts")};
  for (int rank = 0; rank < ranks; ++rank) {
    v.at[rank] = (int)first_vertex(graph->vertices, rank, ranks);
    v.counts[rank] = (int)(first_vertex(graph->vertices, rank + 1, ranks) - (uint64_t)v.at[rank]);
  }
  for (uint64_t vertex = 0; vertex < graph->count; ++vertex) {
    v.mine[vertex] = 1.0 / (double)graph->vertices;
  }
  return v;
}

/* One step; returns how much the ranks changed in sum. */
static double iterate(const Graph* graph, Vectors* v) {
  double* share = v->all + graph->first;
  double dangling = 0;
  for (uint64_t vertex = 0; vertex < graph->count; ++vertex) {
    const uint32_t degree = graph->out_degree[vertex];
    share[vertex] = degree > 0 ? v->mine[vertex] / degree : 0;
    dangling += degree > 0 ? 0 : v->mine[vertex];
  }
  dangling = sum_over_ranks(dangling);
  MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, v->all, v->counts, v->at, MPI_DOUBLE, MPI_COMM_WORLD);
  const double base = (1 - kDamping + kDamping * dangling) / (double)graph->vertices;
  double change = 0;
  for (uint64_t vertex = 0; vertex < graph->count; ++vertex) {
    double sum = 0;
    for (uint64_t edge = graph->begin[vertex]; edge < graph->begin[vertex + 1]; ++edge) {
      sum += v->all[graph->sources[edge]];
    }
    const double rank = base + kDamping * sum;
    change += fabs(rank - v->mine[vertex]);
    v->mine[vertex] = rank;
  }
  return sum_over_ranks(change);
}

typedef struct {
  double rank;
  uint64_t vertex;
} Top;

static int by_rank(const void* a, const void* b) {
  const Top *left = a, *right = b;
  if (left->rank != right->rank) {
    return left->rank < right->rank ? 1 : -1;
  }
  return left->vertex < right->vertex ? -1 : 1;
}

/* The `count` largest of this process's ranks, in order; returns how many there are. */
static int local_top(const Graph* graph, const double* ranks, Top* top, int count) {
  int found = 0;
  for (uint64_t vertex = 0; vertex < graph->count; ++vertex) {
    if (found == count && ranks[vertex] <= top[count - 1].rank) {
      continue;
    }
    int place = found < count ? found++ : count - 1;
    for (; place > 0 && top[place - 1].rank < ranks[vertex]; --place) {
      top[place] = top[place - 1];
    }
    top[place] = (Top){ranks[vertex], graph->first + vertex};
  }
  return found;
}

static void print_top(const Graph* graph, const double* ranks, int count, int rank, int size) {
  Top *mine = need((uint64_t)(count + 1) * sizeof(Top), "top"),
      *all = need((uint64_t)(count + 1) * (uint64_t)size * sizeof(Top), "top");
  for (int index = 0; index < count; ++index) {
    mine[index] = (Top){-1, 0};
  }
  local_top(graph, ranks, mine, count);
  MPI_Gather(mine, count * (int)sizeof(Top), MPI_BYTE, all, count * (int)sizeof(Top), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    qsort(all, (size_t)count * (size_t)size, sizeof(Top), by_rank);
    for (int index = 0; index < count && all[index].rank >= 0; ++index) {
      printf("top %d: vertex %llu rank %.12e\n", index + 1, (unsigned long long)all[index].vertex, all[index].rank);
    }
  }
  free(mine);
  free(all);
}

/* Does not depend on the order in which vertices are visited. */
static uint64_t checksum(const Graph* graph, const double* ranks) {
  uint64_t sum = 0;
  for (uint64_t vertex = 0; vertex < graph->count; ++vertex) {
    uint64_t bits;
    memcpy(&bits, &ranks[vertex], sizeof bits);
    uint64_t hash = (bits ^ (graph->first + vertex) * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    sum += hash ^ hash >> 29;
  }
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const Options options = read_options(argc, argv);
  const double started = MPI_Wtime();
  EdgeSource edges =
      options.file != NULL ? file_edges(options.file) : kronecker_edges(options.scale, options.per_vertex, options.seed);
  if (edges.vertices == 0 || edges.vertices > INT32_MAX) {
    fail("%llu vertices: between 1 and 2^31 - 1 are needed", (unsigned long long)edges.vertices);
  }
  Graph graph = build_graph(&edges);
  Vectors vectors = make_vectors(&graph, size);
  const double built = MPI_Wtime();
  int iterations = 0;
  double change = INFINITY;
  while (iterations < kMostIterations && !(change < options.tolerance * (double)graph.vertices)) {
    change = iterate(&graph, &vectors);
    ++iterations;
  }
  const double done = MPI_Wtime();
  const uint64_t sum = checksum(&graph, vectors.mine);
  if (rank == 0) {
    printf("graph: %llu vertices, %llu edges, %d ranks\n", (unsigned long long)graph.vertices, (unsigned long long)graph.edges,
           size);
    printf("iterations: %d, last change %.3e\n", iterations, change);
  }
  print_top(&graph, vectors.mine, options.top, rank, size);
  if (rank == 0) {
    printf("checksum: %016llx\n", (unsigned long long)sum);
    printf("time: %.2f s building, %.2f s iterating\n", built - started, done - built);
  }
  free_graph(&graph);
  MPI_Finalize();
  return 0;
}
