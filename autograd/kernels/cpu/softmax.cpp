// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/softmax_row.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <cmath>
#include <type_traits>

namespace peal::cpu {
namespace {

struct Rows {
  explicit Rows(const Tensor& x) : width(x.size(-1)), count(width == 0 ? 0 : x.numel() / width) {}
  std::int64_t width, count;
};

// f(row) over all rows.
template <class F>
void each_row(const Rows& rows, F&& f) {
  parallel_for(rows.count, 8 * rows.width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace

bool softmax(const Tensor& y, const Tensor& x) {
  const Rows rows(x);
  return with_real(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    each_row(rows, [&](std::int64_t row) {
      softmax_row(to + row * rows.width, from + row * rows.width, rows.width);
    });
  });
}

bool softmax_backward(const Tensor& dx, const Tensor& y, const Tensor& dy) {
  const Rows rows(y);
  return with_real(y.dtype(), [&]<class T>() {
    T* to = dx.data<T>();
    const T *saved = y.data<T>(), *grad = dy.data<T>();
    each_row(rows, [&](std::int64_t row) {
      const std::int64_t at = row * rows.width;
      softmax_row_backward(to + at, saved + at, grad + at, rows.width);
    });
  });
}

bool log_softmax(const Tensor& y, const Tensor& x) {
  const Rows rows(x);
  return with_real(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    each_row(rows, [&](std::int64_t row) {
      const T* in = from + row * rows.width;
      T* out = to + row * rows.width;
      const T largest = real_loops<T>().max(in, rows.width);
      double total = 0;
      if constexpr (std::is_same_v<T, float>) {
        total = math_loops().exp_shifted(out, in, largest, rows.width);
      } else {
        for (std::int64_t i = 0; i < rows.width; ++i) total += std::exp(in[i] - largest);
      }
      // In two steps: the sum of a large maximum and a small logarithm would lose the latter.
      const T log_total = static_cast<T>(std::log(total));
      for (std::int64_t i = 0; i < rows.width; ++i) out[i] = (in[i] - largest) - log_total;
    });
  });
}

bool log_softmax_backward(const Tensor& dx, const Tensor& y, const Tensor& dy) {
  const Rows rows(y);
  return with_real(y.dtype(), [&]<class T>() {
    T* to = dx.data<T>();
    const T *saved = y.data<T>(), *grad = dy.data<T>();
    each_row(rows, [&](std::int64_t row) {
      const std::int64_t at = row * rows.width;
      const T total = static_cast<T>(real_loops<T>().sum(grad + at, rows.width));
      T* out = to + at;
      if constexpr (std::is_same_v<T, float>) {
        math_loops().exp_shifted(out, saved + at, 0, rows.width);
      } else {
        for (std::int64_t i = 0; i < rows.width; ++i) out[i] = std::exp(saved[at + i]);
      }
      for (std::int64_t i = 0; i < rows.width; ++i) out[i] = grad[at + i] - out[i] * total;
    });
  });
}

}  // namespace peal::cpu
