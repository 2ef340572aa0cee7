// SPDX-License-Identifier: Apache-2.0
// The elementwise kernels on CUDA: the functors that the CPU uses too, one element a thread in
// strides of the grid. What is missing from the table is an error that says so.
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/kernels/cuda/device.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/functors.h>

#include <algorithm>

namespace peal::cuda {
namespace {

using functor::computed;

template <class F>
__global__ void each(std::int64_t n, F f) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    f(i);
  }
}

// f(i) for every i in [0, n), on `on`'s device.
template <class F>
void for_each(const Tensor& on, std::int64_t n, F f) {
  if (n == 0) return;
  constexpr int threads = 256;
  const std::int64_t wanted = (n + threads - 1) / threads;
  each<<<static_cast<unsigned>(std::min<std::int64_t>(wanted, 1 << 16)), threads, 0,
         stream_on(on.device())>>>(n, f);
  PEAL_CUDA_CHECK(cudaGetLastError());
}

template <class T>
T* pointer(const Tensor& tensor) {
  return static_cast<T*>(tensor.raw());
}

// Where an operand of a broadcast is read for element i of the output.
struct Reader {
  std::int64_t size[Shape::max_dims] = {}, step[Shape::max_dims] = {};
  int dims = 0;

  Reader(const Shape& from, const Shape& to) {
    std::int64_t next = 1;
    dims = to.dim();
    for (int d = 1; d <= dims; ++d) {
      size[dims - d] = to[-d];
      if (d > from.dim()) continue;
      step[dims - d] = from[-d] == 1 ? 0 : next;
      next *= from[-d];
    }
  }
  __device__ std::int64_t at(std::int64_t i) const {
    std::int64_t offset = 0;
    for (int d = dims - 1; d >= 0; --d) {
      offset += i % size[d] * step[d];
      i /= size[d];
    }
    return offset;
  }
};

template <class T, class F>
struct BinaryEach {
  F f;
  T* out;
  const T *a, *b;
  Reader from_a, from_b;
  bool broadcast;
  __device__ void operator()(std::int64_t i) const {
    using C = computed<T>;
    const std::int64_t at_a = broadcast ? from_a.at(i) : i, at_b = broadcast ? from_b.at(i) : i;
    out[i] = static_cast<T>(f(static_cast<C>(a[at_a]), static_cast<C>(b[at_b])));
  }
};

template <class T, class F>
void run_binary(F f, const Tensor& out, const Tensor& a, const Tensor& b) {
  const bool broadcast = a.shape() != out.shape() || b.shape() != out.shape();
  for_each(
      out, out.numel(),
      BinaryEach<T, F>{f, pointer<T>(out), pointer<T>(a), pointer<T>(b),
                       Reader(a.shape(), out.shape()), Reader(b.shape(), out.shape()), broadcast});
}

bool binary(Binary op, const Tensor& out, const Tensor& a, const Tensor& b) {
  if (op == Binary::div && !is_floating(out.dtype())) return false;
  return with_number(out.dtype(), [&]<class T>() {
    switch (op) {
      case Binary::add:
        return run_binary<T>(functor::Add{}, out, a, b);
      case Binary::sub:
        return run_binary<T>(functor::Sub{}, out, a, b);
      case Binary::mul:
        return run_binary<T>(functor::Mul{}, out, a, b);
      case Binary::div:
        return run_binary<T>(functor::Div{}, out, a, b);
      case Binary::relu_backward:
        return run_binary<T>(functor::ReluBackward{}, out, a, b);
    }
  });
}

template <class T, class F>
struct UnaryEach {
  F f;
  T* out;
  const T* x;
  __device__ void operator()(std::int64_t i) const {
    out[i] = static_cast<T>(f(static_cast<computed<T>>(x[i])));
  }
};

