/* Builds the distributed rows: each edge goes to the owner of its target. Edges are exchanged in rounds; what a round brings is
   sorted by target, so that rows are filled by one sweep a round instead of at random. The order of the sources in a row
   depends only on the edges and the number of ranks, so sums are the same in every run. */
#include "graph.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { kRoundEdges = 1 << 22 };

uint64_t first_vertex(uint64_t vertices, int rank, int ranks) {
  return vertices / (uint64_t)ranks * (uint64_t)rank +
         (vertices % (uint64_t)ranks < (uint64_t)rank ? vertices % (uint64_t)ranks : (uint64_t)rank);
}

static int owner_of(uint64_t vertex, uint64_t vertices, int ranks) {
  int owner = (int)((double)vertex / (double)vertices * ranks);
  owner = owner < ranks ? owner : ranks - 1;
  while (vertex < first_vertex(vertices, owner, ranks)) {
    --owner;
  }
  while (vertex >= first_vertex(vertices, owner + 1, ranks)) {
    ++owner;
  }
  return owner;
}

typedef struct {
  int ranks;
  int *send_counts, *send_at, *receive_counts, *receive_at;
  Edge *drawn, *sorted, *received;
  uint64_t capacity; /* of `received` */
} Exchange;

static Exchange make_exchange(int ranks) {
  Exchange x = {.ranks = ranks};
  int* numbers = need(4 * (uint64_t)ranks * sizeof(int), "counts");
  x.send_counts = numbers;
  x.send_at = numbers + ranks;
  x.receive_counts = numbers + 2 * ranks;
  x.receive_at = numbers + 3 * ranks;
  x.drawn = need(kRoundEdges * sizeof(Edge), "edges");
  x.sorted = need(kRoundEdges * sizeof(Edge), "edges");
  return x;
}

static void free_exchange(Exchange* x) {
  free(x->send_counts);
  free(x->drawn);
  free(x->sorted);
  free(x->received);
}

/* One round: draws edges, sends each to the owner of its target (or of its source). Returns how many came; *more tells whether
   any rank may have more. */
static uint64_t exchange_round(Exchange* x, EdgeSource* edges, int by_source, int* more) {
  const uint64_t drawn = edges->next(edges, x->drawn, kRoundEdges);
  memset(x->send_counts, 0, (size_t)x->ranks * sizeof(int));
  for (uint64_t index = 0; index < drawn; ++index) {
    const uint32_t vertex = by_source ? x->drawn[index].source : x->drawn[index].target;
    ++x->send_counts[owner_of(vertex, edges->vertices, x->ranks)];
  }
  MPI_Alltoall(x->send_counts, 1, MPI_INT, x->receive_counts, 1, MPI_INT, MPI_COMM_WORLD);
  uint64_t incoming = 0;
  for (int rank = 0, at = 0; rank < x->ranks; ++rank) {
    x->send_at[rank] = at;
    at += x->send_counts[rank];
    x->receive_at[rank] = (int)incoming;
    incoming += (uint64_t)x->receive_counts[rank];
  }
  for (uint64_t index = 0; index < drawn; ++index) {
    const uint32_t vertex = by_source ? x->drawn[index].source : x->drawn[index].target;
    x->sorted[x->send_at[owner_of(vertex, edges->vertices, x->ranks)]++] = x->drawn[index];
  }
  for (int rank = 0; rank < x->ranks; ++rank) {
    x->send_at[rank] -= x->send_counts[rank];
  }
  if (incoming > x->capacity) {
    free(x->received);
    x->received = need(incoming * sizeof(Edge), "received edges");
    x->capacity = incoming;
  }
  MPI_Alltoallv(x->sorted, x->send_counts, x->send_at, MPI_UINT64_T, x->received, x->receive_counts, x->receive_at,
                MPI_UINT64_T, MPI_COMM_WORLD);
  *more = drawn > 0;
  MPI_Allreduce(MPI_IN_PLACE, more, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return incoming;
}

/* Sorts by target, keeping the order of equal ones: two passes of 16 bits. */
static void sort_by_target(Edge* edges, Edge* other, uint64_t count) {
  uint64_t* begin = need(65537 * sizeof(uint64_t), "counts");
  for (int shift = 0; shift < 32; shift += 16) {
    memset(begin, 0, 65537 * sizeof(uint64_t));
    for (uint64_t index = 0; index < count; ++index) {
      ++begin[(edges[index].target >> shift & 0xffff) + 1];
    }
    for (int digit = 0; digit < 65536; ++digit) {
      begin[digit + 1] += begin[digit];
    }
    for (uint64_t index = 0; index < count; ++index) {
      other[begin[edges[index].target >> shift & 0xffff]++] = edges[index];
    }
    Edge* swap = edges;
    edges = other;
    other = swap;
  }
  free(begin);
}

static void count_degrees(Graph* graph, EdgeSource* edges, Exchange* x) {
  for (int by_source = 0; by_source < 2; ++by_source) {
    edges->rewind(edges);
    for (int more = 1; more;) {
      const uint64_t count = exchange_round(x, edges, by_source, &more);
      for (uint64_t index = 0; index < count; ++index) {
        if (by_source) {
          ++graph->out_degree[x->received[index].source - graph->first];
        } else {
          ++graph->begin[x->received[index].target - graph->first + 1];
        }
      }
    }
  }
}

static void fill_rows(Graph* graph, EdgeSource* edges, Exchange* x) {
  uint64_t* at = need((graph->count + 1) * sizeof(uint64_t), "cursors");
  memcpy(at, graph->begin, (graph->count + 1) * sizeof(uint64_t));
  edges->rewind(edges);
  for (int more = 1; more;) {
    const uint64_t count = exchange_round(x, edges, 0, &more);
    Edge* other = need((count + 1) * sizeof(Edge), "sorting");
    sort_by_target(x->received, other, count);
    free(other);
    for (uint64_t index = 0; index < count; ++index) {
      graph->sources[at[x->received[index].target - graph->first]++] = x->received[index].source;
    }
  }
  free(at);
}

Graph build_graph(EdgeSource* edges) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  Graph graph = {.vertices = edges->vertices, .first = first_vertex(edges->vertices, rank, ranks)};
  graph.count = first_vertex(edges->vertices, rank + 1, ranks) - graph.first;
  graph.begin = need((graph.count + 1) * sizeof(uint64_t), "row beginnings");
  graph.out_degree = need((graph.count + 1) * sizeof(uint32_t), "degrees");
  memset(graph.begin, 0, (graph.count + 1) * sizeof(uint64_t));
  memset(graph.out_degree, 0, (graph.count + 1) * sizeof(uint32_t));
  Exchange x = make_exchange(ranks);
  count_degrees(&graph, edges, &x);
  for (uint64_t vertex = 0; vertex < graph.count; ++vertex) {
    graph.begin[vertex + 1] += graph.begin[vertex];
  }
  graph.sources = need((graph.begin[graph.count] + 1) * sizeof(uint32_t), "edges");
  fill_rows(&graph, edges, &x);
  free_exchange(&x);
  MPI_Allreduce(&graph.begin[graph.count], &graph.edges, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return graph;
}

void free_graph(Graph* graph) {
  free(graph->begin);
  free(graph->sources);
  free(graph->out_degree);
}
