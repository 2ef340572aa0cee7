// SPDX-License-Identifier: Apache-2.0
// Sorting of rows by bitonic merges (Batcher, "Sorting networks and their applications", 1968), of
// pairs of an element and where it was: no two are equal, so the order is the same at each run.
// A row is filled up to a power of two with places past its end, which come last. Up to `chunk`
// elements are merged in shared memory; the longer merges go through the array, until what remains
// of one is a chunk again. And search in sorted rows, a thread an element.
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/places.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/order.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace peal::cuda {
namespace {

constexpr int chunk = 1024;  // elements in shared memory

template <class C>
struct Pairs {
  C* keys;
  int* places;
  std::int64_t rows, padded;  // padded: elements of a row here, a power of two
  int size;                   // of a row
  bool descending;
  // Whether b belongs before a.
  __device__ bool swapped(const C& a, int place_a, const C& b, int place_b) const {
    if (place_a >= size || place_b >= size) return place_b < place_a;
    if (comes_before(b, a, descending)) return true;
    return !comes_before(a, b, descending) && place_b < place_a;
  }
};

template <class C, class T>
struct LoadPairs {
  Pairs<C> pairs;
  Divisor padded;
  const T* x;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = padded.quotient(i), place = i - row * padded.by;
    pairs.keys[i] = place < pairs.size ? static_cast<C>(x[row * pairs.size + place]) : C(0);
    pairs.places[i] = static_cast<int>(place);
  }
};

// One step of the merge of runs of `run`: each element with the one `stride` further.
template <class C>
struct MergeStep {
  Pairs<C> pairs;
  std::int64_t run, stride;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t a = (i / stride) * 2 * stride + i % stride, b = a + stride;
    const bool up = ((a & (pairs.padded - 1)) & run) == 0;
    const C key_a = pairs.keys[a], key_b = pairs.keys[b];
    const int place_a = pairs.places[a], place_b = pairs.places[b];
    if (pairs.swapped(key_a, place_a, key_b, place_b) == up) {
      pairs.keys[a] = key_b;
      pairs.places[a] = place_b;
      pairs.keys[b] = key_a;
      pairs.places[b] = place_a;
    }
  }
};

// All steps within a chunk of the merges from runs of `first` to runs of `last`.
template <class C>
__global__ void merge_chunks(Pairs<C> pairs, std::int64_t chunks, int width, std::int64_t first,
                             std::int64_t last) {
  __shared__ C keys[chunk];
  __shared__ int places[chunk];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (std::int64_t task = blockIdx.x; task < chunks; task += gridDim.x) {
    const std::int64_t begin = task * width;
    for (int i = thread; i < width; i += threads) {
      keys[i] = pairs.keys[begin + i];
      places[i] = pairs.places[begin + i];
    }
    __syncthreads();
    for (std::int64_t run = first; run <= last; run *= 2) {
      const std::int64_t half = run / 2;
      for (int stride = static_cast<int>(half < width / 2 ? half : width / 2); stride > 0;
           stride /= 2) {
        for (int i = thread; i < width / 2; i += threads) {
          const int a = (i / stride) * 2 * stride + i % stride, b = a + stride;
          const bool up = (((begin + a) & (pairs.padded - 1)) & run) == 0;
          const C key_a = keys[a], key_b = keys[b];
          const int place_a = places[a], place_b = places[b];
          if (pairs.swapped(key_a, place_a, key_b, place_b) == up) {
            keys[a] = key_b;
            places[a] = place_b;
            keys[b] = key_a;
            places[b] = place_a;
          }
        }
        __syncthreads();
      }
    }
    for (int i = thread; i < width; i += threads) {
      pairs.keys[begin + i] = keys[i];
      pairs.places[begin + i] = places[i];
    }
    __syncthreads();
  }
}

template <class C>
void sort_pairs(On on, const Pairs<C>& pairs) {
  const std::int64_t all = pairs.rows * pairs.padded;
  const int width = static_cast<int>(std::min<std::int64_t>(chunk, pairs.padded));
  const std::int64_t chunks = all / width;
  const std::int64_t blocks = std::min<std::int64_t>(chunks, std::int64_t{1} << 16);
  const auto merge = [&](std::int64_t first, std::int64_t last) {
    launch(on, blocks, block, merge_chunks<C>, pairs, chunks, width, first, last);
  };
  merge(2, width);
  for (std::int64_t run = 2 * std::int64_t{width}; run <= pairs.padded; run *= 2) {
    for (std::int64_t stride = run / 2; stride >= width; stride /= 2) {
      for_each(on, all / 2, MergeStep<C>{pairs, run, stride});
    }
    merge(run, run);
  }
}

template <class C, class T>
struct StoreSorted {
  Pairs<C> pairs;
  Divisor wanted;  // of each row
  T* values;
  std::int64_t* indices;
  const T* x;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = wanted.quotient(i), at = i - row * wanted.by;
    const int place = pairs.places[row * pairs.padded + at];
    indices[i] = place;
    values[i] = x[row * pairs.size + place];
  }
};

template <class T>
struct Search {
  std::int64_t* out;
  const T *sorted, *x;
  std::int64_t size, step;
  Divisor n;
  bool right;
  __device__ void operator()(std::int64_t i) const {
    out[i] = place_in_order(sorted + n.quotient(i) * step, size, x[i], right);
  }
};

}  // namespace

bool sort(const Tensor& values, const Tensor& indices, const Tensor& x, bool descending) {
  const std::int64_t rows = x.size(0), n = x.size(1), k = values.size(1);
  if (n > std::numeric_limits<int>::max() / 2) return false;
  if (values.numel() == 0) return true;
  const auto padded = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
  const DType wide = is_low_precision(x.dtype()) ? DType::f32 : x.dtype();
  const Tensor keys = Tensor::empty({rows, padded}, wide, x.device());
  const Tensor places = Tensor::empty({rows, padded}, DType::i32, x.device());
  visit(x.dtype(), [&]<class T>() {
    using C = functor::computed<T>;
    const Pairs<C> pairs{pointer<C>(keys), pointer<int>(places), rows,
                         padded,           static_cast<int>(n),  descending};
    for_each(x, rows * padded, LoadPairs<C, T>{pairs, padded, pointer<const T>(x)});
    sort_pairs(x, pairs);
    for_each(x, rows * k,
             StoreSorted<C, T>{pairs, k, pointer<T>(values), pointer<std::int64_t>(indices),
                               pointer<const T>(x)});
  });
  return true;
}

bool search(const Tensor& out, const Tensor& sorted, const Tensor& x, bool right) {
  if (x.numel() == 0) return true;
  const std::int64_t size = sorted.size(-1);
  visit(x.dtype(), [&]<class T>() {
    for_each(x, x.numel(),
             Search<T>{pointer<std::int64_t>(out), pointer<const T>(sorted), pointer<const T>(x),
                       size, sorted.dim() == 1 ? 0 : size, x.size(1), right});
  });
  return true;
}

}  // namespace peal::cuda
