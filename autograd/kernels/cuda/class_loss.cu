// SPDX-License-Identifier: Apache-2.0
// Losses of rows of classes. log_probabilities, kept and dloss may be in the type that dx is
// computed in.
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/inside.h>
#include <peal/autograd/kernels/cuda/places.h>
#include <peal/autograd/kernels/cuda/softmax_row.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/cuda/walk.h>
#include <peal/autograd/kernels/dispatch.h>

#include <cmath>

namespace peal::cuda {

using functor::computed;

namespace {

template <class L>
__global__ void nll_kernel(std::int64_t rows, std::int64_t width, std::int64_t ignored,
                           computed<L>* loss, const L* log_probabilities,
                           const std::int64_t* target) {
  for (std::int64_t row = thread_number(); row < rows; row += thread_count()) {
    const L* logs = log_probabilities + row * width;
    loss[row] = target[row] == ignored
                    ? computed<L>(0)
                    : -static_cast<computed<L>>(logs[inside(target[row], width)]);
  }
}

template <int threads, class T>
__global__ void cross_entropy_kernel(std::int64_t rows, std::int64_t width, ClassTargets classes,
                                     computed<T>* loss, computed<T>* kept, const T* logits,
                                     const std::int64_t* target) {
  using C = computed<T>;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t here = block / threads;
  for (std::int64_t row = blockIdx.x * here + static_cast<int>(threadIdx.x) / threads; row < rows;
       row += gridDim.x * here) {
    const RowElements<T> element{logits + row * width};
    C result = 0;
    RowSum<C> of{0, 0};
    if (target[row] != classes.ignored) {  // alike in all threads of the row
      of = row_sum<threads, C>(width, thread, element);
      // From the largest: beside a large one the logarithm would be lost.
      const C logarithm = std::log(of.total);
      result = logarithm - (element(inside(target[row], width)) - of.largest);
      if (classes.smoothing != 0) {
        C sum = 0;
        for (std::int64_t i = thread; i < width; i += threads) sum += element(i) - of.largest;
        sum = group_reduce(sum, Plus{}, C(0), threads);
        const C even = logarithm - sum / static_cast<C>(width);
        result = static_cast<C>(1 - classes.smoothing) * result +
                 static_cast<C>(classes.smoothing) * even;
      }
    }
    if (thread != 0) continue;
    loss[row] = result;
    kept[row] = of.largest;
    kept[rows + row] = of.total;
  }
}

}  // namespace

bool nll(const Tensor& loss, const Tensor& log_probabilities, const Tensor& target,
         const ClassTargets& classes) {
  const std::int64_t rows = loss.numel(), width = log_probabilities.size(-1);
  return with_floating(log_probabilities.dtype(), [&]<class L>() {
    launch(loss, blocks_for(rows), block, nll_kernel<L>, rows, width, classes.ignored,
           pointer<computed<L>>(loss), pointer<const L>(log_probabilities),
           pointer<const std::int64_t>(target));
  });
}

bool cross_entropy(const Tensor& loss, const Tensor& kept, const Tensor& logits,
                   const Tensor& target, const ClassTargets& classes) {
  return with_floating(logits.dtype(), [&]<class T>() {
    over_rows(logits, [&]<int threads>(std::int64_t rows, std::int64_t width, std::int64_t blocks) {
      launch(logits, blocks, block, cross_entropy_kernel<threads, T>, rows, width, classes,
             pointer<computed<T>>(loss), pointer<computed<T>>(kept), pointer<const T>(logits),
             pointer<const std::int64_t>(target));
    });
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

  // f(k, row, factor of the row, whether it counts, whether k is its class) for N elements from
  // `at` on.
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
      f(k, row, factor, wanted != classes.ignored, column == wanted);
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
    rows.template over<N>(at, [&](int k, std::int64_t, C factor, bool counts, bool wanted) {
      dx.at[k] = static_cast<T>(counts && wanted ? -factor : C(0));
    });
  }
};

template <class T>
struct CrossEntropyBackward {
  using TakesPacks = void;
  RowGradient<T> rows;
  const computed<T>*largest, *total;  // of each row
  computed<T> even, sharp;            // what smoothing leaves to each class, and to the right one
  template <int N>
  __device__ void pack(std::int64_t at, Pack<T, N>& dx, const Pack<T, N>& logits) const {
    using C = computed<T>;
    std::int64_t of = -1;
    C most = 0, share = 0;
    rows.template over<N>(at, [&](int k, std::int64_t row, C factor, bool counts, bool wanted) {
      if (row != of) {
        of = row;
        most = largest[row];
        share = C(1) / total[row];
      }
      C slope = std::exp(static_cast<C>(logits.at[k]) - most) * share - even;
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

bool cross_entropy_backward(const Tensor& dx, const Tensor& logits, const Tensor& kept,
                            const Tensor& target, const Tensor& dloss, const ClassTargets& classes,
                            double scale) {
  return with_floating(dx.dtype(), [&]<class T>() {
    using C = computed<T>;
    const auto* most = pointer<const C>(kept);
    const CrossEntropyBackward<T> f{
        gradient_of<T>(dx, target, dloss, classes, scale), most, most + dx.size(0),
        static_cast<C>(classes.smoothing / static_cast<double>(dx.size(-1))),
        static_cast<C>(1 - classes.smoothing)};
    walk(dx, dx.numel(), f, Out<T>{pointer<T>(dx)}, In<T>(pointer<T>(logits)));
  });
}

}  // namespace peal::cuda
