// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/gradients.h>

#include <cmath>
#include <utility>
#include <vector>

namespace peal {
namespace {

// The list by devices; one without elements is left out.
std::vector<std::pair<Device, Tensors>> by_device(std::span<const Tensor> list) {
  std::vector<std::pair<Device, Tensors>> parts;
  for (const Tensor& each : list) {
    if (each.numel() == 0) continue;
    std::size_t i = 0;
    while (i < parts.size() && parts[i].first != each.device()) ++i;
    if (i == parts.size()) parts.emplace_back(each.device(), Tensors{});
    parts[i].second.push_back(each);
  }
  return parts;
}

// `found` has an element for each device, if wanted.
void scale(std::span<const Tensor> list, double factor, Tensors* found) {
  TraceSpan span("scale_all");
  for (const auto& [device, part] : by_device(list)) {
    Tensor flag;
    if (found != nullptr) {
      flag = Tensor::zeros({}, DType::f32, device);
      found->push_back(flag);
    }
    kernels(device).scale_all("scale_all", part.front(), part, factor, flag);
    for (const Tensor& each : part) each.storage()->bump_version();
  }
}

}  // namespace

double power_sum_of(std::span<const Tensor> list, double p) {
  TraceSpan span("norm_of");
  Tensors sums;
  for (const auto& [device, part] : by_device(list)) {
    sums.push_back(Tensor::empty({}, DType::f64, device));
    kernels(device).power_sum("norm_of", part.front(), sums.back(), part, p);
  }
  double total = 0;
  for (const Tensor& each : sums) {
    const double sum = each.item<double>();
    if (!std::isinf(p)) {
      total += sum;
    } else if (std::isnan(sum) || sum > total) {
      total = sum;
    }
    if (std::isnan(total)) break;
  }
  return total;
}

double norm_of(std::span<const Tensor> list, double p) {
  const double sum = power_sum_of(list, p);
  return std::isinf(p) ? sum : std::pow(sum, 1 / p);
}

void scale_all(std::span<const Tensor> list, double factor) { scale(list, factor, nullptr); }

Tensor clip_norm(std::span<const Tensor> list, double p, double most) {
  const auto parts = by_device(list);
  if (parts.size() != 1) {
    const double norm = norm_of(list, p), factor = most / (norm + 1e-6);
    if (!(factor >= 1)) scale_all(list, factor);
    return Tensor::scalar(norm, Device{});
  }
  TraceSpan span("clip_norm");
  const auto& [device, all] = parts.front();
  const Tensor norm = Tensor::empty({}, DType::f64, device);
  kernels(device).clip_norm("clip_norm", all.front(), norm, all, p, most);
  for (const Tensor& each : all) each.storage()->bump_version();
  return norm;
}

bool scale_all_finite(std::span<const Tensor> list, double factor) {
  Tensors found;
  scale(list, factor, &found);
  bool finite = true;
  for (const Tensor& flag : found) finite = finite && flag.item<float>() == 0;
  return finite;
}

}  // namespace peal