bool unary(Unary op, const Tensor& out, const Tensor& x, double s) {
  return with_number(out.dtype(), [&]<class T>() {
    using C = computed<T>;
    const C scalar = static_cast<C>(s);
    const auto run = [&](auto f) {
      for_each(out, out.numel(), UnaryEach<T, decltype(f)>{f, pointer<T>(out), pointer<T>(x)});
    };
    switch (op) {
      case Unary::add_scalar:
        return run(functor::AddScalar<C>{scalar});
      case Unary::mul_scalar:
        return run(functor::MulScalar<C>{scalar});
      case Unary::relu:
        return run(functor::Relu<C>{scalar});
    }
  });
}

template <class T>
struct AxpyEach {
  T* x;
  const T* y;
  computed<T> alpha;
  __device__ void operator()(std::int64_t i) const {
    using C = computed<T>;
    x[i] = static_cast<T>(static_cast<C>(x[i]) + alpha * static_cast<C>(y[i]));
  }
};

bool axpy(const Tensor& x, const Tensor& y, double alpha) {
  return with_number(x.dtype(), [&]<class T>() {
    for_each(x, x.numel(),
             AxpyEach<T>{pointer<T>(x), pointer<T>(y), static_cast<computed<T>>(alpha)});
  });
}

template <class T>
struct FillEach {
  T* out;
  T value;
  __device__ void operator()(std::int64_t i) const { out[i] = value; }
};

bool fill(const Tensor& out, double value) {
  if (out.dtype() == DType::boolean) {
    for_each(out, out.numel(), FillEach<bool>{pointer<bool>(out), value != 0});
    return true;
  }
  return with_number(out.dtype(), [&]<class T>() {
    for_each(out, out.numel(),
             FillEach<T>{pointer<T>(out), static_cast<T>(static_cast<computed<T>>(value))});
  });
}

template <class T>
struct ArangeEach {
  T* out;
  __device__ void operator()(std::int64_t i) const {
    out[i] = static_cast<T>(static_cast<computed<T>>(i));
  }
};

bool arange(const Tensor& out) {
  return with_number(
      out.dtype(), [&]<class T>() { for_each(out, out.numel(), ArangeEach<T>{pointer<T>(out)}); });
}

template <class T>
struct ExpandEach {
  T* out;
  const T* x;
  Reader from;
  computed<T> scale;
  __device__ void operator()(std::int64_t i) const {
    out[i] = static_cast<T>(static_cast<computed<T>>(x[from.at(i)]) * scale);
  }
};

bool expand(const Tensor& out, const Tensor& x, double scale) {
  return with_floating(out.dtype(), [&]<class T>() {
    for_each(out, out.numel(),
             ExpandEach<T>{pointer<T>(out), pointer<T>(x), Reader(x.shape(), out.shape()),
                           static_cast<computed<T>>(scale)});
  });
}

template <class T>
struct UniformEach {
  T* out;
  RandomRange words;
  double low, high;
  __device__ void operator()(std::int64_t i) const {
    const double u = words.uniform(static_cast<std::uint64_t>(i));
    const T value = static_cast<T>(static_cast<computed<T>>(fma(high - low, u, low)));
    const T least = static_cast<T>(static_cast<computed<T>>(low));
    out[i] = static_cast<double>(value) < high ? value : least;
  }
};

bool uniform(const Tensor& out, RandomRange words, double low, double high) {
  return with_floating(out.dtype(), [&]<class T>() {
    for_each(out, out.numel(), UniformEach<T>{pointer<T>(out), words, low, high});
  });
}

template <class T>
struct NormalEach {
  T* out;
  RandomRange words;
  std::int64_t n;
  __device__ void operator()(std::int64_t pair) const {
    const auto at = static_cast<std::uint64_t>(2 * pair);
    const double radius = sqrt(-2 * log(1.0 - words.uniform(at)));
    double sine, cosine;
    sincospi(2.0 * words.uniform(at + 1), &sine, &cosine);
    out[2 * pair] = static_cast<T>(static_cast<computed<T>>(radius * cosine));
    if (2 * pair + 1 < n)
      out[2 * pair + 1] = static_cast<T>(static_cast<computed<T>>(radius * sine));
  }
};

