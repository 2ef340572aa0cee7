// SPDX-License-Identifier: Apache-2.0
// Reading and adding by index. Threads split what lies before the indexed dimension, so that sums
// over equal indices have one order.
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/short_copy.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/geometry.h>

namespace peal::cpu {
namespace {

// What is added up in its own type.
template <class F>
bool with_sums(DType dtype, F&& f) {
  return with_real(dtype, f) || with_integer(dtype, f);
}

template <class T>
void add_onto(T& sum, T x) {
  sum = static_cast<T>(sum + x);
}

}  // namespace

bool index_select(const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  const Around from(x.shape(), dim), to(out.shape(), dim);
  const std::int64_t* wanted = index.data<std::int64_t>();
  visit(x.dtype(), [&]<class T>() {
    const T* source = x.data<T>();
    T* target = out.data<T>();
    parallel_for(to.outer * to.size, to.inner, [&](std::int64_t begin, std::int64_t end) {
      // Rows are short, mostly: a division each would take longer than they do.
      std::int64_t outer = begin / to.size, at = begin % to.size;
      for (std::int64_t i = begin; i < end; ++i, ++at) {
        if (at == to.size) {
          at = 0;
          ++outer;
        }
        const std::int64_t row = outer * from.size + wanted[at];
        short_copy(target + i * to.inner, source + row * to.inner, to.inner);
      }
    });
  });
  return true;
}

bool index_add(const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  const Around from(x.shape(), dim), to(out.shape(), dim);
  const std::int64_t* wanted = index.data<std::int64_t>();
  return with_sums(out.dtype(), [&]<class T>() {
    const T* source = x.data<T>();
    T* target = out.data<T>();
    parallel_for(from.outer, from.size * from.inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t outer = begin; outer < end; ++outer) {
        for (std::int64_t i = 0; i < from.size; ++i) {
          const T* run = source + (outer * from.size + i) * from.inner;
          T* sums = target + (outer * to.size + wanted[i]) * to.inner;
          for (std::int64_t k = 0; k < from.inner; ++k) add_onto(sums[k], run[k]);
        }
      }
    });
  });
}

bool gather(const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  const Around from(x.shape(), dim), to(out.shape(), dim);
  const std::int64_t* wanted = index.data<std::int64_t>();
  visit(x.dtype(), [&]<class T>() {
    const T* source = x.data<T>();
    T* target = out.data<T>();
    parallel_for(to.outer, to.size * to.inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin * to.size * to.inner; i < end * to.size * to.inner; ++i) {
        const std::int64_t outer = i / (to.size * to.inner);
        target[i] = source[(outer * from.size + wanted[i]) * to.inner + i % to.inner];
      }
    });
  });
  return true;
}

bool scatter_add(const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  const Around from(x.shape(), dim), to(out.shape(), dim);
  const std::int64_t* wanted = index.data<std::int64_t>();
  return with_sums(out.dtype(), [&]<class T>() {
    const T* source = x.data<T>();
    T* target = out.data<T>();
    const std::int64_t part = from.size * from.inner;
    parallel_for(from.outer, part, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin * part; i < end * part; ++i) {
        add_onto(target[(i / part * to.size + wanted[i]) * to.inner + i % to.inner], source[i]);
      }
    });
  });
}

}  // namespace peal::cpu
