// SPDX-License-Identifier: Apache-2.0
// Normalisation by channel of [N, C, plane]. Sums over a channel are made in parts, which a warp a
// channel puts together: variances from the parts' means and squares (Chan, Golub and LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979), so that no
// large mean is squared. Where planes are small, neighbouring threads take neighbouring columns of
// [N, C plane], of which a channel has several.
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/either.h>
#include <peal/autograd/kernels/cuda/places.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/cuda/walk.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>

namespace peal::cuda {

using functor::computed;

// Mean, and the sum of squared distances from it.
template <class C>
struct Moments {
  C count, mean, squares;
};
template <class C>
__device__ Moments<C> operator+(Moments<C> a, Moments<C> b) {
  const C count = a.count + b.count;
  if (count == C(0)) return a;
  const C distance = b.mean - a.mean, share = b.count / count;
  return {count, a.mean + distance * share,
          a.squares + b.squares + distance * distance * a.count * share};
}
template <class C>
__device__ Moments<C> from_lane(Moments<C> value, int mask) {
  return {from_lane(value.count, mask), from_lane(value.mean, mask),
          from_lane(value.squares, mask)};
}

namespace {

constexpr int columns = warp, lines = block / warp;

// What is summed on its own: a channel, or a column of it; each in `parts` of `size` elements.
struct Sums {
  std::int64_t batch, channels;
  Divisor plane;
  bool by_columns;
  std::int64_t units, n, parts, size;  // n: elements of a unit
  std::int64_t tiles;                  // units, or squares of columns

  // Of planes that are whole packs of `pack` elements, unless it is 1.
  Sums(const Tensor& x, std::int64_t pack)
      : batch(x.size(0)), channels(x.size(1)), plane(x.size(2)) {
    by_columns = plane.by < 8;
    units = by_columns ? channels * plane.by : channels;
    n = by_columns ? batch : batch * plane.by;
    tiles = by_columns ? (units + columns - 1) / columns : units;
    // A part is read twice, so it should stay in a cache.
    const std::int64_t most = by_columns ? 1024 : 16384, least = by_columns ? 64 : 2048;
    const std::int64_t wanted =
        std::max((n + most - 1) / most, 1024 / std::max<std::int64_t>(tiles, 1));
    parts = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(n / least, 1));
    size = std::max<std::int64_t>((n + parts - 1) / parts, 1);
    size = (size + pack - 1) / pack * pack;
    parts = std::max<std::int64_t>((n + size - 1) / size, 1);
  }
  std::int64_t tasks() const { return tiles * parts; }
  std::int64_t results_a_channel() const {
    return units / std::max<std::int64_t>(channels, 1) * parts;
  }

  // Where element i of a unit is, or a pack of N of a channel, which has less than 2^31 elements.
  template <int N>
  __device__ std::int64_t at(std::int64_t unit, std::int64_t i) const {
    if (N == 1 && by_columns) return i * units + unit;
    const std::int64_t image =
        N == 1 ? plane.quotient(i) : plane.short_quotient(static_cast<int>(i));
    return (image * channels + unit) * plane.by + i - image * plane.by;
  }
};

// One task: the packs at first, first + step, ... below last of `unit`, for this thread; the sum of
// all threads of the unit by total().
struct Task {
  std::int64_t unit, part, first, last;
  int step, column;
  bool by_columns, any;

  __device__ Task(const Sums& sums, std::int64_t number, int pack) {
    by_columns = sums.by_columns;
    part = number / sums.tiles;
    const std::int64_t tile = number - part * sums.tiles;
    const int thread = static_cast<int>(threadIdx.x);
    column = thread % columns;
    unit = by_columns ? tile * columns + column : tile;
    any = unit < sums.units;
    step = by_columns ? lines : block * pack;
    first = part * sums.size + (by_columns ? thread / columns : thread * pack);
    last = (part + 1) * sums.size < sums.n ? (part + 1) * sums.size : sums.n;
    if (!any) last = first;
  }
  __device__ bool writes() const {
    return any && static_cast<int>(threadIdx.x) < (by_columns ? columns : 1);
  }
  template <class V>
  __device__ V total(V value, V none) const {
    if (!by_columns) return block_reduce(value, Plus{}, none);
    __shared__ V values[lines][columns];
    const int line = static_cast<int>(threadIdx.x) / columns;
    __syncthreads();
    values[line][column] = value;
    __syncthreads();
    V sum = values[0][column];
    for (int k = 1; k < lines; ++k) sum = sum + values[k][column];
    return sum;
  }
};

template <class T>
std::int64_t pack_of(const Tensor& x, const Tensor& other) {
  const auto on_boundary = [](const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.raw()) % 16 == 0;
  };
  const std::int64_t plane = x.size(2);
  const bool packs = plane >= 8 && plane % pack_size<T> == 0 && (x.size(0) * plane) >> 31 == 0;
  return packs && on_boundary(x) && on_boundary(other) ? pack_size<T> : 1;
}

