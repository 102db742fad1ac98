// See copy.h. The routine is chosen by what the processor has, once.
#include "direct/copy.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/system_calls.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headroom::direct {
namespace {

void copy_plainly(char* to, const char* from, uint64_t bytes) { memcpy(to, from, bytes); }

#if defined(__x86_64__)
/// Content is asked for so far ahead on processors that do not do it as well by themselves; Intel's do: 64 MiB one way 5.0 ms
/// with it, 3.4 ms without.
constexpr uint64_t kAhead = 512;

template <bool kAsks>
__attribute__((target("avx512f"))) void copy_avx512(char* to, const char* from, uint64_t bytes) {
  for (; bytes >= 256; to += 256, from += 256, bytes -= 256) {
    for (uint64_t line = 0; kAsks && line < 256; line += 64) {
      _mm_prefetch(from + kAhead + line, _MM_HINT_NTA);
    }
    const __m512i a = _mm512_loadu_si512(from);
    const __m512i b = _mm512_loadu_si512(from + 64);
    const __m512i c = _mm512_loadu_si512(from + 128);
    const __m512i d = _mm512_loadu_si512(from + 192);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 64), b);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 128), c);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 192), d);
  }
  _mm_sfence();
  memcpy(to, from, bytes);
}

template <bool kAsks>
__attribute__((target("avx2"))) void copy_avx2(char* to, const char* from, uint64_t bytes) {
  for (; bytes >= 128; to += 128, from += 128, bytes -= 128) {
    for (uint64_t line = 0; kAsks && line < 128; line += 64) {
      _mm_prefetch(from + kAhead + line, _MM_HINT_NTA);
    }
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
    const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 64));
    const __m256i d = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 96));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), b);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 64), c);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 96), d);
  }
  _mm_sfence();
  memcpy(to, from, bytes);
}

#elif defined(__aarch64__)
/// Pairs of vector registers, stored with the hint that they are not wanted soon. Such stores are ordered by barriers and
/// releases as others are.
void copy_neon(char* to, const char* from, uint64_t bytes) {
  for (; bytes >= 128; to += 128, from += 128, bytes -= 128) {
    asm volatile(
        "prfm pldl1strm, [%[from], #512]\n\t"
        "prfm pldl1strm, [%[from], #576]\n\t"
        "ldp q16, q17, [%[from]]\n\t"
        "ldp q18, q19, [%[from], #32]\n\t"
        "ldp q20, q21, [%[from], #64]\n\t"
        "ldp q22, q23, [%[from], #96]\n\t"
        "stnp q16, q17, [%[to]]\n\t"
        "stnp q18, q19, [%[to], #32]\n\t"
        "stnp q20, q21, [%[to], #64]\n\t"
        "stnp q22, q23, [%[to], #96]"
        :
        : [to] "r"(to), [from] "r"(from)
        : "memory", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23");
  }
  memcpy(to, from, bytes);
}
#endif

/// Of the largest cache of a processor, in bytes; 0 if that is not known. (The C library's sysconf is wrong about some virtual
/// machines: 320 MiB where there are 32.)
uint64_t largest_cache() {
  uint64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    char name[64];
    (void)snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    char text[32] = {};
    const long file = base::system_call(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
    if (base::is_error(file)) {
      break;
    }
    (void)base::system_call(SYS_read, file, text, sizeof text - 1);
    (void)base::system_call(SYS_close, file);
    char* unit = nullptr;
    const uint64_t number = strtoull(text, &unit, 10);
    const uint64_t size = number << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : 0);
    largest = std::max(size, largest);
  }
  return largest;
}

uint64_t find_past_cache() {
  constexpr uint64_t kLeast = 4 << 20;
  constexpr uint64_t kMost = 16 << 20;
  constexpr uint64_t kUnknown = 8 << 20;
  const uint64_t part = largest_cache() / 4;
  return part == 0 ? kUnknown : part < kLeast ? kLeast : std::min(part, kMost);
}

#if defined(__x86_64__)
struct Processor {
  bool is_intel = false;
  bool has_avx2 = false;
  bool has_avx512 = false;
};

/// The features that the processor has and whose registers the kernel keeps for each thread. Asked by instructions: the
/// compiler's own question (__builtin_cpu_supports) is answered by its library, and that of some compilers always says no.
Processor this_processor() {
  Processor found;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) {
    return found;
  }
  found.is_intel = ebx == signature_INTEL_ebx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & bit_OSXSAVE) == 0) {
    return found;
  }
  unsigned kept = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
  constexpr unsigned kWide = 0x06;    // registers of 16 and 32 bytes
  constexpr unsigned kWidest = 0xe6;  // and those of 64
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    found.has_avx2 = (kept & kWide) == kWide && (ebx & bit_AVX2) != 0;
    found.has_avx512 = (kept & kWidest) == kWidest && (ebx & bit_AVX512F) != 0;
  }
  return found;
}
#endif

}  // namespace

CopyRoutines usable_copy_routines() {
  CopyRoutines usable;
#if defined(__x86_64__)
  const Processor processor = this_processor();
  const bool asks = !processor.is_intel;
  if (processor.has_avx512) {
    usable.add("avx512", asks ? copy_avx512<true> : copy_avx512<false>);
  }
  if (processor.has_avx2) {
    usable.add("avx2", asks ? copy_avx2<true> : copy_avx2<false>);
  }
#elif defined(__aarch64__)
  usable.add("neon", copy_neon);
#endif
  usable.add("plain", copy_plainly);
  return usable;
}

uint64_t past_cache_from() {
  static const uint64_t from = find_past_cache();
  return from;
}

void copy_past_cache(char* to, const char* from, uint64_t bytes) {
  static const CopyRoutine routine = usable_copy_routines().all[0].copy;
  const uint64_t ahead = (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64;
  memcpy(to, from, ahead);
  routine(to + ahead, from + ahead, bytes - ahead);
}

}  // namespace headroom::direct
