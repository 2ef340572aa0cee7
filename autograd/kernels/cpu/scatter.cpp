// SPDX-License-Identifier: Apache-2.0
// Writing by index. Threads split what lies before the indexed dimension, so that of several
// elements for one place the last stays.
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/geometry.h>
#include <peal/autograd/kernels/order.h>

#include <algorithm>

namespace peal::cpu {
namespace {

// f(element of out, element of x) for all of x, in order.
template <class T, class F>
void each_scattered(const Tensor& out, const Tensor& x, const Tensor& index, int dim, F&& f) {
  const Around from(x.shape(), dim), to(out.shape(), dim);
  const std::int64_t* wanted = index.data<std::int64_t>();
  const T* source = x.data<T>();
  T* target = out.data<T>();
  const std::int64_t part = from.size * from.inner;
  parallel_for(from.outer, part, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * part; i < end * part; ++i) {
      f(target[(i / part * to.size + wanted[i]) * to.inner + i % to.inner], source[i]);
    }
  });
}

}  // namespace

bool scatter(Scatter how, const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  if (how == Scatter::set) {
    visit(out.dtype(), [&]<class T>() {
      each_scattered<T>(out, x, index, dim, [](T& to, T from) { to = from; });
    });
    return true;
  }
  return with_number(out.dtype(), [&]<class T>() {
    using C = functor::computed<T>;
    each_scattered<T>(out, x, index, dim, [how](T& to, T from) {
      const C before = static_cast<C>(to), other = static_cast<C>(from);
      if (how == Scatter::multiply) {
        to = static_cast<T>(static_cast<C>(before * other));
      } else if (is_nan(other) || (how == Scatter::maximum ? other > before : other < before)) {
        to = from;
      }
    });
  });
}

bool index_copy(const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  const Around from(x.shape(), dim), to(out.shape(), dim);
  const std::int64_t* wanted = index.data<std::int64_t>();
  visit(out.dtype(), [&]<class T>() {
    const T* source = x.data<T>();
    T* target = out.data<T>();
    parallel_for(from.outer, from.size * from.inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin * from.size; i < end * from.size; ++i) {
        const std::int64_t row = i / from.size * to.size + wanted[i % from.size];
        std::copy_n(source + i * from.inner, from.inner, target + row * to.inner);
      }
    });
  });
  return true;
}

}  // namespace peal::cpu
