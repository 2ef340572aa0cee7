// SPDX-License-Identifier: Apache-2.0
// A list is one long vector that threads share, whatever the sizes of its tensors, and is gone
// through in blocks that stay in a cache: what is widened on the way in, or rounded on the
// way out, is not written to memory between.
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
#include <vector>

namespace peal::cpu {
namespace {

// As much as makes up for what a call works out first, powers of the count of steps say.
constexpr std::int64_t block = 16384;

struct Block {
  std::size_t tensor, number;  // in the list
  std::int64_t at, n;          // elements of the tensor
};

std::int64_t elements(const Tensor& x) { return x.numel(); }
std::int64_t elements(const Stepped& x) { return x.param.numel(); }

std::size_t blocks_of(std::int64_t n) { return static_cast<std::size_t>((n + block - 1) / block); }

// The blocks of each tensor begin at multiples of `block` in it, so they are the same for any
// number of threads.
template <class Each, class F>
void each_block(std::span<const Each> list, F&& f) {
  std::int64_t total = 0;
  for (const Each& each : list) total += elements(each);
  parallel_for(total, 1, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;   // element of this tensor, in the list
    std::size_t earlier = 0;  // blocks
    for (std::size_t i = 0; i < list.size() && first < end; ++i) {
      const std::int64_t n = elements(list[i]);
      // Those that begin in this thread's part.
      std::size_t k = blocks_of(std::max<std::int64_t>(begin - first, 0));
      for (std::int64_t at = static_cast<std::int64_t>(k) * block; at < n && first + at < end;
           at += block) {
        f(Block{i, earlier + k++, at, std::min(block, n - at)});
      }
      first += n;
      earlier += blocks_of(n);
    }
  });
}

// x in the type that it is computed in, which may lie in `wide`.
template <class T>
const functor::computed<T>* widened(const T* x, functor::computed<T>* wide, std::int64_t n) {
  if constexpr (std::is_same_v<T, functor::computed<T>>) {
    return x;
  } else {
    width_loops<T>().widen(wide, x, n);
    return wide;
  }
}

// step(which, its gradient from element `at` on, at, how many), and the parameter rounded.
template <class T, class Step>
void each_part(std::span<const Stepped> list, Step&& step) {
  each_block(list, [&](const Block& part) {
    const Stepped& each = list[part.tensor];
    with_floating(each.grad.dtype(), [&]<class G>() {
      if constexpr (std::is_same_v<functor::computed<G>, T>) {
        T wide[block];
        step(each, widened(each.grad.data<G>() + part.at, wide, part.n), part.at, part.n);
        if constexpr (!std::is_same_v<G, T>) {
          width_loops<G>().narrow(each.rounded.data<G>() + part.at, each.param.data<T>() + part.at,
                                  part.n);
        }
      }
    });
  });
}

}  // namespace

bool sgd(std::span<const Stepped> list, const SgdStep& options) {
  return with_real(list.front().param.dtype(), [&]<class T>() {
    each_part<T>(list, [&](const Stepped& each, const T* g, std::int64_t at, std::int64_t n) {
      T* buffer = each.first.defined() ? each.first.data<T>() + at : nullptr;
      real_loops<T>().sgd(each.param.data<T>() + at, g, buffer, options, n);
    });
  });
}

bool adam(std::span<const Stepped> list, const AdamStep& options) {
  return with_real(list.front().param.dtype(), [&]<class T>() {
    each_part<T>(list, [&](const Stepped& each, const T* g, std::int64_t at, std::int64_t n) {
      real_loops<T>().adam(each.param.data<T>() + at, g, each.first.data<T>() + at,
                           each.second.data<T>() + at, options, n);
    });
  });
}

bool rule_step(std::span<const Stepped> list, const RuleStep& options) {
  return with_real(list.front().param.dtype(), [&]<class T>() {
    each_part<T>(list, [&](const Stepped& each, const T* g, std::int64_t at, std::int64_t n) {
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

bool all_floating(std::span<const Tensor> list) {
  return std::all_of(list.begin(), list.end(),
                     [](const Tensor& each) { return is_floating(each.dtype()); });
}

}  // namespace

bool power_sum(const Tensor& out, std::span<const Tensor> list, double power) {
  if (!all_floating(list)) return false;
  std::size_t blocks = 0;
  for (const Tensor& each : list) blocks += blocks_of(each.numel());
  // Put together in order: the same bits for any number of threads.
  std::vector<double> parts(blocks);
  each_block(list, [&](const Block& part) {
    with_floating(list[part.tensor].dtype(), [&]<class T>() {
      functor::computed<T> wide[block];
      const auto* x = widened(list[part.tensor].data<T>() + part.at, wide, part.n);
      parts[part.number] = part_of_power_sum(x, part.n, power);
    });
  });
  double total = 0;
  for (const double part : parts) {
    if (!std::isinf(power)) {
      total += part;
    } else if (part > total || std::isnan(part)) {
      total = part;
    }
    if (std::isnan(total)) break;
  }
  *out.data<double>() = total;
  return true;
}

bool scale_all(std::span<const Tensor> list, double factor, const Tensor& found) {
  if (!all_floating(list)) return false;
  std::atomic<bool> infinite = false;
  each_block(list, [&](const Block& part) {
    with_floating(list[part.tensor].dtype(), [&]<class T>() {
      T* const x = list[part.tensor].data<T>() + part.at;
      loops<T>().unary(Unary::mul_scalar, x, x, factor, part.n);
      if (!found.defined()) return;
      functor::computed<T> wide[block];
      const auto* value = widened(x, wide, part.n);
      // A finite sum says that all are; another may be of large numbers.
      if (std::isfinite(real_loops<functor::computed<T>>().sum(value, part.n))) return;
      if (!std::all_of(value, value + part.n, [](auto each) { return std::isfinite(each); })) {
        infinite.store(true, std::memory_order_relaxed);
      }
    });
  });
  if (infinite) *found.data<float>() = 1;
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
