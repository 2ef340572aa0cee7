// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cpu_level.h>
#include <peal/autograd/core/error.h>

#include <cstdlib>
#include <string_view>

namespace peal::cpu {

Level best_level() {
#if defined(__x86_64__)
  static const Level best = [] {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("f16c") || !__builtin_cpu_supports("bmi") ||
        !__builtin_cpu_supports("bmi2")) {
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
