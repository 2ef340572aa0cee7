// SPDX-License-Identifier: Apache-2.0
// Rows of a normalisation: a warp or a block each. Rows that fit into registers and are whole packs
// of 16 bytes are read once, others again for the variance and the result. The gradients of weight
// and bias are sums over rows, in parts of rows first.
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/either.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/cuda/walk.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>

namespace peal::cuda {

using functor::computed;

namespace {

constexpr std::int64_t warp_width = 1024;

// Elements that a thread keeps.
template <int threads>
constexpr int kept = threads == warp ? warp_width / warp : 16;

template <int N, class T>
__device__ Pack<T, N> pack_at(const T* data, std::int64_t i) {
  return *reinterpret_cast<const Pack<T, N>*>(data + i);
}

// N elements from i on: which type they have is asked once.
template <int N, class T, class C = computed<T>>
__device__ Pack<C, N> pack_at(const Either<T>& from, std::int64_t i, C otherwise) {
  Pack<C, N> to;
  if (from.wide != nullptr) {
    constexpr int few = N < pack_size<C> ? N : pack_size<C>;
    for (int k = 0; k < N; k += few) {
      const auto part = pack_at<few>(static_cast<const C*>(from.wide), i + k);
      for (int j = 0; j < few; ++j) to.at[k + j] = part.at[j];
    }
  } else if (from.narrow != nullptr) {
    const auto pack = pack_at<N>(static_cast<const T*>(from.narrow), i);
    for (int k = 0; k < N; ++k) to.at[k] = static_cast<C>(pack.at[k]);
  } else {
    for (int k = 0; k < N; ++k) to.at[k] = otherwise;
  }
  return to;
}

// REQUIRES: rows are whole packs, of at most kept<threads> elements a thread.
template <int threads, class T>
__global__ void layer_norm_packs(std::int64_t rows, int width, T* y, Either<T> mean,
                                 Either<T> inverse, const T* x, Either<T> weight, Either<T> bias,
                                 double eps) {
  using C = computed<T>;
  constexpr int N = pack_size<T>, packs = kept<threads> / N;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t here = block / threads;
  const C count = static_cast<C>(width);
  for (std::int64_t row = blockIdx.x * here + static_cast<int>(threadIdx.x) / threads; row < rows;
       row += gridDim.x * here) {
    C element[packs][N], total = 0, squares = 0;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const int i = (thread + p * threads) * N;
      if (i >= width) continue;
      const auto pack = pack_at<N>(x + row * width, i);
      for (int k = 0; k < N; ++k) total += element[p][k] = static_cast<C>(pack.at[k]);
    }
    const C centre = group_reduce(total, Plus{}, C(0), threads) / count;
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      if ((thread + p * threads) * N >= width) continue;
      for (int k = 0; k < N; ++k) {
        element[p][k] -= centre;
        squares += element[p][k] * element[p][k];
      }
    }
    const C variance = group_reduce(squares, Plus{}, C(0), threads) / count;
    const C scale = C(1) / std::sqrt(variance + static_cast<C>(eps));
#pragma unroll
    for (int p = 0; p < packs; ++p) {
      const int i = (thread + p * threads) * N;
      if (i >= width) continue;
      const auto slope = pack_at<N>(weight, i, C(1)), shift = pack_at<N>(bias, i, C(0));
      Pack<T, N> to;
      for (int k = 0; k < N; ++k) {
        to.at[k] = static_cast<T>(element[p][k] * scale * slope.at[k] + shift.at[k]);
      }
      *reinterpret_cast<Pack<T, N>*>(y + row * width + i) = to;
    }
    if (thread == 0) {
      mean.write(row, centre);
      inverse.write(row, scale);
    }
  }
}

