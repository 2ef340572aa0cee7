// SPDX-License-Identifier: Apache-2.0
// Products, extremes, any and all over some dimensions, and scans of products and extremes. A warp,
// or a block where much goes into one, makes a result; where there are few results, each is made in
// parts, and a second launch folds those. A thread scans a line. The order depends on the sizes
// alone.
#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/reduction.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/folds.h>

#include <algorithm>

namespace peal::cuda {

using functor::computed;
using functor::Folding;

namespace {

// Of truths as i32, which go between lanes.
template <class S, class T>
__device__ S element_of(Reduce op, const T& x) {
  const auto value = static_cast<computed<T>>(x);
  if (op == Reduce::any || op == Reduce::all)
    return static_cast<S>(value != computed<T>(0) ? 1 : 0);
  return static_cast<S>(value);
}

template <class T, class S, class Result>
__global__ void fold_runs(Reduction all, int threads, Folding<S> f, bool truths, const T* x,
                          Result* out) {
  const int mine = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t here = block / threads, count = all.results * all.parts;
  // All threads of a warp make as many rounds, since they reduce together.
  for (std::int64_t base = blockIdx.x * here; base < count; base += gridDim.x * here) {
    const std::int64_t number = base + static_cast<int>(threadIdx.x) / threads;
    S total = f.start();
    if (number < count) {
      const std::int64_t result = number / all.parts;
      const std::int64_t begin = (number - result * all.parts) * all.part;
      const std::int64_t end = begin + all.part < all.n ? begin + all.part : all.n;
      const T* from = x + all.first(result);
      for (std::int64_t r = begin + mine; r < end; r += threads) {
        const T& each = from[all.offset(r)];
        total = f(total, truths ? element_of<S>(f.op, each)
                                : static_cast<S>(static_cast<computed<T>>(each)));
      }
    }
    total = group_reduce(total, f, f.start(), threads);
    if (mine == 0 && number < count) {
      out[number] = static_cast<Result>(static_cast<computed<Result>>(total));
    }
  }
}

template <class T, class S, class Result>
void fold_into(const Tensor& out, const Tensor& x, std::uint32_t dims, Reduce op) {
  Reduction all = reduction_of(x.shape(), dims);
  const int threads = threads_for(all.n);
  const std::int64_t here = block / threads;
  all.split(enough_blocks / ((all.results + here - 1) / here), 16 * block, 1);
  const auto run = [&]<class To>(To* to) {
    const std::int64_t tasks = all.results * all.parts;
    const bool truths = op == Reduce::any || op == Reduce::all;
    launch(x, std::min<std::int64_t>((tasks + here - 1) / here, std::int64_t{1} << 20), block,
           fold_runs<T, S, To>, all, threads, Folding<S>{op}, truths, pointer<const T>(x), to);
  };
  if (all.parts == 1) return run(pointer<Result>(out));
  const Tensor parts = Tensor::empty({all.results, all.parts}, dtype_of<S>, x.device());
  run(pointer<S>(parts));
  fold_into<S, S, Result>(out, parts, 2, op);
}

}  // namespace

bool reduce(Reduce op, const Tensor& out, const Tensor& x, std::uint32_t dims) {
  if (out.numel() == 0) return true;
  if (x.numel() == 0) return fill(out, op == Reduce::prod || op == Reduce::all ? 1 : 0);
  visit(x.dtype(), [&]<class T>() {
    constexpr bool real = !std::is_integral_v<T>;
    switch (op) {
      case Reduce::prod: {
        using S = std::conditional_t<real, double, std::int64_t>;
        return fold_into<T, S, std::conditional_t<real, T, std::int64_t>>(out, x, dims, op);
      }
      case Reduce::amax:
      case Reduce::amin: {
        using S = std::conditional_t<std::is_same_v<T, bool>, std::int32_t, computed<T>>;
        return fold_into<T, S, T>(out, x, dims, op);
      }
      case Reduce::any:
      case Reduce::all:
        return fold_into<T, std::int32_t, bool>(out, x, dims, op);
    }
  });
  return true;
}

namespace {

template <class T>
struct Product {
  summed<T> product = 1;
  __device__ T add(const T& x, std::int64_t) {
    product = functor::times(product, static_cast<summed<T>>(x));
    return static_cast<T>(product);
  }
};
template <class T>
struct LogOfSum {
  functor::LogSum<computed<T>> sum;
  __device__ T add(const T& x, std::int64_t) {
    return static_cast<T>(sum.add(static_cast<computed<T>>(x)));
  }
};
template <class T, bool largest>
struct BestPlace {
  functor::BestSoFar<computed<T>> best;
  __device__ std::int64_t add(const T& x, std::int64_t at) {
    return best.add(static_cast<computed<T>>(x), at, largest);
  }
};

template <class State, class Out, class T>
__global__ void scan_along(Out* out, const T* x, std::int64_t count, std::int64_t size,
                           Divisor inner, bool reversed) {
  const std::int64_t stride = std::int64_t{gridDim.x} * block;
  for (std::int64_t line = std::int64_t{blockIdx.x} * block + threadIdx.x; line < count;
       line += stride) {
    const std::int64_t outer = inner.quotient(line);
    const std::int64_t first = outer * size * inner.by + line - outer * inner.by;
    State state;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t place = reversed ? size - 1 - i : i, at = first + place * inner.by;
      out[at] = state.add(x[at], place);
    }
  }
}

template <class State, class Out, class T>
void scan_lines_of(const Tensor& out, const Tensor& x, int dim, bool reversed) {
  const Around at(x.shape(), dim);
  const std::int64_t count = at.outer * at.inner;
  launch(x, blocks_for(count), block, scan_along<State, Out, T>, pointer<Out>(out),
         pointer<const T>(x), count, at.size, Divisor(at.inner), reversed);
}

}  // namespace

bool scan(Scan op, const Tensor& out, const Tensor& x, int dim, bool reversed) {
  if (out.numel() == 0) return true;
  const auto product = [&]<class T>() { scan_lines_of<Product<T>, T, T>(out, x, dim, reversed); };
  switch (op) {
    case Scan::prod:
      if (x.dtype() != DType::i64) return with_floating(x.dtype(), product);
      product.template operator()<std::int64_t>();
      return true;
    case Scan::max:
      visit(x.dtype(), [&]<class T>() {
        scan_lines_of<BestPlace<T, true>, std::int64_t, T>(out, x, dim, reversed);
      });
      return true;
    case Scan::min:
      visit(x.dtype(), [&]<class T>() {
        scan_lines_of<BestPlace<T, false>, std::int64_t, T>(out, x, dim, reversed);
      });
      return true;
    case Scan::logsumexp:
      return with_floating(
          x.dtype(), [&]<class T>() { scan_lines_of<LogOfSum<T>, T, T>(out, x, dim, reversed); });
  }
  return false;
}

}  // namespace peal::cuda
