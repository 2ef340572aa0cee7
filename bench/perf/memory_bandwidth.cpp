// SPDX-License-Identifier: Apache-2.0
#include <peal/bench/perf/measure.h>
#include <peal/bench/perf/memory_bandwidth.h>
#include <peal/comm/reduce/cpu/combine.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace peal::bench {

std::optional<double> MemoryBandwidth::of(std::int64_t bytes) {
  if (bytes == 0 || std::ranges::max(group_.nodes().node) > 0) return std::nullopt;
  const auto found = measured_.find(bytes);
  if (found != measured_.end()) return found->second;
  using Clock = std::chrono::steady_clock;
  const Tensor data = Tensor::zeros({bytes}, DType::u8, Device{});
  std::byte* const own = data.view().data();
  const auto seconds = [&](int times) {
    group_.barrier().wait();
    const auto start = Clock::now();
    for (int i = 0; i < times; ++i) {  // each element is the greater of itself and itself
      comm::combine(DType::u8, comm::ReduceOp::max, std::array{own},
                    std::array<const std::byte*, 2>{own, own}, bytes, false);
    }
    return over_ranks(group_, std::chrono::duration<double>(Clock::now() - start).count(), 3) /
           times;
  };
  const int times = static_cast<int>(std::clamp(2e-3 / seconds(1), 1.0, 10000.0));
  double least = seconds(times);
  for (int i = 0; i < 4; ++i) least = std::min(least, seconds(times));
  return measured_[bytes] = 2.0 * static_cast<double>(bytes) * group_.world() / least;
}

}  // namespace peal::bench
