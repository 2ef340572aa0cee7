// SPDX-License-Identifier: Apache-2.0
// Rows of a normalisation: a warp or a block each, in registers where they fit; variance by a
// second pass over these. The gradients of weight and bias are sums over rows, in parts of rows
// first.
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/either.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>

namespace peal::cuda {

using functor::computed;

namespace {

constexpr std::int64_t warp_width = 1024;

template <int threads, class T>
__global__ void layer_norm_kernel(std::int64_t rows, std::int64_t width, T* y, Either<T> mean,
                                  Either<T> inverse, const T* x, Either<T> weight, Either<T> bias,
                                  double eps) {
  using C = computed<T>;
  constexpr int kept = threads == warp ? warp_width / warp : 16;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t here = block / threads;
  const C count = static_cast<C>(width);
  for (std::int64_t row = blockIdx.x * here + static_cast<int>(threadIdx.x) / threads; row < rows;
       row += gridDim.x * here) {
    const T* from = x + row * width;
    T* to = y + row * width;
    const bool fits = width <= kept * threads;
    C element[kept], total = 0, squares = 0;
    if (fits) {
      for (int k = 0; k < kept; ++k) {
        const std::int64_t i = thread + k * threads;
        element[k] = i < width ? static_cast<C>(from[i]) : C(0);
        total += element[k];
      }
    } else {
      for (std::int64_t i = thread; i < width; i += threads) total += static_cast<C>(from[i]);
    }
    const C centre = group_reduce(total, Plus{}, C(0), threads) / count;
    if (fits) {
      for (int k = 0; k < kept; ++k) {
        element[k] -= centre;
        if (thread + k * threads < width) squares += element[k] * element[k];
      }
    } else {
      for (std::int64_t i = thread; i < width; i += threads) {
        const C difference = static_cast<C>(from[i]) - centre;
        squares += difference * difference;
      }
    }
    const C variance = group_reduce(squares, Plus{}, C(0), threads) / count;
    const C scale = C(1) / std::sqrt(variance + static_cast<C>(eps));
    const auto put = [&](std::int64_t i, C difference) {
      to[i] = static_cast<T>(difference * scale * weight.read(i, C(1)) + bias.read(i, C(0)));
    };
    if (fits) {
      for (int k = 0; k < kept; ++k) {
        if (thread + k * threads < width) put(thread + k * threads, element[k]);
      }
    } else {
      for (std::int64_t i = thread; i < width; i += threads) {
        put(i, static_cast<C>(from[i]) - centre);
      }
    }
    if (thread == 0) {
      mean.write(row, centre);
      inverse.write(row, scale);
    }
  }
}

// With n = (x - mean) inverse and g = dy weight: dx = inverse (g - mean(g) - n mean(g n)).
template <int threads, class T>
__global__ void layer_norm_dx(std::int64_t rows, std::int64_t width, T* dx, const T* dy, const T* x,
                              Either<T> mean, Either<T> inverse, Either<T> weight) {
  using C = computed<T>;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t here = block / threads;
  for (std::int64_t row = blockIdx.x * here + static_cast<int>(threadIdx.x) / threads; row < rows;
       row += gridDim.x * here) {
    const T *from = x + row * width, *grad = dy + row * width;
    const C centre = mean.read(row, C(0)), scale = inverse.read(row, C(1));
    Pair<C> sums{C(0), C(0)};
    for (std::int64_t i = thread; i < width; i += threads) {
      const C g = static_cast<C>(grad[i]) * weight.read(i, C(1));
      sums.first += g;
      sums.second += g * (static_cast<C>(from[i]) - centre);
    }
    sums = group_reduce(sums, Plus{}, Pair<C>{C(0), C(0)}, threads);
    const C shift = sums.first / static_cast<C>(width);
    const C slope = scale * scale * sums.second / static_cast<C>(width);
    for (std::int64_t i = thread; i < width; i += threads) {
      const C g = static_cast<C>(grad[i]) * weight.read(i, C(1));
      dx[row * width + i] =
          static_cast<T>(scale * (g - shift - slope * (static_cast<C>(from[i]) - centre)));
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

std::int64_t blocks_of_rows(std::int64_t rows, int threads) {
  const std::int64_t here = block / threads;
  return std::min<std::int64_t>((rows + here - 1) / here, std::int64_t{1} << 20);
}

}  // namespace

bool layer_norm(const Tensor& y, const Tensor& mean, const Tensor& inverse, const Tensor& x,
                const Tensor& weight, const Tensor& bias, double eps) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  return with_floating(x.dtype(), [&]<class T>() {
    const auto run = [&](auto kernel, int threads) {
      launch(x, blocks_of_rows(rows, threads), block, kernel, rows, width, pointer<T>(y),
             Either<T>(mean), Either<T>(inverse), pointer<const T>(x), Either<T>(weight),
             Either<T>(bias), eps);
    };
    if (width <= warp_width) return run(layer_norm_kernel<warp, T>, warp);
    run(layer_norm_kernel<block, T>, block);
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
      if (width <= warp_width) {
        run(layer_norm_dx<warp, T>, warp);
      } else {
        run(layer_norm_dx<block, T>, block);
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
