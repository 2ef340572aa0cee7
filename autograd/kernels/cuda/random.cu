// SPDX-License-Identifier: Apache-2.0
// Random numbers by Philox, the same words as the CPU's (core/rng.h). A thread that makes several
// neighbours computes each block of four words once.
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/cuda/walk.h>
#include <peal/autograd/kernels/dispatch.h>

#include <cmath>

namespace peal::cuda {

using functor::computed;

namespace {

// Words of a range in ascending order.
class Words {
 public:
  __device__ explicit Words(const RandomRange& range) : range_(range.shifted()) {}
  __device__ std::uint32_t next(std::int64_t i) {
    const std::uint64_t word = range_.offset + static_cast<std::uint64_t>(i);
    if (!any_ || word >> 2 != number_) {
      number_ = word >> 2;
      block_ = philox(range_.seed, number_);
      any_ = true;
    }
    const auto place = static_cast<std::uint32_t>(word & 3);
    // No index into registers.
    return place < 2 ? (place == 0 ? block_.word[0] : block_.word[1])
                     : (place == 2 ? block_.word[2] : block_.word[3]);
  }

 private:
  const RandomRange range_;
  std::uint64_t number_ = 0;
  PhiloxBlock block_;
  bool any_ = false;
};

template <class T>
struct Uniform {
  RandomRange words;
  double low, high;
  using TakesPacks = void;
  template <int N>
  __device__ void pack(std::int64_t at, Pack<T, N>& out) const {
    Words cursor(words);
    const T least = static_cast<T>(static_cast<computed<T>>(low));
    for (int k = 0; k < N; ++k) {
      const double u = uniform_from(cursor.next(at + k));
      const T value = static_cast<T>(static_cast<computed<T>>(std::fma(high - low, u, low)));
      out.at[k] = static_cast<double>(value) < high ? value : least;
    }
  }
};

template <class T>
struct Normal {
  T* out;
  RandomRange words;
  std::int64_t n;
  __device__ void operator()(std::int64_t pair) const {
    Words cursor(words);
    const double radius = sqrt(-2 * log(1.0 - uniform_from(cursor.next(2 * pair))));
    double sine, cosine;
    sincospi(2.0 * uniform_from(cursor.next(2 * pair + 1)), &sine, &cosine);
    out[2 * pair] = static_cast<T>(static_cast<computed<T>>(radius * cosine));
    if (2 * pair + 1 < n) {
      out[2 * pair + 1] = static_cast<T>(static_cast<computed<T>>(radius * sine));
    }
  }
};

}  // namespace

// fma keeps the bits equal to the CPU's.
bool uniform(const Tensor& out, RandomRange words, double low, double high) {
  return with_floating(out.dtype(), [&]<class T>() {
    walk(out, out.numel(), Uniform<T>{words, low, high}, Out<T>{pointer<T>(out)});
  });
}

bool normal(const Tensor& out, RandomRange words) {
  return with_floating(out.dtype(), [&]<class T>() {
    for_each(out, (out.numel() + 1) / 2, Normal<T>{pointer<T>(out), words, out.numel()});
  });
}

namespace {

template <class T>
struct Dropout {
  functor::Dropout<computed<T>> f;
  RandomRange words;
  using TakesPacks = void;
  template <int N>
  __device__ void pack(std::int64_t at, Pack<T, N>& y, Pack<std::uint8_t, N>& mask,
                       const Pack<T, N>& x) const {
    Words cursor(words);
    for (int k = 0; k < N; ++k) {
      const bool keep = f.keeps(cursor.next(at + k));
      mask.at[k] = keep ? 1 : 0;
      y.at[k] = static_cast<T>(f(static_cast<computed<T>>(x.at[k]), keep));
    }
  }
};

template <class T>
struct DropoutBackward {
  functor::Dropout<computed<T>> f;
  __device__ void operator()(std::int64_t, T& dx, const T& dy, const std::uint8_t& mask) const {
    dx = static_cast<T>(f(static_cast<computed<T>>(dy), mask != 0));
  }
};

}  // namespace

bool dropout(const Tensor& y, const Tensor& mask, const Tensor& x, RandomRange words,
             std::uint32_t threshold, double scale) {
  return with_floating(x.dtype(), [&]<class T>() {
    walk(x, x.numel(), Dropout<T>{{threshold, static_cast<computed<T>>(scale)}, words},
         Out<T>{pointer<T>(y)}, Out<std::uint8_t>{pointer<std::uint8_t>(mask)},
         In<T>(pointer<T>(x)));
  });
}

bool dropout_backward(const Tensor& dx, const Tensor& dy, const Tensor& mask, double scale) {
  return with_floating(dx.dtype(), [&]<class T>() {
    walk(dx, dx.numel(), DropoutBackward<T>{{0, static_cast<computed<T>>(scale)}},
         Out<T>{pointer<T>(dx)}, In<T>(pointer<T>(dy)),
         In<std::uint8_t>(pointer<std::uint8_t>(mask)));
  });
}

}  // namespace peal::cuda
