// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/reduce/cpu/combine.h>
#include <peal/comm/reduce/cpu/combine_kernels.h>
#include <peal/comm/reduce/cpu/reduce.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

namespace peal::comm {

namespace baseline {
const CombineKernels& combine_kernels();
}
#if defined(__x86_64__)
namespace avx2 {
const CombineKernels& combine_kernels();
}
namespace avx512 {
const CombineKernels& combine_kernels();
}
#endif

namespace {

const CombineKernels& kernels_of(cpu::Level level) {
#if defined(__x86_64__)
  if (level == cpu::Level::avx512) return avx512::combine_kernels();
  if (level == cpu::Level::avx2) return avx2::combine_kernels();
#endif
  static_cast<void>(level);
  return baseline::combine_kernels();
}

using Targets = std::span<std::byte* const>;
using Sources = std::span<const std::byte* const>;

// Vectors do not divide integers, so the first target is where it happens.
void average_integers(CombineKernels::Kernel sum, DType dtype, Targets targets, Sources sources,
                      std::int64_t count, std::int64_t divisor) {
  if (targets.empty()) return;
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
  sum(targets.data(), 1, sources.data(), static_cast<std::int64_t>(sources.size()),
      static_cast<std::int64_t>(bytes), false);
  divide_cpu(dtype, targets[0], divisor, count);
  for (std::byte* other : targets.subspan(1)) std::memcpy(other, targets[0], bytes);
}

void average(const CombineKernels& kernels, DType dtype, Targets targets, Sources sources,
             std::int64_t count, bool streaming, std::int64_t divisor) {
  const auto type = static_cast<std::size_t>(dtype);
  if (kernels.divided[type] == nullptr) {
    const auto sum = kernels.of[type][static_cast<std::size_t>(ReduceOp::avg)];
    return average_integers(sum, dtype, targets, sources, count, divisor);
  }
  const auto by = static_cast<double>(divisor);
  const bool exact = std::has_single_bit(static_cast<std::uint64_t>(divisor));  // the same bits
  (exact ? kernels.multiplied : kernels.divided)[type](
      targets.data(), static_cast<std::int64_t>(targets.size()), sources.data(),
      static_cast<std::int64_t>(sources.size()), count * kernels.size[type], streaming,
      exact ? 1 / by : by);
}

void combine_with(const CombineKernels& kernels, DType dtype, ReduceOp op, Targets targets,
                  Sources sources, std::int64_t count, bool streaming, std::int64_t divisor) {
  const auto type = static_cast<std::size_t>(dtype);
  const auto kernel = kernels.of[type][static_cast<std::size_t>(op)];
  if (kernel == nullptr) [[unlikely]]
    return check_reduction(dtype, op);
  if (divisor != 1) {
    return average(kernels, dtype, targets, sources, count, streaming, divisor);
  }
  (sources.size() == 1 ? kernels.copy : kernel)(
      targets.data(), static_cast<std::int64_t>(targets.size()), sources.data(),
      static_cast<std::int64_t>(sources.size()), count * kernels.size[type], streaming);
}

// Lines that other cores hold are written soonest one after the other by whole pieces of memory, as
// memcpy does, which need not be read before. So of more than two targets, of which at most one is
// this rank's own, only the first is computed, in pieces that the nearest cache holds.
constexpr std::int64_t piece_bytes = 16 << 10;
constexpr std::size_t most_in_pieces = 64;  // sources

void combine_in_pieces(const CombineKernels& kernels, DType dtype, ReduceOp op, Targets targets,
                       Sources sources, std::int64_t count, std::int64_t divisor) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t piece = piece_bytes / size;
  std::array<const std::byte*, most_in_pieces> from;
  for (std::int64_t at = 0; at < count; at += piece) {
    const std::int64_t length = std::min(piece, count - at);
    for (std::size_t i = 0; i < sources.size(); ++i) from[i] = sources[i] + at * size;
    std::byte* const first = targets[0] + at * size;
    combine_with(kernels, dtype, op, {&first, 1}, {from.data(), sources.size()}, length, false,
                 divisor);
    for (std::byte* const other : targets.subspan(1)) {
      std::memcpy(other + at * size, first, static_cast<std::size_t>(length * size));
    }
  }
}

bool goes_in_pieces(DType dtype, Targets targets, Sources sources, std::int64_t count,
                    bool streaming) {
  return targets.size() > 2 && !streaming && sources.size() > 1 &&
         sources.size() <= most_in_pieces &&
         count * static_cast<std::int64_t>(size_of(dtype)) >= piece_bytes;
}

// Those of current_level(), once it was asked.
constinit std::atomic<const CombineKernels*> current{nullptr};

[[gnu::noinline]] void combine_first(DType dtype, ReduceOp op, Targets targets, Sources sources,
                                     std::int64_t count, bool streaming, std::int64_t divisor) {
  current.store(&kernels_of(cpu::current_level()), std::memory_order_relaxed);
  combine(dtype, op, targets, sources, count, streaming, divisor);
}

}  // namespace

void combine(DType dtype, ReduceOp op, Targets targets, Sources sources, std::int64_t count,
             bool streaming, std::int64_t divisor) {
  const CombineKernels* kernels = current.load(std::memory_order_relaxed);
  if (kernels == nullptr) [[unlikely]] {
    return combine_first(dtype, op, targets, sources, count, streaming, divisor);
  }
  if (goes_in_pieces(dtype, targets, sources, count, streaming)) [[unlikely]] {
    return combine_in_pieces(*kernels, dtype, op, targets, sources, count, divisor);
  }
  combine_with(*kernels, dtype, op, targets, sources, count, streaming, divisor);
}

void combine(cpu::Level level, DType dtype, ReduceOp op, Targets targets, Sources sources,
             std::int64_t count, bool streaming, std::int64_t divisor) {
  combine_with(kernels_of(level), dtype, op, targets, sources, count, streaming, divisor);
}

}  // namespace peal::comm