template <int N, class T>
__device__ Pack<T, N> pack_at(const T* data, std::int64_t i) {
  return *reinterpret_cast<const Pack<T, N>*>(data + i);
}

template <int N, class T>
__global__ void moments_of_parts(Sums sums, Moments<computed<T>>* parts, const T* x) {
  using C = computed<T>;
  for (std::int64_t number = blockIdx.x; number < sums.tiles * sums.parts; number += gridDim.x) {
    const Task task(sums, number, N);
    C total = 0, squares = 0;
    for (std::int64_t i = task.first; i < task.last; i += task.step) {
      const auto pack = pack_at<N>(x, sums.at<N>(task.unit, i));
      for (int k = 0; k < N; ++k) total += static_cast<C>(pack.at[k]);
    }
    const std::int64_t begin = task.part * sums.size;
    const std::int64_t end = begin + sums.size < sums.n ? begin + sums.size : sums.n;
    const C count = static_cast<C>(end - begin);
    const C mean = task.total(total, C(0)) / count;
    for (std::int64_t i = task.first; i < task.last; i += task.step) {
      const auto pack = pack_at<N>(x, sums.at<N>(task.unit, i));
      for (int k = 0; k < N; ++k) {
        const C distance = static_cast<C>(pack.at[k]) - mean;
        squares += distance * distance;
      }
    }
    squares = task.total(squares, C(0));
    if (task.writes()) parts[task.unit * sums.parts + task.part] = {count, mean, squares};
  }
}

// A warp adds up the results of a channel; all threads of it get the sum.
template <class V>
__device__ V sum_of_channel(const V* parts, std::int64_t channel, std::int64_t each, V none) {
  V sum = none;
  for (std::int64_t i = static_cast<int>(threadIdx.x) % warp; i < each; i += warp) {
    sum = sum + parts[channel * each + i];
  }
  return warp_reduce(sum, Plus{});
}

template <class T>
__global__ void finish_moments(std::int64_t channels, std::int64_t each,
                               const Moments<computed<T>>* parts, Either<T> mean,
                               Either<T> variance) {
  using C = computed<T>;
  const std::int64_t channel = thread_number() / warp;
  if (channel >= channels) return;  // whole warps
  const auto sum = sum_of_channel(parts, channel, each, Moments<C>{C(0), C(0), C(0)});
  if (threadIdx.x % warp == 0) {
    mean.write(channel, sum.mean);
    variance.write(channel, sum.squares / sum.count);
  }
}

std::int64_t warps(std::int64_t channels) { return (channels * warp + block - 1) / block; }

Tensor workspace(const Tensor& x, std::int64_t count, std::size_t size) {
  return Tensor::empty({count * static_cast<std::int64_t>(size)}, DType::u8, x.device());
}

}  // namespace

bool channel_statistics(const Tensor& mean, const Tensor& variance, const Tensor& x) {
  return with_floating(x.dtype(), [&]<class T>() {
    using M = Moments<computed<T>>;
    const std::int64_t pack = pack_of<T>(x, x);
    const Sums sums(x, pack);
    const Tensor parts = workspace(x, sums.units * sums.parts, sizeof(M));
    launch(x, std::min<std::int64_t>(sums.tasks(), 1 << 20), block,
           pack == 1 ? moments_of_parts<1, T> : moments_of_parts<pack_size<T>, T>, sums,
           pointer<M>(parts), pointer<const T>(x));
    launch(x, warps(sums.channels), block, finish_moments<T>, sums.channels,
           sums.results_a_channel(), pointer<const M>(parts), Either<T>(mean), Either<T>(variance));
  });
}

