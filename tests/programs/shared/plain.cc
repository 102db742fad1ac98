// A C++ program without MPI: vectors bigger than the budget, exceptions through allocation, new and delete.
#include <cstdio>
#include <new>
#include <numeric>
#include <stdexcept>
#include <vector>

static long sum_of(std::size_t count) {
  std::vector<long> values(count);
  std::iota(values.begin(), values.end(), 1);
  asm volatile("" : : "r"(values.data()) : "memory");
  long sum = 0;
  for (const long value : values) {
    sum += value;
  }
  if (count == 0) {
    throw std::runtime_error("empty");
  }
  return sum;
}

int main() {
  const long count = 8 << 20;  // 64 MiB
  bool thrown = false;
  try {
    sum_of(0);
  } catch (const std::runtime_error&) {
    thrown = true;
  }
  bool refused = false;
  try {
    char* volatile huge = new char[static_cast<std::size_t>(1) << 46];
    delete[] huge;
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  const bool good = sum_of(count) == count * (count + 1) / 2 && thrown && refused;
  std::puts(good ? "plain ok" : "plain WRONG");
  return good ? 0 : 1;
}
