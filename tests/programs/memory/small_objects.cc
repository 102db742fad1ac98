// Small objects that together exceed the budget: maps, lists, strings, objects that grow, that other threads free, that a
// forked child has copies of. Prints "wrong 0". usage: small_objects THOUSANDS
#include <sys/wait.h>
#include <unistd.h>

#include <malloc.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

uint64_t wrong = 0;

void expect(bool right, const char* what) {
  if (!right) {
    std::fprintf(stderr, "not so: %s\n", what);
    ++wrong;
  }
}

uint64_t value(uint64_t index) { return (index + 1) * 0x9e3779b97f4a7c15U; }

/// Keys ascend, so that the map's order is that of its memory: it is walked bigger than memory.
void maps(uint64_t objects) {
  std::map<uint64_t, std::string> map;
  for (uint64_t index = 0; index < objects; ++index) {
    map.emplace_hint(map.end(), index, std::to_string(value(index)) + " is the value of this object, and long enough");
  }
  for (auto at = map.begin(); at != map.end();) {
    wrong += at->second.compare(0, at->second.find(' '), std::to_string(value(at->first))) != 0 ? 1 : 0;
    at = at->first % 3 == 0 ? map.erase(at) : std::next(at);
  }
  expect(map.size() == objects - (objects + 2) / 3, "a third of the map is gone");
  for (const auto& [key, text] : map) {
    wrong += key % 3 == 0 || text.size() < 20 ? 1 : 0;
  }
}

void objects_that_grow() {
  std::vector<unsigned char*> objects(200, nullptr);
  for (size_t bytes = 1; bytes < size_t{3} << 20; bytes = bytes * 3 + 1) {  // from small to large
    const size_t count = bytes < 100000 ? objects.size() : 4;
    for (size_t index = 0; index < count; ++index) {
      const size_t before = bytes / 3;
      auto* object = static_cast<unsigned char*>(std::realloc(objects[index], bytes));
      expect(malloc_usable_size(object) >= bytes, "as much can be used as was asked for");
      for (size_t at = 0; at < before; at += 97) {
        wrong += object[at] != static_cast<unsigned char>(at + index) ? 1 : 0;
      }
      for (size_t at = 0; at < bytes; ++at) {
        object[at] = static_cast<unsigned char>(at + index);
      }
      objects[index] = object;
    }
  }
  for (unsigned char* object : objects) {
    object = static_cast<unsigned char*>(std::realloc(object, 10));  // and back
    std::free(object);
  }
}

void kinds() {
  for (size_t bytes = 1; bytes < 500000; bytes = bytes * 2 + 3) {
    auto* zeros = static_cast<unsigned char*>(std::calloc(bytes, 1));
    for (size_t at = 0; at < bytes; ++at) {
      wrong += zeros[at] != 0 ? 1 : 0;
    }
    std::memset(zeros, 0xff, bytes);
    std::free(zeros);
    void* odd = memalign(24, bytes);  // glibc takes the next power of two
    expect(reinterpret_cast<uintptr_t>(odd) % 32 == 0, "odd alignments are rounded up");
    std::free(odd);
    for (size_t alignment = 8; alignment <= 1 << 18; alignment *= 4) {
      void* aligned = nullptr;
      expect(posix_memalign(&aligned, alignment, bytes) == 0 && reinterpret_cast<uintptr_t>(aligned) % alignment == 0,
             "objects are aligned");
      std::memset(aligned, 1, bytes);
      std::free(aligned);
    }
  }
}

void threads(uint64_t objects) {
  constexpr int kThreads = 4;
  std::vector<std::vector<uint64_t*>> made(kThreads);
  const auto on_all = [&](auto work) {
    std::vector<std::thread> all;
    for (int thread = 0; thread < kThreads; ++thread) {
      all.emplace_back(work, thread);
    }
    for (std::thread& thread : all) {
      thread.join();
    }
  };
  std::vector<uint64_t> bad(kThreads, 0);
  on_all([&](int thread) {
    for (uint64_t index = 0; index < objects; ++index) {
      auto* object = new uint64_t[1 + index % 40];
      object[0] = value(index + static_cast<uint64_t>(thread));
      made[thread].push_back(object);
    }
  });
  on_all([&](int thread) {  // each checks and frees its neighbour's
    const int other = (thread + 1) % kThreads;
    for (uint64_t index = 0; index < objects; ++index) {
      bad[thread] += made[other][index][0] != value(index + static_cast<uint64_t>(other)) ? 1 : 0;
      delete[] made[other][index];
    }
  });
  for (const uint64_t count : bad) {
    wrong += count;
  }
}

void forked_child() {
  std::list<uint64_t> list;
  for (uint64_t index = 0; index < 300000; ++index) {
    list.push_back(value(index));
  }
  const pid_t child = fork();
  if (child == 0) {
    uint64_t index = 0;
    uint64_t bad = 0;
    for (uint64_t& each : list) {
      bad += each != value(index++) ? 1 : 0;
      each = 0;
    }
    list.clear();
    std::string text(1000, 'x');
    text += std::to_string(bad);
    _exit(bad == 0 && text.size() == 1001 ? 0 : 1);
  }
  uint64_t index = 0;
  for (uint64_t& each : list) {
    wrong += each != value(index++) ? 1 : 0;
    each += 1;
  }
  int status = -1;
  waitpid(child, &status, 0);
  expect(status == 0, "the child sees what there was");
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t objects = argc > 1 ? std::strtoull(argv[1], nullptr, 10) * 1000 : 0;
  auto* large = static_cast<char*>(std::malloc(2 << 20));  // from here on the process has evictable memory
  std::memset(large, 1, 2 << 20);
  maps(objects);
  objects_that_grow();
  kinds();
  threads(objects / 4);
  forked_child();
  std::free(large);
  std::printf("wrong %llu\n", static_cast<unsigned long long>(wrong));
  return wrong != 0;
}
