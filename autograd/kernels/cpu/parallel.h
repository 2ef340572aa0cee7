// SPDX-License-Identifier: Apache-2.0
// parallel_for: splits [0, n) over the calling thread's OpenMP threads where the work is worth it.
// Which elements a thread gets never changes a result: kernels split only what is independent. The
// first exception of f on any thread is thrown to the caller, once all have ended. Thread safety:
// callers on several threads get teams of their own. Workers run no signal handlers
// (held_signals.h), so that a profiler whose timers signal threads (SIGPROF) does not see them;
// perf does.
#pragma once

#include <peal/autograd/kernels/cpu/held_signals.h>

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace peal::cpu {

// Work below this many elements costs less than waking a team.
inline constexpr std::int64_t worth_a_thread = 32768;

// f(begin, end) over parts of [0, n); `cost` is the number
// of elements behind one item.
template <class F>
void parallel_for(std::int64_t n, std::int64_t cost, F&& f) {
  const std::int64_t wanted = n * cost / worth_a_thread;
  const std::int64_t grain = cost == 1 ? 64 : 1, grains = (n + grain - 1) / grain;
  const int threads =
      static_cast<int>(std::min<std::int64_t>({wanted, grains, omp_get_max_threads()}));
  if (threads <= 1 || omp_in_parallel()) {
    if (n > 0) f(std::int64_t{0}, n);
    return;
  }
  std::exception_ptr failure;  // it cannot leave a parallel region, that would end the process
#pragma omp parallel num_threads(threads)
  {
    const std::int64_t team = omp_get_num_threads(), me = omp_get_thread_num();
    const std::int64_t begin = std::min(n, grains * me / team * grain);
    const std::int64_t end = std::min(n, grains * (me + 1) / team * grain);
    if (me != 0) hold_signals_of_worker();
    try {
      if (begin < end) f(begin, end);
    } catch (...) {
#pragma omp critical(peal_parallel_for)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace peal::cpu