namespace {

// The channel of each of some elements in a row.
struct Channels {
  Divisor plane, channels;
  // f(k, channel, whether it is another than that of k - 1) for N elements from `at` on.
  template <int N, class F>
  __device__ void over(std::int64_t at, const F& f) const {
    const std::int64_t row = plane.quotient(at);
    std::int64_t place = at - row * plane.by;
    std::int64_t channel = row - channels.quotient(row) * channels.by;
    for (int k = 0; k < N; ++k, ++place) {
      if (place == plane.by) {
        place = 0;
        channel = channel + 1 == channels.by ? 0 : channel + 1;
      }
      f(k, channel, k == 0 || place == 0);
    }
  }
};

template <class T>
struct Normalise {
  using TakesPacks = void;
  Channels channels;
  Either<T> mean, variance, weight, bias;
  computed<T> eps;
  template <int N>
  __device__ void pack(std::int64_t at, Pack<T, N>& y, const Pack<T, N>& x) const {
    using C = computed<T>;
    C centre = 0, scale = 0, shift = 0;
    channels.over<N>(at, [&](int k, std::int64_t channel, bool other) {
      if (other) {
        centre = mean.read(channel, C(0));
        scale = weight.read(channel, C(1)) / std::sqrt(variance.read(channel, C(1)) + eps);
        shift = bias.read(channel, C(0));
      }
      y.at[k] = static_cast<T>((static_cast<C>(x.at[k]) - centre) * scale + shift);
    });
  }
};

}  // namespace

bool batch_norm(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& variance,
                const Tensor& weight, const Tensor& bias, double eps) {
  return with_floating(x.dtype(), [&]<class T>() {
    const Normalise<T> f{{x.size(2), x.size(1)}, Either<T>(mean), Either<T>(variance),
                         Either<T>(weight),      Either<T>(bias), static_cast<computed<T>>(eps)};
    walk(x, x.numel(), f, Out<T>{pointer<T>(y)}, In<T>(pointer<T>(x)));
  });
}

namespace {

// The sums of dy and of dy (x - mean).
template <int N, class T>
__global__ void gradients_of_parts(Sums sums, Pair<computed<T>>* parts, const T* dy, const T* x,
                                   Either<T> mean) {
  using C = computed<T>;
  for (std::int64_t number = blockIdx.x; number < sums.tiles * sums.parts; number += gridDim.x) {
    const Task task(sums, number, N);
    Pair<C> sum{C(0), C(0)};
    if (task.any) {
      const C centre =
          mean.read(sums.by_columns ? sums.plane.quotient(task.unit) : task.unit, C(0));
      for (std::int64_t i = task.first; i < task.last; i += task.step) {
        const std::int64_t at = sums.at<N>(task.unit, i);
        const auto dys = pack_at<N>(dy, at), xs = pack_at<N>(x, at);
        for (int k = 0; k < N; ++k) {
          const C g = static_cast<C>(dys.at[k]);
          sum = sum + Pair<C>{g, g * (static_cast<C>(xs.at[k]) - centre)};
        }
      }
    }
    sum = task.total(sum, Pair<C>{C(0), C(0)});
    if (task.writes()) parts[task.unit * sums.parts + task.part] = sum;
  }
}

// dx = scale (dy - shift) - slope (x - centre)
template <class C>
struct Coefficients {
  C scale, shift, slope, centre;
};

template <class T>
__global__ void finish_gradients(std::int64_t channels, std::int64_t each, double count,
                                 const Pair<computed<T>>* parts, Either<T> dweight, Either<T> dbias,
                                 Coefficients<computed<T>>* coefficients, Either<T> mean,
                                 Either<T> variance, Either<T> weight, double eps, bool own) {
  using C = computed<T>;
  const std::int64_t channel = thread_number() / warp;
  if (channel >= channels) return;
  const auto sum = sum_of_channel(parts, channel, each, Pair<C>{C(0), C(0)});
  if (threadIdx.x % warp != 0) return;
  const C inverse = C(1) / std::sqrt(variance.read(channel, C(1)) + static_cast<C>(eps));
  const C scale = inverse * weight.read(channel, C(1)), n = static_cast<C>(count);
  dweight.write(channel, sum.second * inverse);
  dbias.write(channel, sum.first);
  coefficients[channel] = {scale, own ? sum.first / n : C(0),
                           own ? scale * inverse * inverse * sum.second / n : C(0),
                           mean.read(channel, C(0))};
}

template <class T>
struct NormaliseBackward {
  using TakesPacks = void;
  Channels channels;
  const Coefficients<computed<T>>* coefficients;
  template <int N>
  __device__ void pack(std::int64_t at, Pack<T, N>& dx, const Pack<T, N>& dy,
                       const Pack<T, N>& x) const {
    using C = computed<T>;
    Coefficients<C> c{C(0), C(0), C(0), C(0)};
    channels.over<N>(at, [&](int k, std::int64_t channel, bool other) {
      if (other) c = coefficients[channel];
      dx.at[k] = static_cast<T>(c.scale * (static_cast<C>(dy.at[k]) - c.shift) -
                                c.slope * (static_cast<C>(x.at[k]) - c.centre));
    });
  }
};

}  // namespace

