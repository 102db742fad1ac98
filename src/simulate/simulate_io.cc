// Computes the time of collective access to a file on many nodes, by three plans: the part in C++ of `headroom simulate io`.
//
//   headroom-simulate-io NODES MIB PATTERN MEDIAN SPREAD SEED
//
// NODES nodes access MIB mebibytes each, all over the file ("interleaved") or each its own part ("segmented"). The memory that
// each has left is drawn from a log-normal distribution: MEDIAN mebibytes, SPREAD the standard deviation of its logarithm. The
// plans are those that calls use (collio/plan.h), the paper's (collio/plan_of_paper.h), and even parts with buffers of 16 MiB,
// as MPI libraries have them. Prints a line for each: name, time of the slowest and of the mean aggregator (1: a MiB with
// endless windows), aggregators, of these short of memory, microseconds for the plan, and the bytes that a rank keeps for it.
//
// Assumptions: a round costs as much as 0.25 MB besides its bytes, as plan.cc does, and a buffer that does not fit is swapped,
// at a tenth of the speed. The network and the disks are not simulated: all are taken to be alike.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <vector>

#include "collio/plan.h"
#include "collio/plan_of_paper.h"

namespace {

using namespace headroom::collio;

constexpr double kMiB = 1 << 20;
constexpr int64_t kBufferOfLibrary = 16 << 20;
constexpr double kSwapped = 10;  // times as long

struct Result {
  double slowest = 0;
  double sum = 0;
  int aggregators = 0;
  int are_short = 0;

  void add(double time, bool is_short) {
    slowest = std::max(slowest, time);
    sum += time;
    ++aggregators;
    are_short += is_short ? 1 : 0;
  }
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void print(const char* name, const Result& result, double seconds, size_t bytes) {
  printf("%s\t%.6f\t%.6f\t%d\t%d\t%.3f\t%zu\n", name, result.slowest,
         result.sum / (result.aggregators > 0 ? result.aggregators : 1), result.aggregators, result.are_short, seconds * 1e6,
         bytes);
}

Result result_of(const std::vector<Domain>& domains, int count) {
  Result result;
  for (int each = 0; each < count; ++each) {
    const Domain& domain = domains[static_cast<size_t>(each)];
    result.add(static_cast<double>(domain.end - domain.begin) / kMiB / weight_of(domain.window), false);
  }
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) {
    fprintf(stderr, "usage: headroom-simulate-io NODES MIB PATTERN MEDIAN SPREAD SEED\n");
    return 2;
  }
  const auto nodes = static_cast<size_t>(atol(arguments[1]));
  const int64_t each = atol(arguments[2]) << 20;
  const bool mixed = strcmp(arguments[3], "interleaved") == 0;
  std::mt19937_64 random(static_cast<uint64_t>(atol(arguments[6])));
  std::lognormal_distribution<double> left(std::log(atof(arguments[4]) * kMiB), atof(arguments[5]));
  std::vector<NodeAccess> given(nodes);
  for (size_t node = 0; node < nodes; ++node) {
    const int64_t begin = mixed ? 0 : static_cast<int64_t>(node) * each;
    const int64_t end = mixed ? static_cast<int64_t>(nodes) * each : begin + each;
    given[node] = {static_cast<int>(node), begin, end, static_cast<int64_t>(left(random))};
  }
  const int64_t end = static_cast<int64_t>(nodes) * each;
  std::vector<Domain> domains(nodes);

  Result even;
  for (const NodeAccess& node : given) {
    const bool is_short = node.room < 2 * kBufferOfLibrary;
    even.add(static_cast<double>(each) / kMiB / weight_of(kBufferOfLibrary) * (is_short ? kSwapped : 1), is_short);
  }
  print("even parts", even, 0, 0);

  auto begin = std::chrono::steady_clock::now();
  const int by_paper = bisect_and_remerge(given.data(), static_cast<int>(nodes), 0, end, {}, domains.data());
  double taken = seconds_since(begin);
  print("bisected", result_of(domains, by_paper), taken, nodes * (sizeof(NodeAccess) + sizeof(Domain)));

  std::vector<NodeAccess> changed = given;
  begin = std::chrono::steady_clock::now();
  const int by_weight = make_domains(changed.data(), static_cast<int>(nodes), {}, domains.data());
  taken = seconds_since(begin);
  print("by weight", result_of(domains, by_weight), taken, nodes * (sizeof(NodeAccess) + sizeof(Domain)));
  return 0;
}
