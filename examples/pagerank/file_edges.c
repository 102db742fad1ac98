/* Reads edges from text: each rank takes an equal part of the file's bytes, moved to line ends. */
#include <ctype.h>
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

typedef struct {
  const char* path;
  FILE* file;
  long begin, end; /* this rank's bytes */
  int one_based;
  int symmetric;
  int has_pending; /* the other direction of a symmetric entry */
  Edge pending;
} FileEdges;

static int read_edge(const FileEdges* self, const char* line, Edge* edge) {
  while (isspace((unsigned char)*line)) {
    ++line;
  }
  if (*line == 0 || *line == '%' || *line == '#') {
    return 0;
  }
  unsigned long source, target;
  if (sscanf(line, "%lu %lu", &source, &target) != 2 || source > UINT32_MAX || target > UINT32_MAX ||
      (self->one_based && (source == 0 || target == 0))) {
    fail("%s: not an edge: %s", self->path, line);
  }
  *edge = (Edge){(uint32_t)(source - (unsigned)self->one_based), (uint32_t)(target - (unsigned)self->one_based)};
  return 1;
}

static uint64_t next(EdgeSource* source, Edge* edges, uint64_t most) {
  FileEdges* self = source->state;
  uint64_t count = 0;
  char line[512];
  while (count < most) {
    if (self->has_pending) {
      edges[count++] = self->pending;
      self->has_pending = 0;
      continue;
    }
    if (ftell(self->file) >= self->end || fgets(line, sizeof line, self->file) == NULL) {
      break;
    }
    if (!read_edge(self, line, &edges[count])) {
      continue;
    }
    if (edges[count].source >= source->vertices || edges[count].target >= source->vertices) {
      fail("%s: vertex beyond the %llu that the file declares: %s", self->path, (unsigned long long)source->vertices, line);
    }
    if (self->symmetric && edges[count].source != edges[count].target) {
      self->pending = (Edge){edges[count].target, edges[count].source};
      self->has_pending = 1;
    }
    ++count;
  }
  return count;
}

static void rewind_edges(EdgeSource* source) {
  FileEdges* self = source->state;
  fseek(self->file, self->begin, SEEK_SET);
  self->has_pending = 0;
}

/* The first position at or after `at` where a line begins. */
static long line_start(FILE* file, long at, long body) {
  if (at <= body) {
    return body;
  }
  fseek(file, at - 1, SEEK_SET);
  for (int c = fgetc(file); c != EOF && c != '\n'; c = fgetc(file)) {
  }
  return ftell(file);
}

/* Matrix Market's header; returns the number of vertices, or 0 if the file is a plain list. */
static uint64_t read_header(FileEdges* self) {
  char line[512] = "";
  if (fgets(line, sizeof line, self->file) == NULL || strncmp(line, "%%MatrixMarket", 14) != 0) {
    rewind(self->file);
    return 0;
  }
  if (strstr(line, "coordinate") == NULL) {
    fail("%s: only Matrix Market files in coordinate form are read", self->path);
  }
  self->symmetric = strstr(line, "symmetric") != NULL;
  self->one_based = 1;
  unsigned long rows, columns, entries;
  do {
    if (fgets(line, sizeof line, self->file) == NULL) {
      fail("%s: ends in its header", self->path);
    }
  } while (line[0] == '%');
  if (sscanf(line, "%lu %lu %lu", &rows, &columns, &entries) != 3) {
    fail("%s: no size line", self->path);
  }
  return rows > columns ? rows : columns;
}

static uint64_t count_vertices(EdgeSource* source) {
  uint64_t largest = 0;
  Edge edges[256];
  source->vertices = UINT64_MAX;
  for (uint64_t count; (count = source->next(source, edges, 256)) > 0;) {
    for (uint64_t index = 0; index < count; ++index) {
      largest = edges[index].source + 1u > largest ? edges[index].source + 1u : largest;
      largest = edges[index].target + 1u > largest ? edges[index].target + 1u : largest;
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  return largest;
}

EdgeSource file_edges(const char* path) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  FileEdges* self = need(sizeof *self, "the reader");
  *self = (FileEdges){.path = path, .file = fopen(path, "r")};
  if (self->file == NULL) {
    fail("%s: %s", path, strerror(errno));
  }
  EdgeSource source = {read_header(self), next, rewind_edges, self};
  const long body = ftell(self->file);
  fseek(self->file, 0, SEEK_END);
  const long end = ftell(self->file);
  self->begin = line_start(self->file, body + (end - body) / ranks * rank, body);
  self->end = rank + 1 == ranks ? end : line_start(self->file, body + (end - body) / ranks * (rank + 1), body);
  rewind_edges(&source);
  if (source.vertices == 0) {
    source.vertices = count_vertices(&source);
    rewind_edges(&source);
  }
  return source;
}
