// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/reduce/cpu/combine.h>
#include <peal/comm/reduce/cpu/combine_kernels.h>

#include <atomic>

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

void combine_with(const CombineKernels& kernels, DType dtype, ReduceOp op,
                  std::span<std::byte* const> targets, std::span<const std::byte* const> sources,
                  std::int64_t count, bool streaming) {
  const auto type = static_cast<std::size_t>(dtype);
  const auto kernel = kernels.of[type][static_cast<std::size_t>(op)];
  if (kernel == nullptr) [[unlikely]]
    return check_reduction(dtype, op);
  (sources.size() == 1 ? kernels.copy : kernel)(
      targets.data(), static_cast<std::int64_t>(targets.size()), sources.data(),
      static_cast<std::int64_t>(sources.size()), count * kernels.size[type], streaming);
}

// Those of current_level(), once it was asked.
constinit std::atomic<const CombineKernels*> current{nullptr};

[[gnu::noinline]] void combine_first(DType dtype, ReduceOp op, std::span<std::byte* const> targets,
                                     std::span<const std::byte* const> sources, std::int64_t count,
                                     bool streaming) {
  current.store(&kernels_of(cpu::current_level()), std::memory_order_relaxed);
  combine(dtype, op, targets, sources, count, streaming);
}

}  // namespace

void combine(DType dtype, ReduceOp op, std::span<std::byte* const> targets,
             std::span<const std::byte* const> sources, std::int64_t count, bool streaming) {
  const CombineKernels* kernels = current.load(std::memory_order_relaxed);
  if (kernels == nullptr) [[unlikely]] {
    return combine_first(dtype, op, targets, sources, count, streaming);
  }
  combine_with(*kernels, dtype, op, targets, sources, count, streaming);
}

void combine(cpu::Level level, DType dtype, ReduceOp op, std::span<std::byte* const> targets,
             std::span<const std::byte* const> sources, std::int64_t count, bool streaming) {
  combine_with(kernels_of(level), dtype, op, targets, sources, count, streaming);
}

}  // namespace peal::comm