template <int threads, class T>
__global__ void layer_norm_kernel(std::int64_t rows, std::int64_t width, T* y, Either<T> mean,
                                  Either<T> inverse, const T* x, Either<T> weight, Either<T> bias,
                                  double eps) {
  using C = computed<T>;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t here = block / threads;
  const C count = static_cast<C>(width);
  for (std::int64_t row = blockIdx.x * here + static_cast<int>(threadIdx.x) / threads; row < rows;
       row += gridDim.x * here) {
    const T* from = x + row * width;
    T* to = y + row * width;
    C total = 0, squares = 0;
    for (std::int64_t i = thread; i < width; i += threads) total += static_cast<C>(from[i]);
    const C centre = group_reduce(total, Plus{}, C(0), threads) / count;
    for (std::int64_t i = thread; i < width; i += threads) {
      const C difference = static_cast<C>(from[i]) - centre;
      squares += difference * difference;
    }
    const C variance = group_reduce(squares, Plus{}, C(0), threads) / count;
    const C scale = C(1) / std::sqrt(variance + static_cast<C>(eps));
    for (std::int64_t i = thread; i < width; i += threads) {
      const C difference = static_cast<C>(from[i]) - centre;
      to[i] = static_cast<T>(difference * scale * weight.read(i, C(1)) + bias.read(i, C(0)));
    }
    if (thread == 0) {
      mean.write(row, centre);
      inverse.write(row, scale);
    }
  }
}

// With n = (x - mean) inverse and g = dy weight: dx = inverse (g - mean(g) - n mean(g n)).
// N elements at a time, of which rows are whole numbers.
template <int threads, int N, class T>
__global__ void layer_norm_dx(std::int64_t rows, std::int64_t width, T* dx, const T* dy, const T* x,
                              Either<T> mean, Either<T> inverse, Either<T> weight) {
  using C = computed<T>;
  const std::int64_t first = static_cast<int>(threadIdx.x) % threads * N;
  const std::int64_t here = block / threads;
  for (std::int64_t row = blockIdx.x * here + static_cast<int>(threadIdx.x) / threads; row < rows;
       row += gridDim.x * here) {
    const T *from = x + row * width, *grad = dy + row * width;
    const C centre = mean.read(row, C(0)), scale = inverse.read(row, C(1));
    Pair<C> sums{C(0), C(0)};
    for (std::int64_t i = first; i < width; i += threads * N) {
      const auto xs = pack_at<N>(from, i), dys = pack_at<N>(grad, i);
      const auto ws = pack_at<N>(weight, i, C(1));
      for (int k = 0; k < N; ++k) {
        const C g = static_cast<C>(dys.at[k]) * ws.at[k];
        sums.first += g;
        sums.second += g * (static_cast<C>(xs.at[k]) - centre);
      }
    }
    sums = group_reduce(sums, Plus{}, Pair<C>{C(0), C(0)}, threads);
    const C shift = sums.first / static_cast<C>(width);
    const C slope = scale * scale * sums.second / static_cast<C>(width);
    for (std::int64_t i = first; i < width; i += threads * N) {
      const auto xs = pack_at<N>(from, i), dys = pack_at<N>(grad, i);
      const auto ws = pack_at<N>(weight, i, C(1));
      Pack<T, N> to;
      for (int k = 0; k < N; ++k) {
        const C g = static_cast<C>(dys.at[k]) * ws.at[k];
        to.at[k] =
            static_cast<T>(scale * (g - shift - slope * (static_cast<C>(xs.at[k]) - centre)));
      }
      *reinterpret_cast<Pack<T, N>*>(dx + row * width + i) = to;
    }
  }
}

constexpr int columns = warp, lines = block / warp;

// parts [parts, width]: of rows part * size to (part + 1) * size, the sums of dy n and of dy.
template <class T>
__global__ void layer_norm_parts(std::int64_t rows, std::int64_t width, std::int64_t tiles,
                                 std::int64_t size, Pair<computed<T>>* sums, const T* dy,
                                 const T* x, Either<T> mean, Either<T> inverse) {
  using C = computed<T>;
  __shared__ Pair<C> shared[lines][columns];
  const int column = static_cast<int>(threadIdx.x) % columns;
  const int line = static_cast<int>(threadIdx.x) / columns;
  const std::int64_t part = blockIdx.x / tiles, i = (blockIdx.x - part * tiles) * columns + column;
  const std::int64_t end = (part + 1) * size < rows ? (part + 1) * size : rows;
  Pair<C> sum{C(0), C(0)};
  if (i < width) {
    for (std::int64_t row = part * size + line; row < end; row += lines) {
      const C g = static_cast<C>(dy[row * width + i]);
      const C n =
          (static_cast<C>(x[row * width + i]) - mean.read(row, C(0))) * inverse.read(row, C(1));
      sum = sum + Pair<C>{g * n, g};
    }
  }
  shared[line][column] = sum;
  __syncthreads();
  if (line == 0 && i < width) {
    for (int k = 1; k < lines; ++k) sum = sum + shared[k][column];
    sums[part * width + i] = sum;
  }
}

