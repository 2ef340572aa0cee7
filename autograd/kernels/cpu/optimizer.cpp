// SPDX-License-Identifier: Apache-2.0
// Lists are gone through one by one: on the CPU a call costs little beside a tensor.
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace peal::cpu {
namespace {

// In the type it is computed in.
Tensor widened(const Tensor& x) {
  if (!is_low_precision(x.dtype())) return x;
  const Tensor wide = Tensor::empty(x.shape(), DType::f32, Device{});
  cast(wide, x);
  return wide;
}

// step(begin, end, gradient) over the parts of each parameter.
template <class T, class Step>
void each_parameter(std::span<const Stepped> list, Step&& step) {
  for (const Stepped& each : list) {
    const Tensor grad = widened(each.grad);
    const T* g = grad.data<T>();
    parallel_for(each.param.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      step(each, g + begin, begin, end - begin);
    });
    if (each.rounded.defined()) cast(each.rounded, each.param);
  }
}

}  // namespace

bool sgd(std::span<const Stepped> list, const SgdStep& options) {
  return with_real(list.front().param.dtype(), [&]<class T>() {
    each_parameter<T>(list, [&](const Stepped& each, const T* g, std::int64_t at, std::int64_t n) {
      T* buffer = each.first.defined() ? each.first.data<T>() + at : nullptr;
      real_loops<T>().sgd(each.param.data<T>() + at, g, buffer, options, n);
    });
  });
}

bool adam(std::span<const Stepped> list, const AdamStep& options) {
  return with_real(list.front().param.dtype(), [&]<class T>() {
    each_parameter<T>(list, [&](const Stepped& each, const T* g, std::int64_t at, std::int64_t n) {
      real_loops<T>().adam(each.param.data<T>() + at, g, each.first.data<T>() + at,
                           each.second.data<T>() + at, options, n);
    });
  });
}

bool rule_step(std::span<const Stepped> list, const RuleStep& options) {
  return with_real(list.front().param.dtype(), [&]<class T>() {
    each_parameter<T>(list, [&](const Stepped& each, const T* g, std::int64_t at, std::int64_t n) {
      const auto from = [&](const Tensor& state) {
        return state.defined() ? state.data<T>() + at : nullptr;
      };
      real_loops<T>().rule_step(each.param.data<T>() + at, g, from(each.first), from(each.second),
                                from(each.third), options, n);
    });
  });
}

namespace {

template <class T>
double part_of_power_sum(const T* x, std::int64_t n, double power) {
  if (power == 2) return norm_loops<T>().dot(x, x, n);
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double size = std::abs(static_cast<double>(x[i]));
    if (!std::isinf(power)) {
      total += power == 1 ? size : std::pow(size, power);
    } else if (size > total || std::isnan(size)) {
      total = size;
      if (std::isnan(size)) return size;
    }
  }
  return total;
}

}  // namespace

bool power_sum(const Tensor& out, std::span<const Tensor> list, double power) {
  double total = 0;
  for (const Tensor& each : list) {
    const Tensor x = widened(each);
    const bool served = with_real(x.dtype(), [&]<class T>() {
      // Fixed blocks, put together in order: the same bits for any number of threads.
      constexpr std::int64_t block = 65536;
      const std::int64_t n = x.numel(), blocks = (n + block - 1) / block;
      std::vector<double> parts(static_cast<std::size_t>(blocks));
      parallel_for(blocks, block, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          parts[static_cast<std::size_t>(i)] =
              part_of_power_sum(x.data<T>() + i * block, std::min(block, n - i * block), power);
        }
      });
      for (const double part : parts) {
        if (!std::isinf(power)) {
          total += part;
        } else if (part > total || std::isnan(part)) {
          total = part;
        }
        if (std::isnan(total)) return;
      }
    });
    if (!served) return false;
    if (std::isnan(total)) break;
  }
  *out.data<double>() = total;
  return true;
}

bool scale_all(std::span<const Tensor> list, double factor, const Tensor& found) {
  for (const Tensor& each : list) {
    if (!is_floating(each.dtype()) || !unary(Unary::mul_scalar, each, each, factor)) return false;
    if (!found.defined() || each.numel() == 0) continue;
    // A finite sum says that all are; another may be of large numbers.
    const Tensor x = widened(each);
    with_real(x.dtype(), [&]<class T>() {
      const T* first = x.data<T>();
      if (std::isfinite(real_loops<T>().sum(first, x.numel()))) return;
      if (!std::all_of(first, first + x.numel(), [](T value) { return std::isfinite(value); })) {
        *found.data<float>() = 1;
      }
    });
  }
  return true;
}

bool clip_norm(const Tensor& norm, std::span<const Tensor> list, double power, double most) {
  if (!power_sum(norm, list, power)) return false;
  double& value = *norm.data<double>();
  if (!std::isinf(power)) value = std::pow(value, 1 / power);
  const double factor = most / (value + 1e-6);
  return factor >= 1 || scale_all(list, factor, Tensor());
}

}  // namespace peal::cpu
