// SPDX-License-Identifier: Apache-2.0
// Writing by index. Of several elements for one place the last is found first, so that it alone is
// written; what multiplies and compares goes along each line in order.
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/element.h>
#include <peal/autograd/kernels/cuda/inside.h>
#include <peal/autograd/kernels/cuda/places.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/geometry.h>
#include <peal/autograd/kernels/order.h>

#include <limits>

namespace peal::cuda {
namespace {

// Where element i of x goes in out, of which index says the place along the dimension.
struct Target {
  const std::int64_t* index;
  Divisor inner, part;  // part: elements of x after the outer dimensions
  std::int64_t size;    // of out, along the dimension
  __device__ std::int64_t of(std::int64_t i) const {
    const std::int64_t outer = part.quotient(i), column = i - inner.quotient(i) * inner.by;
    return (outer * size + inside(index[i], size)) * inner.by + column;
  }
};

struct FindLast {
  Target target;
  int* last;
  __device__ void operator()(std::int64_t i) const {
    atomicMax(last + target.of(i), static_cast<int>(i));
  }
};

template <class E>
struct WriteLast {
  Target target;
  const int* last;
  E* out;
  const E* x;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t at = target.of(i);
    if (last[at] == static_cast<int>(i)) out[at] = x[i];
  }
};

template <class T>
struct ScatterLine {
  Scatter how;
  T* out;
  const T* x;
  const std::int64_t* index;
  Divisor inner;
  std::int64_t from_size, to_size;
  __device__ void operator()(std::int64_t i) const {
    using C = functor::computed<T>;
    const std::int64_t outer = inner.quotient(i), column = i - outer * inner.by;
    const std::int64_t first = outer * from_size * inner.by + column;
    T* to = out + outer * to_size * inner.by + column;
    for (std::int64_t k = 0; k < from_size; ++k) {
      const std::int64_t at = first + k * inner.by;
      T& sum = to[inside(index[at], to_size) * inner.by];
      const C before = static_cast<C>(sum), other = static_cast<C>(x[at]);
      if (how == Scatter::multiply) {
        sum = static_cast<T>(static_cast<C>(before * other));
      } else if (is_nan(other) || (how == Scatter::maximum ? other > before : other < before)) {
        sum = x[at];
      }
    }
  }
};

}  // namespace

bool scatter(Scatter how, const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  const Around from(x.shape(), dim), to(out.shape(), dim);
  if (x.numel() > std::numeric_limits<int>::max()) return false;
  const std::int64_t* places = pointer<const std::int64_t>(index);
  if (how != Scatter::set) {
    return with_number(out.dtype(), [&]<class T>() {
      for_each(x, from.outer * from.inner,
               ScatterLine<T>{how, pointer<T>(out), pointer<const T>(x), places, from.inner,
                              from.size, to.size});
    });
  }
  const Tensor last = Tensor::empty(out.shape(), DType::i32, out.device());
  if (out.numel() > 0 && !fill(last, -1)) return false;
  const Target target{places, from.inner, from.size * from.inner, to.size};
  for_each(x, x.numel(), FindLast{target, pointer<int>(last)});
  with_element(size_of(out.dtype()), [&]<class E>() {
    for_each(x, x.numel(),
             WriteLast<E>{target, pointer<const int>(last), static_cast<E*>(out.raw()),
                          static_cast<const E*>(x.raw())});
  });
  return true;
}

namespace {

struct FindLastRow {
  const std::int64_t* index;
  std::int64_t size;
  int* last;
  __device__ void operator()(std::int64_t i) const {
    atomicMax(last + inside(index[i], size), static_cast<int>(i));
  }
};

template <class E>
struct WriteRows {
  const std::int64_t* index;
  Divisor inner, count;
  std::int64_t size;
  const int* last;
  E* out;
  const E* x;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = inner.quotient(i), outer = count.quotient(row);
    const std::int64_t place = row - outer * count.by, at = inside(index[place], size);
    if (last[at] == static_cast<int>(place)) {
      out[(outer * size + at) * inner.by + i - row * inner.by] = x[i];
    }
  }
};

}  // namespace

bool index_copy(const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  const Around from(x.shape(), dim), to(out.shape(), dim);
  if (from.size > std::numeric_limits<int>::max()) return false;
  if (x.numel() == 0) return true;
  const Tensor last = Tensor::empty({to.size}, DType::i32, out.device());
  if (!fill(last, -1)) return false;
  const std::int64_t* places = pointer<const std::int64_t>(index);
  for_each(x, from.size, FindLastRow{places, to.size, pointer<int>(last)});
  with_element(size_of(out.dtype()), [&]<class E>() {
    for_each(x, x.numel(),
             WriteRows<E>{places, from.inner, from.size, to.size, pointer<const int>(last),
                          static_cast<E*>(out.raw()), static_cast<const E*>(x.raw())});
  });
  return true;
}

}  // namespace peal::cuda
