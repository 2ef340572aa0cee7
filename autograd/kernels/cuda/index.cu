// SPDX-License-Identifier: Apache-2.0
// Reading and adding by index. index_add adds what has the same index in its order, in one thread,
// so it has the CPU's bits. scatter_add does where its columns fill the device, or are short, or
// the context wants determinism; else it adds by atomic operations in f32 and f64, in an order that
// changes from run to run.
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/element.h>
#include <peal/autograd/kernels/cuda/inside.h>
#include <peal/autograd/kernels/cuda/places.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/geometry.h>

#include <algorithm>
#include <limits>
#include <type_traits>

namespace peal::cuda {

using functor::computed;

namespace {

template <class E>
struct Select {
  E* out;
  const E* x;
  const std::int64_t* index;
  Divisor inner, count;
  std::int64_t size;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = inner.quotient(i), outer = count.quotient(row);
    const std::int64_t from = outer * size + inside(index[row - outer * count.by], size);
    out[i] = x[from * inner.by + i - row * inner.by];
  }
};

template <class E>
struct Gather {
  E* out;
  const E* x;
  const std::int64_t* index;
  Divisor inner, part;  // part: elements of out after the outer dimensions
  std::int64_t size;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t outer = part.quotient(i), column = i - inner.quotient(i) * inner.by;
    out[i] = x[(outer * size + inside(index[i], size)) * inner.by + column];
  }
};

}  // namespace

bool index_select(const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  if (out.numel() == 0) return true;
  const Around from(x.shape(), dim), to(out.shape(), dim);
  const std::size_t row = size_of(x.dtype()) * static_cast<std::size_t>(to.inner);
  const auto fits = [&](std::size_t bytes) {
    return row % bytes == 0 && reinterpret_cast<std::uintptr_t>(x.raw()) % bytes == 0 &&
           reinterpret_cast<std::uintptr_t>(out.raw()) % bytes == 0;
  };
  std::size_t unit = size_of(x.dtype());
  while (unit < 16 && fits(2 * unit)) unit *= 2;
  with_bytes(unit, [&]<class E>() {
    const auto width = static_cast<std::int64_t>(row / unit);
    for_each(x, to.outer * to.size * width,
             Select<E>{static_cast<E*>(out.raw()), static_cast<const E*>(x.raw()),
                       pointer<const std::int64_t>(index), width, to.size, from.size});
  });
  return true;
}

bool gather(const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  const Around from(x.shape(), dim), to(out.shape(), dim);
  with_element(size_of(x.dtype()), [&]<class E>() {
    for_each(
        x, out.numel(),
        Gather<E>{static_cast<E*>(out.raw()), static_cast<const E*>(x.raw()),
                  pointer<const std::int64_t>(index), to.inner, to.size * to.inner, from.size});
  });
  return true;
}

namespace {

// The first place of each index, and how often it comes: neither depends on the order.
struct FindFirst {
  const std::int64_t* index;
  std::int64_t size;
  int *first, *count;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t at = inside(index[i], size);
    atomicMin(first + at, static_cast<int>(i));
    atomicAdd(count + at, 1);
  }
};

constexpr int each_thread = 4;  // columns

// A block looks at one place j and some of the columns. It has work where no place before has the
// same index: then it goes on from j to the last that has, and adds them up.
template <class T>
__global__ void add_rows(T* out, const T* x, const std::int64_t* index, const int* first,
                         const int* count, std::int64_t places, std::int64_t size,
                         std::int64_t columns, Divisor inner, std::int64_t tiles) {
  using C = summed<T>;
  __shared__ unsigned found[block / warp];
  __shared__ int list[block];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % warp;
  for (std::int64_t task = blockIdx.x; task < places * tiles; task += gridDim.x) {
    const std::int64_t place = task / tiles, tile = task - place * tiles;
    const std::int64_t row = inside(index[place], size);
    if (first[row] != place) continue;  // the same for all threads
    std::int64_t from[each_thread], to[each_thread];
    C sum[each_thread];
    for (int k = 0; k < each_thread; ++k) {
      const std::int64_t column = (tile * each_thread + k) * block + thread;
      from[k] = -1;
      to[k] = 0;
      sum[k] = 0;
      if (column >= columns) continue;
      const std::int64_t outer = inner.quotient(column), at = column - outer * inner.by;
      from[k] = outer * places * inner.by + at;
      to[k] = (outer * size + row) * inner.by + at;
      sum[k] = static_cast<C>(out[to[k]]);
    }
    int left = count[row];
    for (std::int64_t base = place; left > 0; base += block) {
      const bool same = base + thread < places && inside(index[base + thread], size) == row;
      const unsigned mask = __ballot_sync(whole_warp, same ? 1 : 0);
      if (lane == 0) found[thread / warp] = mask;
      __syncthreads();
      int before = __popc(mask & ((1u << lane) - 1)), here = 0;
      for (int k = 0; k < block / warp; ++k) {
        if (k < thread / warp) before += __popc(found[k]);
        here += __popc(found[k]);
      }
      if (same) list[before] = thread;
      __syncthreads();
      for (int k = 0; k < each_thread; ++k) {
        if (from[k] < 0) continue;
        const T* source = x + from[k] + base * inner.by;
        int m = 0;
        for (; m + 3 < here; m += 4) {  // four loads on their way at once
          const T a = source[list[m] * inner.by], b = source[list[m + 1] * inner.by];
          const T c = source[list[m + 2] * inner.by], d = source[list[m + 3] * inner.by];
          sum[k] += static_cast<C>(a);
          sum[k] += static_cast<C>(b);
          sum[k] += static_cast<C>(c);
          sum[k] += static_cast<C>(d);
        }
        for (; m < here; ++m) sum[k] += static_cast<C>(source[list[m] * inner.by]);
      }
      left -= here;  // the next round's first barrier comes before it writes the list
    }
    for (int k = 0; k < each_thread; ++k) {
      if (from[k] >= 0) out[to[k]] = static_cast<T>(sum[k]);
    }
  }
}

}  // namespace

