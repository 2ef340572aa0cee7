// SPDX-License-Identifier: Apache-2.0
// Losses of rows of classes. log_probabilities, and dloss, may be in the type that dx is computed
// in.
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/inside.h>
#include <peal/autograd/kernels/cuda/places.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/cuda/walk.h>
#include <peal/autograd/kernels/dispatch.h>

#include <cmath>

namespace peal::cuda {

using functor::computed;

namespace {

// A warp a row where targets are smoothed, which needs the sum of the row; else a thread.
template <class L>
__global__ void nll_kernel(std::int64_t rows, std::int64_t width, int threads, ClassTargets classes,
                           computed<L>* loss, const L* log_probabilities,
                           const std::int64_t* target) {
  using C = computed<L>;
  const int lane = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t here = block / threads;
  for (std::int64_t base = blockIdx.x * here; base < rows; base += gridDim.x * here) {
    const std::int64_t row = base + static_cast<int>(threadIdx.x) / threads;
    const bool counts = row < rows && target[row] != classes.ignored;
    const L* logs = log_probabilities + row * width;
    C total = 0;
    if (counts && threads > 1) {
      for (std::int64_t i = lane; i < width; i += threads) total += static_cast<C>(logs[i]);
    }
    total = warp_reduce(total, Plus{}, threads);
    if (lane != 0 || row >= rows) continue;
    C result = 0;
    if (counts) {
      const C even = -total / static_cast<C>(width),
              sharp = -static_cast<C>(logs[inside(target[row], width)]);
      const C smoothing = static_cast<C>(classes.smoothing);
      result =
          threads == 1 ? sharp : static_cast<C>(1 - classes.smoothing) * sharp + smoothing * even;
    }
    loss[row] = result;
  }
}

}  // namespace

bool nll(const Tensor& loss, const Tensor& log_probabilities, const Tensor& target,
         const ClassTargets& classes) {
  const std::int64_t rows = loss.numel(), width = log_probabilities.size(-1);
  const int threads = classes.smoothing == 0 ? 1 : warp;
  return with_floating(log_probabilities.dtype(), [&]<class L>() {
    launch(loss, blocks_for(rows * threads), block, nll_kernel<L>, rows, width, threads, classes,
           pointer<computed<L>>(loss), pointer<const L>(log_probabilities),
           pointer<const std::int64_t>(target));
  });
}

namespace {

// The gradient by classes, of which a thread makes several in a row.
template <class T>
struct RowGradient {
  Divisor width;
  const std::int64_t* target;
  const void* dloss;
  bool wide;  // dloss is computed<T>, and not T
  bool each;
  ClassTargets classes;
  computed<T> scale;

  __device__ computed<T> gradient(std::int64_t row) const {
    const std::int64_t i = each ? row : 0;
    if (wide) return static_cast<const computed<T>*>(dloss)[i];
    return static_cast<computed<T>>(static_cast<const T*>(dloss)[i]);
  }

  // f(k, factor of the row, whether it counts, whether k is its class) for N elements from `at` on.
  template <int N, class F>
  __device__ void over(std::int64_t at, const F& f) const {
    std::int64_t row = width.quotient(at), column = at - row * width.by;
    std::int64_t wanted = target[row];
    const auto share =
        classes.counted == nullptr ? scale : static_cast<computed<T>>(scale / *classes.counted);
    computed<T> factor = gradient(row) * share;
    for (int k = 0; k < N; ++k, ++column) {
      if (column == width.by) {
        column = 0;
        wanted = target[++row];
        if (each) factor = gradient(row) * share;
      }
      f(k, factor, wanted != classes.ignored, column == wanted);
    }
  }
};

template <class T>
struct NllBackward {
  using TakesPacks = void;
  RowGradient<T> rows;
  template <int N>
  __device__ void pack(std::int64_t at, Pack<T, N>& dx) const {
    using C = computed<T>;
    rows.template over<N>(at, [&](int k, C factor, bool counts, bool wanted) {
      dx.at[k] = static_cast<T>(counts && wanted ? -factor : C(0));
    });
  }
};

template <class T, class L>
struct CrossEntropyBackward {
  using TakesPacks = void;
  RowGradient<T> rows;
  computed<T> even, sharp;  // what smoothing leaves to each class, and to the right one
  template <int N>
  __device__ void pack(std::int64_t at, Pack<T, N>& dx, const Pack<L, N>& logs) const {
    using C = computed<T>;
    rows.template over<N>(at, [&](int k, C factor, bool counts, bool wanted) {
      C slope = std::exp(static_cast<C>(logs.at[k])) - even;
      if (wanted) slope -= sharp;
      dx.at[k] = static_cast<T>(counts ? slope * factor : C(0));
    });
  }
};

template <class T>
RowGradient<T> gradient_of(const Tensor& dx, const Tensor& target, const Tensor& dloss,
                           const ClassTargets& classes, double scale) {
  return {dx.size(-1),
          pointer<const std::int64_t>(target),
          dloss.raw(),
          dloss.dtype() != dx.dtype(),
          dloss.dim() != 0,
          classes,
          static_cast<computed<T>>(scale)};
}

}  // namespace

bool nll_backward(const Tensor& dx, const Tensor& dloss, const Tensor& target,
                  const ClassTargets& classes, double scale) {
  return with_floating(dx.dtype(), [&]<class T>() {
    walk(dx, dx.numel(), NllBackward<T>{gradient_of<T>(dx, target, dloss, classes, scale)},
         Out<T>{pointer<T>(dx)});
  });
}

bool cross_entropy_backward(const Tensor& dx, const Tensor& log_probabilities, const Tensor& target,
                            const Tensor& dloss, const ClassTargets& classes, double scale) {
  return with_floating(dx.dtype(), [&]<class T>() {
    using C = computed<T>;
    const auto run = [&]<class L>() {
      const CrossEntropyBackward<T, L> f{
          gradient_of<T>(dx, target, dloss, classes, scale),
          static_cast<C>(classes.smoothing / static_cast<double>(dx.size(-1))),
          static_cast<C>(1 - classes.smoothing)};
      walk(dx, dx.numel(), f, Out<T>{pointer<T>(dx)}, In<L>(pointer<L>(log_probabilities)));
    };
    if (log_probabilities.dtype() == dx.dtype()) return run.template operator()<T>();
    run.template operator()<C>();
  });
}

}  // namespace peal::cuda