// With n = (x - mean) inverse: dx = weight inverse (dy - mean(dy) - n mean(dy n)) where mean and
// variance came from x, else weight inverse dy.
bool batch_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& variance, const Tensor& weight, double eps, bool own) {
  return with_floating(x.dtype(), [&]<class T>() {
    using C = computed<T>;
    const std::int64_t pack = pack_of<T>(x, dy);
    const Sums sums(x, pack);
    const Tensor parts = workspace(x, sums.units * sums.parts, sizeof(Pair<C>));
    const Tensor coefficients = workspace(x, sums.channels, sizeof(Coefficients<C>));
    launch(x, std::min<std::int64_t>(sums.tasks(), 1 << 20), block,
           pack == 1 ? gradients_of_parts<1, T> : gradients_of_parts<pack_size<T>, T>, sums,
           pointer<Pair<C>>(parts), pointer<const T>(dy), pointer<const T>(x), Either<T>(mean));
    launch(x, warps(sums.channels), block, finish_gradients<T>, sums.channels,
           sums.results_a_channel(), static_cast<double>(sums.batch * sums.plane.by),
           pointer<const Pair<C>>(parts), Either<T>(dweight), Either<T>(dbias),
           pointer<Coefficients<C>>(coefficients), Either<T>(mean), Either<T>(variance),
           Either<T>(weight), eps, own);
    if (!dx.defined()) return;
    const NormaliseBackward<T> f{{x.size(2), x.size(1)},
                                 pointer<const Coefficients<C>>(coefficients)};
    walk(x, x.numel(), f, Out<T>{pointer<T>(dx)}, In<T>(pointer<T>(dy)), In<T>(pointer<T>(x)));
  });
}

namespace {

// A thread a channel, the parts in their order.
template <class C>
__global__ void merge_parts(std::int64_t channels, std::int64_t many, C* merged, const C* parts) {
  const std::int64_t c = thread_number(), row = 2 * channels + 1;
  if (c >= channels) return;
  Moments<C> sum{C(0), C(0), C(0)};
  for (std::int64_t part = 0; part < many; ++part) {
    const C* const at = parts + part * row;
    const C count = at[2 * channels];
    if (count > C(0)) sum = sum + Moments<C>{count, at[c], count * at[channels + c]};
  }
  merged[c] = sum.mean;
  merged[channels + c] = sum.squares / sum.count;
  merged[2 * channels + c] = sum.squares / (sum.count - C(1));
  if (c == 0) merged[3 * channels] = sum.count;
}

template <class T>
__global__ void merged_coefficients(std::int64_t channels, Coefficients<computed<T>>* coefficients,
                                    const computed<T>* merged, const computed<T>* sums,
                                    Either<T> weight, double eps) {
  using C = computed<T>;
  const std::int64_t c = thread_number();
  if (c >= channels) return;
  const C inverse = C(1) / std::sqrt(merged[channels + c] + static_cast<C>(eps));
  const C scale = inverse * weight.read(c, C(1)), n = merged[3 * channels];
  coefficients[c] = {scale, sums[c] / n, scale * inverse * sums[channels + c] / n, merged[c]};
}

}  // namespace

bool merge_statistics(const Tensor& merged, const Tensor& parts) {
  const std::int64_t channels = (parts.size(1) - 1) / 2;
  return with_real(parts.dtype(), [&]<class C>() {
    launch(parts, (channels + block - 1) / block, block, merge_parts<C>, channels, parts.size(0),
           pointer<C>(merged), pointer<const C>(parts));
  });
}

bool merged_batch_norm_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                                const Tensor& merged, const Tensor& sums, const Tensor& weight,
                                double eps) {
  const std::int64_t channels = x.size(1);
  return with_floating(x.dtype(), [&]<class T>() {
    using C = computed<T>;
    const Tensor coefficients = workspace(x, channels, sizeof(Coefficients<C>));
    launch(x, (channels + block - 1) / block, block, merged_coefficients<T>, channels,
           pointer<Coefficients<C>>(coefficients), pointer<const C>(merged), pointer<const C>(sums),
           Either<T>(weight), eps);
    const NormaliseBackward<T> f{{x.size(2), x.size(1)},
                                 pointer<const Coefficients<C>>(coefficients)};
    walk(x, x.numel(), f, Out<T>{pointer<T>(dx)}, In<T>(pointer<T>(dy)), In<T>(pointer<T>(x)));
  });
}

}  // namespace peal::cuda
