// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/gemm.h>
#include <peal/autograd/kernels/cpu/panels.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/short_copy.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

namespace peal::cpu {
namespace {

template <class T>
void multiply_onto_bias(T* out, const T* a, const T* b, const T* bias, const Product& o) {
  if constexpr (std::is_same_v<T, float>) {
    if (multiply_in_panels(out, a, b, bias, 0, o) || multiply_by_dots(out, a, b, bias, 0, o)) {
      return;
    }
  }
  for (std::int64_t row = 0; row < o.m; ++row) short_copy(out + row * o.n, bias, o.n);
  if (o.k > 0) gemm(out, a, b, o, true);
}

}  // namespace

bool matmul(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b,
            const Tensor& bias) {
  const Product o{out.size(0), out.size(1), a.size(transpose_a ? 0 : 1), transpose_a, transpose_b};
  return with_number(out.dtype(), [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T>) {
      T* to = out.data<T>();
      if (out.numel() == 0) return;
      if (bias.defined()) {
        multiply_onto_bias(to, a.data<T>(), b.data<T>(), bias.data<T>(), o);
      } else if (o.k > 0) {
        gemm(to, a.data<T>(), b.data<T>(), o, false);
      } else {
        std::fill_n(to, out.numel(), T(0));
      }
    }
  });
}

bool batched_matmul(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a,
                    bool transpose_b) {
  const auto matrix = [](const Tensor& x, std::int64_t i) {
    return x.detach({x.size(1), x.size(2)}, i * x.size(1) * x.size(2));
  };
  const std::int64_t cost = out.size(1) * out.size(2) * a.size(transpose_a ? 1 : 2) / 16 + 1;
  if (out.dtype() == DType::boolean) return false;
  const auto products = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      matmul(matrix(out, i), matrix(a, i), matrix(b, i), transpose_a, transpose_b, {});
    }
  };
  // A batch that does not fill the team: one product after another, each by all threads.
  if (out.size(0) < omp_get_max_threads()) {
    products(0, out.size(0));
  } else {
    parallel_for(out.size(0), cost, products);
  }
  return true;
}

}  // namespace peal::cpu
