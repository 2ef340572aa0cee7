// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/core/stream.h>
#include <peal/comm/reduce/combine.h>
#include <peal/comm/reduce/cuda/reduce.h>
#include <peal/comm/reduce/reduce_op.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace peal::comm {
namespace {

using cuda::thread_count;
using cuda::thread_number;

// Where the caller's StreamGuard says.
Device here() {
  const auto& stream = context().stream;
  PEAL_CHECK(stream != nullptr && stream->device().type == DeviceType::cuda,
             "comm: a kernel of the wire needs a stream of its device (StreamGuard)");
  return stream->device();
}

template <class T>
struct alignas(16) Pack {
  static constexpr int width = 16 / sizeof(T);
  T at[width];
};

// How many whole packs two arrays have in common places.
template <class T>
std::int64_t packs(const void* a, const void* b, std::int64_t count) {
  const auto bits = reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b);
  return bits % 16 == 0 ? count / Pack<T>::width : 0;
}

template <class T, class Combine>
__device__ void combine_all(Combine combine, T* dst, const T* src, std::int64_t whole,
                            std::int64_t count) {
  for (std::int64_t i = thread_number(); i < whole; i += thread_count()) {
    Pack<T> to = reinterpret_cast<const Pack<T>*>(dst)[i];
    const Pack<T> from = reinterpret_cast<const Pack<T>*>(src)[i];
    for (int k = 0; k < Pack<T>::width; ++k) to.at[k] = combine(to.at[k], from.at[k]);
    reinterpret_cast<Pack<T>*>(dst)[i] = to;
  }
  for (std::int64_t i = whole * Pack<T>::width + thread_number(); i < count; i += thread_count()) {
    dst[i] = combine(dst[i], src[i]);
  }
}

// One kernel for all reductions of a type: which one is the same for all threads.
template <class T>
struct Reduction {
  ReduceOp op;
  T* dst;
  const T* src;
  std::int64_t whole, count;
  template <class Combine>
  __device__ void operator()(Combine combine) const {
    combine_all(combine, dst, src, whole, count);
  }
};

template <class T>
__global__ void reduce_each(Reduction<T> reduction) {
  with_combination<T>(reduction.op, reduction);
}

template <class T>
constexpr bool computes = !std::same_as<T, Half> && !std::same_as<T, BFloat16>;

void reduce(DType dtype, ReduceOp op, void* dst, const void* src, std::int64_t count) {
  check_reduction(dtype, op);
  visit(dtype, [&]<class T>() {
    if constexpr (computes<T>) {
      const std::int64_t whole = packs<T>(dst, src, count);
      const Reduction<T> reduction{op, static_cast<T*>(dst), static_cast<const T*>(src), whole,
                                   count};
      cuda::launch(here(), cuda::blocks_for(whole > 0 ? whole : count), cuda::block, reduce_each<T>,
                   reduction);
    } else {
      fail(concat("reduce: ", dtype, " is reduced as f32; widen it first"));
    }
  });
}

template <class T, class F>
struct ScaleEach {
  T* data;
  F factor;
  __device__ void operator()(std::int64_t i) const {
    data[i] = static_cast<T>(static_cast<F>(data[i]) * factor);
  }
};

void scale(DType dtype, void* data, double factor, std::int64_t count) {
  visit(dtype, [&]<class T>() {
    if constexpr (computes<T> && !std::same_as<T, bool>) {
      using F = std::conditional_t<std::same_as<T, float>, float, double>;
      cuda::for_each(here(), count, ScaleEach<T, F>{static_cast<T*>(data), static_cast<F>(factor)});
    } else {
      fail(concat("scale: not for ", dtype));
    }
  });
}

template <class T>
struct DivideEach {
  T* data;
  std::int64_t divisor;
  __device__ void operator()(std::int64_t i) const {
    if constexpr (std::is_floating_point_v<T>) {
      data[i] /= static_cast<T>(divisor);
    } else {
      data[i] = static_cast<T>(static_cast<std::int64_t>(data[i]) / divisor);
    }
  }
};

void divide(DType dtype, void* data, std::int64_t divisor, std::int64_t count) {
  visit(dtype, [&]<class T>() {
    if constexpr (computes<T> && !std::same_as<T, bool>) {
      cuda::for_each(here(), count, DivideEach<T>{static_cast<T*>(data), divisor});
    } else {
      fail(concat("divide: not for ", dtype));
    }
  });
}

template <class To, class From>
struct ConvertEach {
  To* dst;
  const From* src;
  __device__ void operator()(std::int64_t i) const {
    dst[i] = static_cast<To>(static_cast<float>(src[i]));
  }
};

template <class To, class From>
void convert(void* dst, const void* src, std::int64_t count) {
  cuda::for_each(here(), count,
                 ConvertEach<To, From>{static_cast<To*>(dst), static_cast<const From*>(src)});
}

void widen(DType dtype, float* dst, const void* src, std::int64_t count) {
  if (dtype == DType::f16) return convert<float, Half>(dst, src, count);
  convert<float, BFloat16>(dst, src, count);
}

void narrow(DType dtype, void* dst, const float* src, std::int64_t count) {
  if (dtype == DType::f16) return convert<Half, float>(dst, src, count);
  convert<BFloat16, float>(dst, src, count);
}

}  // namespace

const WireKernels& cuda_wire_kernels() {
  static constexpr WireKernels kernels = {
      .reduce = reduce, .scale = scale, .divide = divide, .widen = widen, .narrow = narrow};
  return kernels;
}

}  // namespace peal::comm
