// Programs made of small objects, with memory enough: a map filled and searched at random, lists made, walked and freed, and
// threads that allocate and free at once. Prints millions of operations a second for each.
// usage: small_objects THOUSANDS ROUNDS
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <thread>
#include <vector>

namespace {

uint64_t mix(uint64_t value) {
  value ^= value >> 31;
  value *= 0x9e3779b97f4a7c15U;
  return value ^ value >> 29;
}

uint64_t sink = 0;

uint64_t map_at_random(uint64_t objects) {
  std::map<uint64_t, uint64_t> map;
  for (uint64_t index = 0; index < objects; ++index) {
    map[mix(index)] = index;
  }
  for (uint64_t index = 0; index < objects; ++index) {
    sink += map.find(mix(index))->second;
  }
  for (uint64_t index = 0; index < objects; index += 2) {
    map.erase(mix(index));
  }
  return objects * 5 / 2;
}

uint64_t lists(uint64_t objects) {
  for (int round = 0; round < 4; ++round) {
    std::list<uint64_t> list;
    for (uint64_t index = 0; index < objects; ++index) {
      list.push_back(index);
    }
    for (const uint64_t value : list) {
      sink += value;
    }
  }
  return objects * 4 * 3;
}

uint64_t threads(uint64_t objects) {
  constexpr int kThreads = 8;
  std::vector<std::thread> all;
  for (int thread = 0; thread < kThreads; ++thread) {
    all.emplace_back([=] {
      std::vector<void*> held(1000, nullptr);
      for (uint64_t index = 0; index < objects; ++index) {
        const uint64_t random = mix(index * kThreads + static_cast<uint64_t>(thread));
        void*& place = held[random % held.size()];
        std::free(place);
        place = std::malloc(16 + (random >> 20) % 1000);
        *static_cast<uint64_t*>(place) = random;
      }
      for (void* place : held) {
        std::free(place);
      }
    });
  }
  for (std::thread& thread : all) {
    thread.join();
  }
  return objects * kThreads * 2;
}

template <typename Work>
void time_it(const char* name, uint64_t objects, int rounds, Work work) {
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const auto operations = static_cast<double>(work(objects));
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    best = operations / passed.count() > best ? operations / passed.count() : best;
  }
  std::printf("%s: %.2f\n", name, best / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: small_objects THOUSANDS ROUNDS\n");
    return 2;
  }
  const uint64_t objects = std::strtoull(argv[1], nullptr, 10) * 1000;
  const int rounds = std::atoi(argv[2]);
  volatile char* first = static_cast<char*>(std::malloc(2 << 20));  // from here on the process has evictable memory
  first[0] = 1;
  time_it("map", objects, rounds, map_at_random);
  time_it("lists", objects, rounds, lists);
  time_it("8 threads", objects, rounds, threads);
  std::free(const_cast<char*>(first));
  return sink == 42 ? 3 : 0;
}
