// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers, norms and factors over lists of tensors (list.h).
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/list.h>
#include <peal/autograd/kernels/cuda/steps.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <cmath>
#include <limits>
#include <vector>

namespace peal::cuda {

using functor::computed;

namespace {

// `rounded`, where there is one, is the parameter in low precision whose master p is.
template <class T>
struct SgdPlain {
  functor::Sgd<T> f;
  template <class G, class... Rounded>
  __device__ void operator()(std::int64_t, T& p, const G& g, Rounded&... rounded) const {
    p = f.plain(p, static_cast<T>(g));
    ((rounded = static_cast<Rounded>(p)), ...);
  }
};

template <class T>
struct SgdMomentum {
  functor::Sgd<T> f;
  template <class G, class... Rounded>
  __device__ void operator()(std::int64_t, T& p, const G& g, T& buffer, Rounded&... rounded) const {
    p = f.with_momentum(p, static_cast<T>(g), buffer);
    ((rounded = static_cast<Rounded>(p)), ...);
  }
};

template <class T>
struct AdamEach {
  functor::Adam<T> f;
  template <class G, class... Rounded>
  __device__ void operator()(std::int64_t, T& p, const G& g, T& m, T& v,
                             Rounded&... rounded) const {
    p = f(p, static_cast<T>(g), m, v);
    ((rounded = static_cast<Rounded>(p)), ...);
  }
};

}  // namespace

bool sgd(std::span<const Stepped> list, const SgdStep& options) {
  return with_types(list, [&]<class T, class G>() {
    if (list.front().first.defined()) {
      step_all<T, G, InOut<T>>(list, live<SgdMomentum<T>>(options), &Stepped::param, &Stepped::grad,
                               &Stepped::first);
    } else {
      step_all<T, G>(list, live<SgdPlain<T>>(options), &Stepped::param, &Stepped::grad);
    }
  });
}

bool adam(std::span<const Stepped> list, const AdamStep& options) {
  return with_types(list, [&]<class T, class G>() {
    step_all<T, G, InOut<T>, InOut<T>>(list, live<AdamEach<T>>(options), &Stepped::param,
                                       &Stepped::grad, &Stepped::first, &Stepped::second);
  });
}

namespace {

// Those of the list that have the dtype.
template <class T>
std::vector<Tensor> of_type(std::span<const Tensor> list) {
  std::vector<Tensor> some;
  for (const Tensor& each : list) {
    if (each.dtype() == dtype_of<T>) some.push_back(each);
  }
  return some;
}

// run<T>(tensors) for each floating type in the list; false where there are others.
template <class Run>
bool by_type(std::span<const Tensor> list, Run&& run) {
  const auto one = [&]<class T>() {
    const std::vector<Tensor> some = of_type<T>(list);
    if (!some.empty()) run.template operator()<T>(some);
    return some.size();
  };
  const std::size_t served = one.template operator()<float>() + one.template operator()<double>() +
                             one.template operator()<Half>() + one.template operator()<BFloat16>();
  return served == list.size();
}

auto address_of(const std::vector<Tensor>& list) {
  return [&list](std::size_t i) {
    return std::pair{list[i].numel(), std::array<void*, 1>{list[i].raw()}};
  };
}

template <class T>
struct Scale {
  computed<T> factor;
  float* found;
  __device__ void operator()(std::int64_t, T& x) const {
    x = static_cast<T>(static_cast<computed<T>>(x) * factor);
    const auto result = static_cast<computed<T>>(x);
    // All that write, write the same.
    if (found != nullptr && !(result - result == computed<T>(0))) *found = 1;
  }
};

// By what lies on the device.
template <class T>
struct ScaleBy {
  const double* factor;
  __device__ void operator()(std::int64_t, T& x) const {
    x = static_cast<T>(static_cast<computed<T>>(x) * static_cast<computed<T>>(*factor));
  }
};

// Sums of |x|^p, or the largest |x|, among which a NaN wins.
struct Powers {
  double power;
  __device__ double of(double x) const {
    if (power == 2) return x * x;
    const double size = std::abs(x);
    return power == 1 || std::isinf(power) ? size : std::pow(size, power);
  }
  __device__ double operator()(double a, double b) const {
    if (!std::isinf(power)) return a + b;
    if (a != a) return a;
    return b != b || b > a ? b : a;
  }
};

// The total of each block's chunk. In f64: there is one operation for four bytes at most.
template <class T>
__global__ void power_parts(List<1> list, Powers powers, double* parts) {
  constexpr int N = pack_size<T>;
  const int number = static_cast<int>(blockIdx.x), tensor = list.tensor_of(number);
  const std::int64_t begin = (number - list.first_block[tensor]) * chunk, size = list.size[tensor];
  const std::int64_t end = begin + chunk < size ? begin + chunk : size;
  const T* x = static_cast<const T*>(list.at[tensor][0]);
  double total = 0;
  std::int64_t single = begin;
  if (list.packed[tensor]) {
    single = begin + (end - begin) / N * N;
    for (std::int64_t at = begin + static_cast<int>(threadIdx.x) * N; at < single;
         at += block * N) {
      const auto pack = *reinterpret_cast<const Pack<T, N>*>(x + at);
      for (int k = 0; k < N; ++k) {
        total = powers(total, powers.of(static_cast<double>(static_cast<computed<T>>(pack.at[k]))));
      }
    }
  }
  for (std::int64_t at = single + static_cast<int>(threadIdx.x); at < end; at += block) {
    total = powers(total, powers.of(static_cast<double>(static_cast<computed<T>>(x[at]))));
  }
  total = block_reduce(total, powers, 0.0);
  if (threadIdx.x == 0) parts[number] = total;
}

__global__ void power_total(std::int64_t n, Powers powers, const double* parts, double* out) {
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += block) total = powers(total, parts[i]);
  total = block_reduce(total, powers, 0.0);
  if (threadIdx.x == 0) *out = total;
}

// The norm of a sum of powers, and what gradients of that norm are multiplied by.
__global__ void clip_factor(double power, double most, double* norm, double* factor) {
  if (threadIdx.x != 0) return;
  if (!std::isinf(power)) *norm = std::pow(*norm, 1 / power);
  const double wanted = most / (*norm + 1e-6);
  *factor = wanted >= 1 ? 1 : wanted;
}

}  // namespace

