// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ceilings.h>
#include <peal/autograd/core/stream.h>
#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/table.h>

#include <algorithm>
#include <chrono>

namespace peal {
namespace {

// The shortest of several goes, in seconds; the first, which warms up, does not count.
template <class F>
double least_seconds(Device device, int goes, F&& f) {
  double least = 0;
  for (int i = 0; i <= goes; ++i) {
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    f();
    synchronize(device);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (i == 1 || (i > 1 && spent.count() < least)) least = spent.count();
  }
  return std::max(least, 1e-9);
}

}  // namespace

Ceilings measure_ceilings(Device device) {
  const Kernels& table = kernels(device);
  // A device needs larger ones to be busy.
  const bool host = device.type == DeviceType::cpu;
  const std::int64_t edge = host ? 1024 : 8192;
  const std::int64_t length = std::int64_t{1} << (host ? 24 : 28);  // 64 MiB or 1 GiB each
  Ceilings ceilings;
  {
    const Tensor a = Tensor::zeros({edge, edge}, DType::f32, device);
    const Tensor b = Tensor::zeros({edge, edge}, DType::f32, device);
    const Tensor out = Tensor::empty({edge, edge}, DType::f32, device);
    ceilings.flops =
        cost_of(out, a, b, false, false, Tensor()).flops / least_seconds(device, 8, [&] {
          table.matmul("measure_ceilings", out, out, a, b, false, false, Tensor());
        });
  }
  const Tensor x = Tensor::zeros({length}, DType::f32, device);
  const Tensor y = Tensor::zeros({length}, DType::f32, device);
  // x is read and written.
  ceilings.bytes = 3.0 * static_cast<double>(x.view().bytes()) /
                   least_seconds(device, 5, [&] { table.axpy("measure_ceilings", x, x, y, 0.5); });
  return ceilings;
}

}  // namespace peal