template <class T>
struct AddParts {
  std::int64_t width, parts;
  const Pair<computed<T>>* sums;
  Either<T> dweight, dbias;
  __device__ void operator()(std::int64_t i) const {
    Pair<computed<T>> sum = sums[i];
    for (std::int64_t part = 1; part < parts; ++part) sum = sum + sums[part * width + i];
    dweight.write(i, sum.first);
    dbias.write(i, sum.second);
  }
};

// Whether rows of x, and what goes with them, are whole packs on boundaries of 16 bytes.
template <class... Tensors>
bool in_packs(const Tensor& x, const Tensors&... others) {
  const auto on_boundary = [](const Tensor& tensor) {
    return !tensor.defined() || reinterpret_cast<std::uintptr_t>(tensor.raw()) % 16 == 0;
  };
  const std::size_t row = static_cast<std::size_t>(x.size(1)) * size_of(x.dtype());
  return row % 16 == 0 && on_boundary(x) && (on_boundary(others) && ...);
}

std::int64_t blocks_of_rows(std::int64_t rows, int threads) {
  const std::int64_t here = block / threads;
  return std::min<std::int64_t>((rows + here - 1) / here, std::int64_t{1} << 20);
}

}  // namespace

bool layer_norm(const Tensor& y, const Tensor& mean, const Tensor& inverse, const Tensor& x,
                const Tensor& weight, const Tensor& bias, double eps) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  return with_floating(x.dtype(), [&]<class T>() {
    const auto run = [&](auto kernel, auto row, int threads) {
      launch(x, blocks_of_rows(rows, threads), block, kernel, rows, row, pointer<T>(y),
             Either<T>(mean), Either<T>(inverse), pointer<const T>(x), Either<T>(weight),
             Either<T>(bias), eps);
    };
    if (width <= kept<block> * block && in_packs(x, y, weight, bias)) {
      const int row = static_cast<int>(width);
      if (width <= warp_width) return run(layer_norm_packs<warp, T>, row, warp);
      return run(layer_norm_packs<block, T>, row, block);
    }
    if (width <= warp_width) return run(layer_norm_kernel<warp, T>, width, warp);
    run(layer_norm_kernel<block, T>, width, block);
  });
}

bool layer_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& inverse, const Tensor& weight) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  return with_floating(x.dtype(), [&]<class T>() {
    if (dx.defined()) {
      const auto run = [&](auto kernel, int threads) {
        launch(x, blocks_of_rows(rows, threads), block, kernel, rows, width, pointer<T>(dx),
               pointer<const T>(dy), pointer<const T>(x), Either<T>(mean), Either<T>(inverse),
               Either<T>(weight));
      };
      constexpr int N = pack_size<T>;
      const bool packs = in_packs(x, dx, dy, weight);
      if (width <= warp_width) {
        run(packs ? layer_norm_dx<warp, N, T> : layer_norm_dx<warp, 1, T>, warp);
      } else {
        run(packs ? layer_norm_dx<block, N, T> : layer_norm_dx<block, 1, T>, block);
      }
    }
    if (!dweight.defined() && !dbias.defined()) return;
    using Sum = Pair<computed<T>>;
    const std::int64_t tiles = (width + columns - 1) / columns;
    std::int64_t parts =
        std::clamp<std::int64_t>(1024 / tiles, 1, std::max<std::int64_t>(rows / 64, 1));
    const std::int64_t size = std::max<std::int64_t>((rows + parts - 1) / parts, 1);
    parts = std::max<std::int64_t>((rows + size - 1) / size, 1);
    const Tensor sums = Tensor::empty({parts * width * static_cast<std::int64_t>(sizeof(Sum))},
                                      DType::u8, x.device());
    Sum* all = static_cast<Sum*>(sums.raw());
    launch(x, tiles * parts, block, layer_norm_parts<T>, rows, width, tiles, size, all,
           pointer<const T>(dy), pointer<const T>(x), Either<T>(mean), Either<T>(inverse));
    for_each(x, width, AddParts<T>{width, parts, all, Either<T>(dweight), Either<T>(dbias)});
  });
}

}  // namespace peal::cuda
