// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ceilings.h>
#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/table.h>

#include <algorithm>
#include <chrono>

namespace peal {
namespace {

// The shortest of several goes, in seconds; the first, which warms up, does not count.
template <class F>
double least_seconds(int goes, F&& f) {
  double least = 0;
  for (int i = 0; i <= goes; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (i == 1 || (i > 1 && spent.count() < least)) least = spent.count();
  }
  return std::max(least, 1e-9);
}

}  // namespace

Ceilings measure_ceilings() {
  const Kernels& table = kernels(Device{});
  constexpr std::int64_t edge = 1024, length = std::int64_t{1} << 24;  // 64 MiB each
  Ceilings ceilings;
  {
    const Tensor a = Tensor::zeros({edge, edge}), b = Tensor::zeros({edge, edge});
    const Tensor out = Tensor::empty({edge, edge});
    ceilings.flops = work_of(out, a, b, false, false, Tensor()).flops / least_seconds(8, [&] {
                       table.matmul("measure_ceilings", out, out, a, b, false, false, Tensor());
                     });
  }
  const Tensor x = Tensor::zeros({length}), y = Tensor::zeros({length});
  // x is read and written.
  ceilings.bytes = 3.0 * static_cast<double>(x.view().bytes()) /
                   least_seconds(5, [&] { table.axpy("measure_ceilings", x, x, y, 0.5); });
  return ceilings;
}

}  // namespace peal