bool index_add(const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  const Around from(x.shape(), dim), to(out.shape(), dim);
  if (from.size > std::numeric_limits<int>::max()) return false;
  return with_number(out.dtype(), [&]<class T>() {
    if (x.numel() == 0) return;
    const Tensor first = Tensor::empty({to.size}, DType::i32, x.device());
    const Tensor count = Tensor::zeros({to.size}, DType::i32, x.device());
    fill(first, std::numeric_limits<std::int32_t>::max());
    const std::int64_t* places = pointer<const std::int64_t>(index);
    for_each(x, from.size, FindFirst{places, to.size, pointer<int>(first), pointer<int>(count)});
    const std::int64_t columns = to.outer * to.inner;
    const std::int64_t tiles = (columns + block * each_thread - 1) / (block * each_thread);
    launch(x, std::min<std::int64_t>(from.size * tiles, std::int64_t{1} << 20), block, add_rows<T>,
           pointer<T>(out), pointer<const T>(x), places, pointer<const int>(first),
           pointer<const int>(count), from.size, to.size, columns, to.inner, tiles);
  });
}

namespace {

template <class T>
struct ScatterColumn {
  T* out;
  const T* x;
  const std::int64_t* index;
  Divisor inner;
  std::int64_t from_size, to_size;
  __device__ void operator()(std::int64_t i) const {
    using C = computed<T>;
    const std::int64_t outer = inner.quotient(i), column = i - outer * inner.by;
    const std::int64_t first = outer * from_size * inner.by + column;
    T* to = out + outer * to_size * inner.by + column;
    for (std::int64_t k = 0; k < from_size; ++k) {
      const std::int64_t at = first + k * inner.by;
      T& sum = to[inside(index[at], to_size) * inner.by];
      sum = static_cast<T>(static_cast<C>(sum) + static_cast<C>(x[at]));
    }
  }
};

template <class T>
struct ScatterEach {
  T* out;
  const T* x;
  const std::int64_t* index;
  Divisor inner, part;
  std::int64_t to_size;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t outer = part.quotient(i), column = i - inner.quotient(i) * inner.by;
    // The types that atomicAdd() has; of i64 the sum of the same bits.
    using Bits = std::conditional_t<std::is_integral_v<T>, unsigned long long, T>;
    Bits* sum = reinterpret_cast<Bits*>(
        out + (outer * to_size + inside(index[i], to_size)) * inner.by + column);
    atomicAdd(sum, static_cast<Bits>(x[i]));
  }
};

}  // namespace

bool scatter_add(const Tensor& out, const Tensor& x, const Tensor& index, int dim) {
  const bool small = out.dtype() != DType::i64 && !is_floating(out.dtype());
  if (out.dtype() == DType::boolean) return false;
  if (is_low_precision(out.dtype()) || small) {  // sums in f32, rounded once, or in i64
    const DType sums = small ? DType::i64 : DType::f32;
    const Tensor wide = Tensor::empty(out.shape(), sums, out.device());
    const Tensor wide_x = Tensor::empty(x.shape(), sums, x.device());
    return cast(wide, out) && cast(wide_x, x) && scatter_add(wide, wide_x, index, dim) &&
           cast(out, wide);
  }
  const Around from(x.shape(), dim), to(out.shape(), dim);
  const std::int64_t columns = from.outer * from.inner;
  const std::int64_t* places = pointer<const std::int64_t>(index);
  const auto add = [&]<class T>() {
    if (x.numel() == 0) return;
    if (columns >= 4096 || from.size <= 64 || context().deterministic) {
      for_each(x, columns,
               ScatterColumn<T>{pointer<T>(out), pointer<const T>(x), places, from.inner, from.size,
                                to.size});
    } else {
      for_each(x, x.numel(),
               ScatterEach<T>{pointer<T>(out), pointer<const T>(x), places, from.inner,
                              from.size * from.inner, to.size});
    }
  };
  if (out.dtype() != DType::i64) return with_real(out.dtype(), add);
  add.template operator()<std::int64_t>();
  return true;
}

}  // namespace peal::cuda
