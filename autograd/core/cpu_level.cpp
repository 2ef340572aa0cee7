// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cpu_level.h>
#include <peal/autograd/core/error.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>
#include <string_view>

namespace peal::cpu {

#if defined(__x86_64__)
namespace {

// Not every compiler knows this one by name.
bool supports_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

Level best_level() {
#if defined(__x86_64__)
  static const Level best = [] {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !supports_f16c() ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2")) {
      return Level::baseline;
    }
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    return wide ? Level::avx512 : Level::avx2;
  }();
  return best;
#else
  return Level::baseline;
#endif
}

Level current_level() {
  static const Level current = [] {
    const char* value = std::getenv("PEAL_CPU_LEVEL");
    const std::string_view text = value ? value : "avx512";
    PEAL_CHECK(text == "baseline" || text == "avx2" || text == "avx512",
               "PEAL_CPU_LEVEL: expected baseline, avx2 or avx512, got '", text, "'");
    const Level wanted = text == "baseline" ? Level::baseline
                         : text == "avx2"   ? Level::avx2
                                            : Level::avx512;
    return wanted < best_level() ? wanted : best_level();
  }();
  return current;
}

}  // namespace peal::cpu
