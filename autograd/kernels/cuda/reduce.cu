// SPDX-License-Identifier: Apache-2.0
// Sums and places of extremes. The dimensions fall into those that are kept and those that are
// reduced. Where x runs along a reduced one, some threads side by side (one, some lanes, a warp, a
// block) share a result; where it runs along a kept one, neighbouring threads make neighbouring
// results. Where there are few results, each is made in parts, and a second launch adds those. The
// parts depend on the sizes alone, so a sum has the same bits at each run.
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/reduction.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/cuda/walk.h>

#include <algorithm>

namespace peal::cuda {

using functor::computed;

namespace {

template <class T, class Result>
struct Total {
  Result* out;
  double scale;
  __device__ void store(std::int64_t at, summed<T> total) const {
    if constexpr (std::is_same_v<Result, std::int64_t>) {
      out[at] = static_cast<std::int64_t>(total);
    } else {
      out[at] =
          static_cast<Result>(static_cast<computed<Result>>(static_cast<double>(total) * scale));
    }
  }
};

template <class T, class Result>
__global__ void sum_rows(Reduction all, int threads, bool packed, const T* x,
                         Total<T, Result> total) {
  using S = summed<T>;
  constexpr int N = pack_size<T>;
  const int mine = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t here = block / threads, count = all.results * all.parts;
  // All threads of a warp make as many rounds, since they reduce together.
  for (std::int64_t base = blockIdx.x * here; base < count; base += gridDim.x * here) {
    const std::int64_t number = base + static_cast<int>(threadIdx.x) / threads;
    S sum = 0;
    if (number < count) {
      const std::int64_t result = all.parts == 1 ? number : number / all.parts;
      const std::int64_t begin = (number - result * all.parts) * all.part;
      const std::int64_t end = begin + all.part < all.n ? begin + all.part : all.n;
      const T* from = x + all.first(result);
      if (packed) {
        for (std::int64_t r = begin + mine * N; r < end; r += threads * N) {
          const auto pack = *reinterpret_cast<const Pack<T, N>*>(from + r);
          for (int k = 0; k < N; ++k) sum += static_cast<S>(pack.at[k]);
        }
      } else {
        for (std::int64_t r = begin + mine; r < end; r += threads) {
          sum += static_cast<S>(from[all.offset(r)]);
        }
      }
    }
    sum = group_reduce(sum, Plus{}, S(0), threads);
    if (mine == 0 && number < count) total.store(number, sum);
  }
}

constexpr int columns = warp, lines = block / warp;

template <class T, class Result>
__global__ void sum_columns(Reduction all, std::int64_t tiles, const T* x, Total<T, Result> total) {
  using S = summed<T>;
  __shared__ S sums[lines][columns];
  const int column = static_cast<int>(threadIdx.x) % columns;
  const int line = static_cast<int>(threadIdx.x) / columns;
  const std::int64_t part = blockIdx.x / tiles,
                     result = (blockIdx.x - part * tiles) * columns + column;
  S sum = 0;
  if (result < all.results) {
    const std::int64_t begin = part * all.part;
    const std::int64_t end = begin + all.part < all.n ? begin + all.part : all.n;
    const T* from = x + all.first(result);
    for (std::int64_t r = begin + line; r < end; r += lines) {
      sum += static_cast<S>(from[all.offset(r)]);
    }
  }
  sums[line][column] = sum;
  __syncthreads();
  if (line == 0 && result < all.results) {
    for (int k = 1; k < lines; ++k) sum += sums[k][column];
    total.store(result * all.parts + part, sum);
  }
}

// Where it is run in parts, these go to a workspace first.
template <class T, class Result>
void sum_into(const Tensor& out, const Tensor& x, Reduction all, double scale) {
  using S = summed<T>;
  const T* from = pointer<const T>(x);
  constexpr int N = pack_size<T>;
  // x runs along what has step 1.
  const int last = all.reduced.dims - 1;
  const bool by_rows = all.reduced.step[0][last] == 1 || all.results == 1;
  bool packed =
      by_rows && all.reduced.dims == 1 && all.n % N == 0 && elements_before<T, N>(from) == 0;
  for (int d = 0; d < all.kept.dims; ++d) packed = packed && all.kept.step[0][d] % N == 0;
  const std::int64_t tiles = (all.results + columns - 1) / columns;
  const int threads = threads_for(all.n / (packed ? N : 1));
  if (by_rows) {
    const std::int64_t blocks = (all.results * threads + block - 1) / block;
    all.split(enough_blocks / blocks, 16 * block, N);
  } else {
    all.split(enough_blocks / tiles, 8 * lines, lines);
  }
  const auto run = [&]<class To>(To* to, double factor) {
    const Total<T, To> total{to, factor};
    if (by_rows) {
      const std::int64_t tasks = all.results * all.parts, here = block / threads;
      launch(x, std::min<std::int64_t>((tasks + here - 1) / here, std::int64_t{1} << 20), block,
             sum_rows<T, To>, all, threads, packed, from, total);
    } else {
      launch(x, tiles * all.parts, block, sum_columns<T, To>, all, tiles, from, total);
    }
  };
  if (all.parts == 1) return run(pointer<Result>(out), scale);
  const Tensor parts = Tensor::empty({all.results, all.parts}, dtype_of<S>, x.device());
  run(pointer<S>(parts), 1.0);
  sum_into<S, Result>(out, parts, reduction_of(parts.shape(), 2), scale);
}

}  // namespace

bool sum(const Tensor& out, const Tensor& x, std::uint32_t dims, double scale) {
  if (out.numel() == 0) return true;
  if (x.numel() == 0) return fill(out, 0);
  const Reduction all = reduction_of(x.shape(), dims);
  visit(x.dtype(), [&]<class T>() {
    using Result = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
    sum_into<T, Result>(out, x, all, scale);
  });
  return true;
}

namespace {

// The first place of what none beats; a NaN beats all.
template <class C>
struct Better {
  bool largest;
  __device__ Best<C> operator()(const Best<C>& a, const Best<C>& b) const {
    if (b.at < 0) return a;
    if (a.at < 0) return b;
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    if (a_is_nan != b_is_nan) return b_is_nan ? b : a;
    if (!a_is_nan && a.value != b.value) return (b.value > a.value) == largest ? b : a;
    return b.at < a.at ? b : a;
  }
};

template <class T>
struct Elements {
  const T* x;
  __device__ Best<computed<T>> read(std::int64_t at, std::int64_t place) const {
    return {static_cast<computed<T>>(x[at]), place};
  }
};

template <class C>
struct Found {
  const Best<C>* x;
  __device__ Best<C> read(std::int64_t at, std::int64_t) const { return x[at]; }
};

// Both are written, or one.
template <class C>
struct Writer {
  std::int64_t* out;
  Best<C>* parts;
  __device__ void store(std::int64_t at, const Best<C>& best) const {
    if (out != nullptr) {
      out[at] = best.at;
    } else {
      parts[at] = best;
    }
  }
};

template <class C, class Source>
__global__ void extremes(Reduction all, int threads, Better<C> better, Source source,
                         Writer<C> places) {
  const int mine = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t here = block / threads, count = all.results * all.parts;
  const Best<C> none{C(0), -1};
  for (std::int64_t base = blockIdx.x * here; base < count; base += gridDim.x * here) {
    const std::int64_t number = base + static_cast<int>(threadIdx.x) / threads;
    Best<C> best = none;
    if (number < count) {
      // Neighbouring threads make neighbouring results.
      const std::int64_t part = number / all.results, result = number - part * all.results;
      const std::int64_t begin = part * all.part;
      const std::int64_t end = begin + all.part < all.n ? begin + all.part : all.n;
      const std::int64_t first = all.first(result);
      for (std::int64_t r = begin + mine; r < end; r += threads) {
        best = better(best, source.read(first + all.offset(r), r));
      }
    }
    best = group_reduce(best, better, none, threads);
    if (mine == 0 && number < count) places.store(number, best);
  }
}

template <class C, class Source>
void find_extremes(On on, const Reduction& all, bool largest, const Source& source,
                   const Writer<C>& places) {
  // Threads of one result read side by side where it is a run.
  const bool run = all.reduced.step[0][all.reduced.dims - 1] == 1;
  const int threads = run || all.results * all.parts < 16 * block ? threads_for(all.part) : 1;
  const std::int64_t here = block / threads;
  launch(on, std::min<std::int64_t>((all.results * all.parts + here - 1) / here, 1 << 20), block,
         extremes<C, Source>, all, threads, Better<C>{largest}, source, places);
}

bool extreme_place(const Tensor& out, const Tensor& x, int dim, bool largest) {
  if (out.numel() == 0) return true;
  Reduction all = reduction_of(x.shape(), 1u << dim);
  all.split(enough_blocks / all.results, 16 * block, 1);
  visit(x.dtype(), [&]<class T>() {
    using C = computed<T>;
    std::int64_t* to = pointer<std::int64_t>(out);
    const Elements<T> elements{pointer<const T>(x)};
    if (all.parts == 1) {
      return find_extremes<C>(x, all, largest, elements, Writer<C>{to, nullptr});
    }
    const auto bytes = static_cast<std::int64_t>(sizeof(Best<C>)) * all.results * all.parts;
    const Tensor parts = Tensor::empty({bytes}, DType::u8, x.device());
    Best<C>* found = static_cast<Best<C>*>(parts.raw());
    find_extremes<C>(x, all, largest, elements, Writer<C>{nullptr, found});
    find_extremes<C>(x, reduction_of({all.parts, all.results}, 1), largest, Found<C>{found},
                     Writer<C>{to, nullptr});
  });
  return true;
}

}  // namespace

bool argmax(const Tensor& out, const Tensor& x, int dim) {
  return extreme_place(out, x, dim, true);
}

bool argmin(const Tensor& out, const Tensor& x, int dim) {
  return extreme_place(out, x, dim, false);
}

}  // namespace peal::cuda
