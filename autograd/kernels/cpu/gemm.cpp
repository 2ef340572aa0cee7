// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/kernels/cpu/gemm.h>
#include <peal/autograd/kernels/cpu/held_signals.h>
#include <peal/autograd/kernels/cpu/panels.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/one_thread.h>

#include <dnnl.h>
#include <Eigen/Core>

#include <algorithm>

namespace peal::cpu {

template <>
void gemm(float* out, const float* a, const float* b, const Product& o, bool add) {
  const float* onto = add ? out : nullptr;
  if (multiply_by_dots(out, a, b, onto, o.step_out(), o) ||
      (belongs_in_panels(o) && multiply_in_panels(out, a, b, onto, o.step_out(), o))) {
    return;
  }
  const HeldSignals held;
  const dnnl_status_t status =
      dnnl_sgemm(o.transpose_a ? 'T' : 'N', o.transpose_b ? 'T' : 'N', o.m, o.n, o.k, 1.0f, a,
                 o.step_a(), b, o.step_b(), add ? 1.0f : 0.0f, out, o.step_out());
  PEAL_CHECK(status == dnnl_success, "matmul: oneDNN's sgemm failed with status ",
             static_cast<int>(status));
}

namespace {

void eigen_gemm(double* out, const double* a, const double* b, const Product& o, bool add) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Stride = Eigen::OuterStride<>;
  using Map = Eigen::Map<const Matrix, 0, Stride>;
  const OneThread guard;
  Eigen::Map<Matrix, 0, Stride> result(out, o.m, o.n, Stride(o.step_out()));
  const Map left(a, o.transpose_a ? o.k : o.m, o.transpose_a ? o.m : o.k, Stride(o.step_a()));
  const Map right(b, o.transpose_b ? o.n : o.k, o.transpose_b ? o.k : o.n, Stride(o.step_b()));
  if (!add) result.setZero();
  if (o.transpose_a && o.transpose_b) {
    result.noalias() += left.transpose() * right.transpose();
  } else if (o.transpose_a) {
    result.noalias() += left.transpose() * right;
  } else if (o.transpose_b) {
    result.noalias() += left * right.transpose();
  } else {
    result.noalias() += left * right;
  }
}

}  // namespace

// In parts of so many rows, or columns where rows are few, as Eigen's tiles divide: so which parts
// a thread has changes no bit.
template <>
void gemm(double* out, const double* a, const double* b, const Product& o, bool add) {
  constexpr std::int64_t rows = 16, columns = 48;
  const bool by_rows = o.m >= 2 * rows;
  const std::int64_t size = by_rows ? o.m : o.n, part = by_rows ? rows : columns;
  const std::int64_t parts = std::max<std::int64_t>(size / part, 1);
  // A product of two elements is about a quarter of the work on one elsewhere.
  const std::int64_t cost = o.m * o.n / parts * o.k / 4;
  parallel_for(parts, cost, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t begin = first * part, end = last == parts ? size : last * part;
    Product mine = o;
    mine.row_a = o.step_a(), mine.row_b = o.step_b(), mine.row_out = o.step_out();
    if (by_rows) {
      mine.m = end - begin;
      eigen_gemm(out + begin * o.step_out(), a + begin * (o.transpose_a ? 1 : o.step_a()), b, mine,
                 add);
    } else {
      mine.n = end - begin;
      eigen_gemm(out + begin, a, b + begin * (o.transpose_b ? o.step_b() : 1), mine, add);
    }
  });
}

template <class T>
void gemm(T* out, const T* a, const T* b, const Product& o, bool add) {
  for (std::int64_t i = 0; i < o.m; ++i) {
    for (std::int64_t j = 0; j < o.n; ++j) {
      T& sum = out[i * o.step_out() + j];
      T total = add ? sum : T(0);
      for (std::int64_t p = 0; p < o.k; ++p) {
        const T left = o.transpose_a ? a[p * o.step_a() + i] : a[i * o.step_a() + p];
        const T right = o.transpose_b ? b[j * o.step_b() + p] : b[p * o.step_b() + j];
        total = static_cast<T>(total + left * right);
      }
      sum = total;
    }
  }
}

template void gemm(std::int32_t*, const std::int32_t*, const std::int32_t*, const Product&, bool);
template void gemm(std::int64_t*, const std::int64_t*, const std::int64_t*, const Product&, bool);
template void gemm(std::uint8_t*, const std::uint8_t*, const std::uint8_t*, const Product&, bool);
template void gemm(std::int8_t*, const std::int8_t*, const std::int8_t*, const Product&, bool);

}  // namespace peal::cpu
