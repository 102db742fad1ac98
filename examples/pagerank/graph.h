/* Edges from a file or a generator, and the distributed compressed sparse rows that PageRank works on. */
#ifndef GRAPH_H
#define GRAPH_H

#include <stdint.h>

typedef struct {
  uint32_t source;
  uint32_t target;
} Edge;

/* Where edges come from. Each rank produces its part, again and again in the same order after `rewind`. */
typedef struct EdgeSource EdgeSource;
struct EdgeSource {
  uint64_t vertices;
  /* Fills at most `most` edges; 0 when this rank's part is done. */
  uint64_t (*next)(EdgeSource* self, Edge* edges, uint64_t most);
  void (*rewind)(EdgeSource* self);
  void* state;
};

/* A Graph500 Kronecker graph: 2^scale vertices, `per_vertex` edges for each, vertices in random order. */
EdgeSource kronecker_edges(int scale, int per_vertex, uint64_t seed);

/* A Matrix Market file (coordinate; pattern, real or integer; general or symmetric) or a list of "source target" lines.
   Ends the job with a message if the file cannot be read or is malformed. */
EdgeSource file_edges(const char* path);

/* This rank's vertices [first, first + count) with the sources of their incoming edges. */
typedef struct {
  uint64_t vertices; /* of the whole graph */
  uint64_t edges;    /* of the whole graph */
  uint64_t first;
  uint64_t count;
  uint64_t* begin;      /* count + 1: where in `sources` the edges of a vertex begin */
  uint32_t* sources;    /* begin[count] */
  uint32_t* out_degree; /* of this rank's vertices */
} Graph;

Graph build_graph(EdgeSource* edges);
void free_graph(Graph* graph);

/* The first vertex of `rank` out of `ranks`. */
uint64_t first_vertex(uint64_t vertices, int rank, int ranks);

/* Prints what went wrong and ends the job. */
_Noreturn void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* malloc that ends the job instead of returning NULL. */
void* need(uint64_t bytes, const char* what);

#endif
