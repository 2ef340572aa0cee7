// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ceilings.h>
#include <peal/autograd/core/stream.h>
#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/table.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace peal {
namespace {

// The shortest of several goes of so many calls each, in seconds a call; the first go, which warms
// up, does not count.
template <class F>
double least_seconds(Device device, int goes, int calls, F&& f) {
  double least = 0;
  for (int i = 0; i <= goes; ++i) {
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) f();
    synchronize(device);
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (i == 1 || (i > 1 && spent.count() < least)) least = spent.count();
  }
  return std::max(least, 1e-9) / calls;
}

double measure_flops(DType dtype, Device device) {
  // A device needs larger ones to be busy.
  const std::int64_t edge = device.type == DeviceType::cpu ? 1024 : 8192;
  const Kernels& table = kernels(device);
  const Tensor a = Tensor::zeros({edge, edge}, dtype, device);
  const Tensor b = Tensor::zeros({edge, edge}, dtype, device);
  const Tensor out = Tensor::empty({edge, edge}, dtype, device);
  return cost_of(out, a, b, false, false, Tensor()).flops / least_seconds(device, 8, 1, [&] {
           table.matmul("measure_ceilings", out, out, a, b, false, false, Tensor());
         });
}

Ceilings::Traffic measure_traffic(std::int64_t operands, Device device) {
  const Kernels& table = kernels(device);
  const Tensor x = Tensor::zeros({operands / 8}, DType::f32, device);
  const Tensor y = Tensor::zeros({operands / 8}, DType::f32, device);
  const int calls = static_cast<int>(std::max<std::int64_t>((std::int64_t{1} << 24) / operands, 1));
  const double seconds =
      least_seconds(device, 5, calls, [&] { table.axpy("measure_ceilings", x, x, y, 0.5); });
  return {static_cast<double>(operands), cost_of(x, y, 0.5).bytes / seconds};
}

}  // namespace

double Ceilings::bytes(double operands) const {
  for (const Traffic& each : traffic) {
    if (operands <= each.operands) return each.bytes;
  }
  return traffic.empty() ? 0 : traffic.back().bytes;
}

Ceilings measure_ceilings(Device device) {
  Ceilings ceilings{measure_flops(DType::f32, device), measure_flops(DType::bf16, device), {}};
  // The caches of a core, what cores share, and what lies beyond; a device needs more to be busy.
  constexpr std::array on_host{18, 20, 23, 27}, on_device{22, 25, 28, 31};
  for (const int power : device.type == DeviceType::cpu ? on_host : on_device) {
    ceilings.traffic.push_back(measure_traffic(std::int64_t{1} << power, device));
  }
  return ceilings;
}

Least least_time(const OpCost& cost, double calls, const Ceilings& ceilings) {
  const auto over = [](double amount, double rate) { return rate > 0 ? amount / rate : 0; };
  const double f32 = over(cost.flops - cost.low_flops, ceilings.flops);
  const double low = over(cost.low_flops, ceilings.low_flops);
  const double moved = over(cost.bytes, ceilings.bytes(cost.bytes / std::max(calls, 1.0)));
  if (moved >= f32 + low) return {moved, moved > 0 ? "bytes" : ""};
  return {f32 + low, f32 >= low ? "f32" : "bf16"};
}

}  // namespace peal