bool normal(const Tensor& out, RandomRange words) {
  return with_floating(out.dtype(), [&]<class T>() {
    for_each(out, (out.numel() + 1) / 2, NormalEach<T>{pointer<T>(out), words, out.numel()});
  });
}

template <class T>
struct DropoutEach {
  functor::Dropout<T> f;
  T* y;
  std::uint8_t* mask;
  const T* x;
  RandomRange words;
  __device__ void operator()(std::int64_t i) const {
    const bool keep = f.keeps(words.word(static_cast<std::uint64_t>(i)));
    mask[i] = keep ? 1 : 0;
    y[i] = f(x[i], keep);
  }
};

bool dropout(const Tensor& y, const Tensor& mask, const Tensor& x, RandomRange words,
             std::uint32_t threshold, double scale) {
  return with_real(x.dtype(), [&]<class T>() {
    for_each(x, x.numel(),
             DropoutEach<T>{{threshold, static_cast<T>(scale)},
                            pointer<T>(y),
                            pointer<std::uint8_t>(mask),
                            pointer<T>(x),
                            words});
  });
}

template <class T>
struct DropoutBackwardEach {
  functor::Dropout<T> f;
  T* dx;
  const T* dy;
  const std::uint8_t* mask;
  __device__ void operator()(std::int64_t i) const { dx[i] = f(dy[i], mask[i] != 0); }
};

bool dropout_backward(const Tensor& dx, const Tensor& dy, const Tensor& mask, double scale) {
  return with_real(dx.dtype(), [&]<class T>() {
    for_each(dx, dx.numel(),
             DropoutBackwardEach<T>{{0, static_cast<T>(scale)},
                                    pointer<T>(dx),
                                    pointer<T>(dy),
                                    pointer<std::uint8_t>(mask)});
  });
}

template <class T>
struct SgdEach {
  functor::Sgd<T> f;
  T* p;
  const T* g;
  T* buffer;
  __device__ void operator()(std::int64_t i) const {
    p[i] = buffer == nullptr ? f.plain(p[i], g[i]) : f.with_momentum(p[i], g[i], buffer[i]);
  }
};

bool sgd(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
         const SgdStep& options) {
  return with_real(param.dtype(), [&]<class T>() {
    for_each(param, param.numel(),
             SgdEach<T>{functor::Sgd<T>(options), pointer<T>(param), pointer<T>(grad),
                        momentum_buffer.defined() ? pointer<T>(momentum_buffer) : nullptr});
  });
}

template <class T>
struct AdamEach {
  functor::Adam<T> f;
  T* p;
  const T* g;
  T *m, *v;
  __device__ void operator()(std::int64_t i) const { p[i] = f(p[i], g[i], m[i], v[i]); }
};

bool adam(const Tensor& param, const Tensor& grad, const Tensor& exp_avg, const Tensor& exp_avg_sq,
          const AdamStep& options) {
  return with_real(param.dtype(), [&]<class T>() {
    for_each(param, param.numel(),
             AdamEach<T>{functor::Adam<T>(options), pointer<T>(param), pointer<T>(grad),
                         pointer<T>(exp_avg), pointer<T>(exp_avg_sq)});
  });
}

}  // namespace

const Kernels& table() {
  static const Kernels all = [] {
    Kernels kernels;
    kernels.fill = fill;
    kernels.arange = arange;
    kernels.uniform = uniform;
    kernels.normal = normal;
    kernels.binary = binary;
    kernels.unary = unary;
    kernels.axpy = axpy;
    kernels.expand = expand;
    kernels.dropout = dropout;
    kernels.dropout_backward = dropout_backward;
    kernels.sgd = sgd;
    kernels.adam = adam;
    return kernels;
  }();
  return all;
}

}  // namespace peal::cuda
