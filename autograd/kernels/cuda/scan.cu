// SPDX-License-Identifier: Apache-2.0
// Scans: running sums along a dimension. Where elements of a line lie side by side a warp sums it,
// 32 elements at a time (Hillis and Steele, 1986); else a thread does, and its neighbours read the
// neighbouring lines. The order is the same at each run.
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/places.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/geometry.h>

namespace peal::cuda {
namespace {

template <class T>
struct Lines {
  T* out;
  const T* x;
  std::int64_t count, size;
  bool reversed;
};

template <class T>
__global__ void scan_runs(Lines<T> lines) {
  using Sum = summed<T>;
  const int lane = static_cast<int>(threadIdx.x) % warp, warps = block / warp;
  const std::int64_t first =
      std::int64_t{blockIdx.x} * warps + static_cast<int>(threadIdx.x) / warp;
  for (std::int64_t line = first; line < lines.count; line += std::int64_t{gridDim.x} * warps) {
    Sum before(0);
    for (std::int64_t begin = 0; begin < lines.size; begin += warp) {
      const std::int64_t i = begin + lane;
      const std::int64_t at = line * lines.size + (lines.reversed ? lines.size - 1 - i : i);
      Sum sum = i < lines.size ? static_cast<Sum>(lines.x[at]) : Sum(0);
      for (int step = 1; step < warp; step *= 2) {
        const Sum other = __shfl_up_sync(whole_warp, sum, static_cast<unsigned>(step));
        if (lane >= step) sum += other;
      }
      sum += before;
      if (i < lines.size) lines.out[at] = static_cast<T>(sum);
      before = __shfl_sync(whole_warp, sum, warp - 1);
    }
  }
}

template <class T>
__global__ void scan_columns(Lines<T> lines, Divisor inner) {
  const std::int64_t stride = std::int64_t{gridDim.x} * block;
  for (std::int64_t line = std::int64_t{blockIdx.x} * block + threadIdx.x; line < lines.count;
       line += stride) {
    const std::int64_t outer = inner.quotient(line);
    const std::int64_t first = outer * lines.size * inner.by + line - outer * inner.by;
    summed<T> sum(0);
    for (std::int64_t i = 0; i < lines.size; ++i) {
      const std::int64_t at = first + (lines.reversed ? lines.size - 1 - i : i) * inner.by;
      sum += static_cast<summed<T>>(lines.x[at]);
      lines.out[at] = static_cast<T>(sum);
    }
  }
}

}  // namespace

bool cumsum(const Tensor& out, const Tensor& x, int dim, bool reversed) {
  if (out.numel() == 0) return true;
  const Around at(x.shape(), dim);
  const auto scan = [&]<class T>() {
    const Lines<T> lines{pointer<T>(out), pointer<const T>(x), at.outer * at.inner, at.size,
                         reversed};
    if (at.inner == 1) {
      launch(x, blocks_for(lines.count * warp), block, scan_runs<T>, lines);
    } else {
      launch(x, blocks_for(lines.count), block, scan_columns<T>, lines, Divisor(at.inner));
    }
  };
  if (x.dtype() != DType::i64) return with_floating(x.dtype(), scan);
  scan.template operator()<std::int64_t>();
  return true;
}

}  // namespace peal::cuda