bool power_sum(const Tensor& out, std::span<const Tensor> list, double power) {
  std::int64_t blocks = 0;
  for (const Tensor& each : list) blocks += (each.numel() + chunk - 1) / chunk;
  const Tensor parts = Tensor::empty({blocks}, DType::f64, out.device());
  double* next = pointer<double>(parts);
  const bool served = by_type(list, [&]<class T>(const std::vector<Tensor>& some) {
    in_lists<1>(some.size(), {sizeof(T)}, address_of(some), [&](const List<1>& part) {
      launch(out, part.first_block[part.count], block, power_parts<T>, part, Powers{power}, next);
      next += part.first_block[part.count];
    });
  });
  launch(out, 1, block, power_total, blocks, Powers{power}, pointer<const double>(parts),
         pointer<double>(out));
  return served;
}

bool scale_all(std::span<const Tensor> list, double factor, const Tensor& found) {
  return by_type(list, [&]<class T>(const std::vector<Tensor>& some) {
    const Scale<T> f{static_cast<computed<T>>(factor), pointer<float>(found)};
    walk_list<InOut<T>>(some.front(), some.size(), f, address_of(some));
  });
}

bool clip_norm(const Tensor& norm, std::span<const Tensor> list, double power, double most) {
  if (!power_sum(norm, list, power)) return false;
  const Tensor factor = Tensor::empty({}, DType::f64, norm.device());
  launch(norm, 1, 32, clip_factor, power, most, pointer<double>(norm), pointer<double>(factor));
  return by_type(list, [&]<class T>(const std::vector<Tensor>& some) {
    walk_list<InOut<T>>(some.front(), some.size(), ScaleBy<T>{pointer<const double>(factor)},
                        address_of(some));
  });
}

}  // namespace peal::cuda
