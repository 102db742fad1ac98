/* The Graph500 Kronecker generator: each bit of an edge's two ends is drawn with probabilities 0.57, 0.19, 0.19, 0.05 for the
   quadrants. The random numbers are a function of (seed, edge, level) alone, so the graph does not depend on the number of
   ranks, and vertices are renamed by a keyed permutation so that neighbours in number are not neighbours in the graph. */
#include <mpi.h>
#include <stdlib.h>

#include "graph.h"

typedef struct {
  int scale;
  uint64_t seed;
  uint64_t first, end, at; /* this rank's edges */
} Kronecker;

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* A permutation of [0, 2^scale): addition, multiplication by an odd number and xor with higher bits are all invertible. */
static uint64_t rename_vertex(uint64_t vertex, int scale, uint64_t seed) {
  const uint64_t mask = ((uint64_t)1 << scale) - 1;
  for (int round = 0; round < 3; ++round) {
    vertex = (vertex + mix(seed - (uint64_t)round)) & mask;
    vertex = (vertex * (mix(seed + (uint64_t)round) | 1)) & mask;
    vertex ^= vertex >> (scale / 2 + 1);
  }
  return vertex;
}

static Edge draw(const Kronecker* self, uint64_t edge) {
  uint64_t source = 0, target = 0, bits = 0;
  for (int level = 0; level < self->scale; ++level) {
    if (level % 4 == 0) {
      bits = mix(self->seed ^ mix(edge * 16 + (uint64_t)level / 4));
    }
    const unsigned draw16 = bits & 0xffff; /* the probabilities to 16 bits */
    bits >>= 16;
    source = source << 1 | (draw16 >= 49807);                                        /* 0.76 */
    target = target << 1 | ((draw16 >= 37355 && draw16 < 49807) || draw16 >= 62259); /* 0.57, 0.95 */
  }
  return (Edge){(uint32_t)rename_vertex(source, self->scale, self->seed),
                (uint32_t)rename_vertex(target, self->scale, self->seed)};
}

static uint64_t next(EdgeSource* source, Edge* edges, uint64_t most) {
  Kronecker* self = source->state;
  uint64_t count = 0;
  while (count < most && self->at < self->end) {
    edges[count++] = draw(self, self->at++);
  }
  return count;
}

static void rewind_edges(EdgeSource* source) {
  Kronecker* self = source->state;
  self->at = self->first;
}

EdgeSource kronecker_edges(int scale, int per_vertex, uint64_t seed) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Kronecker* self = need(sizeof *self, "the generator");
  const uint64_t edges = ((uint64_t)1 << scale) * (uint64_t)per_vertex;
  self->scale = scale;
  self->seed = mix(seed);
  self->first = self->at = first_vertex(edges, rank, ranks);
  self->end = first_vertex(edges, rank + 1, ranks);
  return (EdgeSource){(uint64_t)1 << scale, next, rewind_edges, self};
}
