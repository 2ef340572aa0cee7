// SPDX-License-Identifier: Apache-2.0
// The kernels of combine.h, in the namespace PEAL_LEVEL. This file is compiled with several
// instruction sets, so nothing in it may have a linker symbol that another file shares: everything
// is forced inline or in a namespace of the level's own, and no function of the standard library is
// called (a test looks at the symbols).
#include <peal/autograd/core/dtype.h>
#include <peal/comm/reduce/cpu/combine_kernels.h>
#include <peal/comm/reduce/cpu/combine_packet.h>
#include <peal/comm/reduce/reduce_op.h>

#include <type_traits>

namespace peal::comm::PEAL_LEVEL {
namespace {

// The operators of combine.h in comm/reduce, of all lanes at once. Integers are added and
// multiplied as unsigned, so that they wrap around.
struct Add {
  template <class V>
  [[gnu::always_inline]] V operator()(const V& a, const V& b) const {
    return a + b;
  }
};
struct Multiply {
  template <class V>
  [[gnu::always_inline]] V operator()(const V& a, const V& b) const {
    return a * b;
  }
};
struct And {
  template <class V>
  [[gnu::always_inline]] V operator()(const V& a, const V& b) const {
    return a & b;
  }
};
struct Or {
  template <class V>
  [[gnu::always_inline]] V operator()(const V& a, const V& b) const {
    return a | b;
  }
};
struct Xor {
  template <class V>
  [[gnu::always_inline]] V operator()(const V& a, const V& b) const {
    return a ^ b;
  }
};

template <class V>
using Lane = std::remove_cvref_t<decltype(V{}[0])>;

// `one` of two floats, but NaN where either is, and `zero` (both, bit by bit) where they are equal:
// among zeros of both signs it has, or has not, the sign.
template <class V, class Bits>
[[gnu::always_inline]] inline V settled(const V& a, const V& b, const V& one, const Bits& zero) {
  const V nan = V{} + static_cast<Lane<V>>(__builtin_nan(""));
  const V ordered = a == b ? reinterpret_cast<V>(zero) : one;
  return ((a == a) & (b == b)) ? ordered : nan;
}
struct Smaller {
  template <class V>
  [[gnu::always_inline]] V operator()(const V& a, const V& b) const {
    if constexpr (std::is_floating_point_v<Lane<V>>) {
      using Bits = decltype(a < b);
      return settled(a, b, a < b ? a : b, reinterpret_cast<Bits>(a) | reinterpret_cast<Bits>(b));
    } else {
      return a < b ? a : b;
    }
  }
};
struct Larger {
  template <class V>
  [[gnu::always_inline]] V operator()(const V& a, const V& b) const {
    if constexpr (std::is_floating_point_v<Lane<V>>) {
      using Bits = decltype(a < b);
      return settled(a, b, b < a ? a : b, reinterpret_cast<Bits>(a) & reinterpret_cast<Bits>(b));
    } else {
      return b < a ? a : b;
    }
  }
};

// What becomes of all that was combined, before it is rounded and stored.
struct AsItIs {
  template <class V>
  [[gnu::always_inline]] V operator()(const V& all) const {
    return all;
  }
};
struct MultipliedBy {
  double factor;
  template <class V>
  [[gnu::always_inline]] V operator()(const V& all) const {
    return all * static_cast<Lane<V>>(factor);
  }
};
struct DividedBy {
  double divisor;
  template <class V>
  [[gnu::always_inline]] V operator()(const V& all) const {
    return all / static_cast<Lane<V>>(divisor);
  }
};

// Made anew by each function that is called: passed in memory, it would be read in wider pieces
// than it was just written in, which a store buffer can't serve.
struct Arrays {
  std::byte* const* targets;
  std::int64_t target_count;
  const std::byte* const* sources;
  std::int64_t source_count;
};

constexpr std::int64_t line = 64;
// From here on the first target's lines are worth their alignment.
constexpr std::int64_t many = 16 * line;

// Elements that are computed with as they are, which is less work than moving them.
template <class T>
constexpr bool light = sizeof(Packet<T, register_bytes>) == register_bytes;

// n < 2 bytes: as two pieces that may overlap, both read before either is written, for a target may
// be a source.
template <class T, class F, int bytes, class End>
[[gnu::always_inline]] inline void piece(const Arrays& c, std::int64_t at, std::int64_t n,
                                         End end) {
  if (n >= bytes) {
    constexpr int width = bytes < 16 ? 16 : bytes;
    using P = Packet<T, width>;
    const std::int64_t next = at + n - bytes;
    P first(load<width, bytes>(c.sources[0] + at)), last(load<width, bytes>(c.sources[0] + next));
    for (std::int64_t s = 1; s < c.source_count; ++s) {
      first.take(F(), P(load<width, bytes>(c.sources[s] + at)));
      last.take(F(), P(load<width, bytes>(c.sources[s] + next)));
    }
    first.become(end);
    last.become(end);
    const Bytes<width> a = first.bytes(), b = last.bytes();
    for (std::int64_t t = 0; t < c.target_count; ++t) {
      store<bytes, width>(c.targets[t] + at, a);
      store<bytes, width>(c.targets[t] + next, b);
    }
  } else if constexpr (bytes / 2 >= static_cast<int>(sizeof(T))) {
    piece<T, F, bytes / 2>(c, at, n, end);
  }
}

template <class T, class F, class End>
[[gnu::noinline]] void edge(std::byte* const* targets, std::int64_t target_count,
                            const std::byte* const* sources, std::int64_t source_count,
                            std::int64_t at, std::int64_t last, End end) {
  constexpr int width = register_bytes;
  const Arrays c{targets, target_count, sources, source_count};
  for (; at + width <= last; at += width) {
    Packet<T, width> sum(load<width, width>(c.sources[0] + at));
    for (std::int64_t s = 1; s < c.source_count; ++s) {
      sum.take(F(), Packet<T, width>(load<width, width>(c.sources[s] + at)));
    }
    sum.become(end);
    const Bytes<width> bytes = sum.bytes();
    for (std::int64_t t = 0; t < c.target_count; ++t) {
      store<width, width>(c.targets[t] + at, bytes);
    }
  }
  piece<T, F, width / 2>(c, at, last - at, end);
}

// Four registers at a time; returns where it ends. A stride is whole lines. `sources` and `targets`
// say that there are just so many, whose addresses then stay in registers too; 0: any number.
template <class T, class F, bool streaming, int sources = 0, int targets = 0, class End>
[[gnu::always_inline]] inline std::int64_t strides(const Arrays& c, std::int64_t at,
                                                   std::int64_t last, End end) {
  constexpr int width = register_bytes;
  using P = Packet<T, width>;
  const std::byte* const first = c.sources[0];
  const std::byte* const second = sources == 2 ? c.sources[1] : nullptr;
  std::byte* const to_first = c.targets[0];
  std::byte* const to_second = targets == 2 ? c.targets[1] : nullptr;
  for (; at + 4 * width <= last; at += 4 * width) {
    const std::byte* const begin = (sources == 0 ? c.sources[0] : first) + at;
    P p0(load<width, width>(begin)), p1(load<width, width>(begin + width)),
        p2(load<width, width>(begin + 2 * width)), p3(load<width, width>(begin + 3 * width));
    const auto take = [&](const std::byte* from) __attribute__((always_inline)) {
      p0.take(F(), P(load<width, width>(from)));
      p1.take(F(), P(load<width, width>(from + width)));
      p2.take(F(), P(load<width, width>(from + 2 * width)));
      p3.take(F(), P(load<width, width>(from + 3 * width)));
    };
    if constexpr (sources == 0) {
      for (std::int64_t s = 1; s < c.source_count; ++s) take(c.sources[s] + at);
    } else {
      take(second + at);
    }
    p0.become(end), p1.become(end), p2.become(end), p3.become(end);
    const Bytes<width> b0 = p0.bytes(), b1 = p1.bytes(), b2 = p2.bytes(), b3 = p3.bytes();
    const auto put = [&](std::byte * to) __attribute__((always_inline)) {
      if (streaming && reinterpret_cast<std::uintptr_t>(to) % line == 0) {
        stream<width>(to, b0);
        stream<width>(to + width, b1);
        stream<width>(to + 2 * width, b2);
        stream<width>(to + 3 * width, b3);
      } else {
        store<width, width>(to, b0);
        store<width, width>(to + width, b1);
        store<width, width>(to + 2 * width, b2);
        store<width, width>(to + 3 * width, b3);
      }
    };
    if constexpr (targets == 0) {
      for (std::int64_t t = 0; t < c.target_count; ++t) put(c.targets[t] + at);
    } else {
      put(to_first + at);
      if constexpr (targets == 2) put(to_second + at);
    }
  }
  return at;
}

template <class T, class F, class End>
[[gnu::noinline]] void long_kernel(std::byte* const* targets, std::int64_t target_count,
                                   const std::byte* const* sources, std::int64_t source_count,
                                   std::int64_t bytes, bool streaming, End end) {
  if (target_count == 0) return;
  const Arrays c{targets, target_count, sources, source_count};
  std::int64_t at = 0;
  if (bytes >= many) {
    const auto begin = reinterpret_cast<std::uintptr_t>(targets[0]);
    const auto before = static_cast<std::int64_t>(-begin % line);
    if (before % static_cast<std::int64_t>(sizeof(T)) == 0 && before > 0) {
      edge<T, F>(targets, target_count, sources, source_count, 0, before, end);
      at = before;
    }
  }
  if (streaming && bytes >= many) {
    at = strides<T, F, true>(c, at, bytes, end);
    end_of_streaming();
  } else if (light<T> && source_count == 2 && target_count == 1) {
    at = strides<T, F, false, 2, 1>(c, at, bytes, end);
  } else if (light<T> && source_count == 2 && target_count == 2) {
    at = strides<T, F, false, 2, 2>(c, at, bytes, end);
  } else {
    at = strides<T, F, false>(c, at, bytes, end);
  }
  edge<T, F>(targets, target_count, sources, source_count, at, bytes, end);
}

template <class T, class F, class End>
[[gnu::always_inline]] inline void any_length(const Arrays& c, std::int64_t bytes, bool streaming,
                                              End end) {
  if (bytes < 2 * register_bytes) {
    piece<T, F, register_bytes>(c, 0, bytes, end);
  } else {
    long_kernel<T, F>(c.targets, c.target_count, c.sources, c.source_count, bytes, streaming, end);
  }
}

template <class T, class F>
void kernel(std::byte* const* targets, std::int64_t target_count, const std::byte* const* sources,
            std::int64_t source_count, std::int64_t bytes, bool streaming) {
  any_length<T, F>({targets, target_count, sources, source_count}, bytes, streaming, AsItIs());
}

template <class T, class End>
void average(std::byte* const* targets, std::int64_t target_count, const std::byte* const* sources,
             std::int64_t source_count, std::int64_t bytes, bool streaming, double by) {
  any_length<T, Add>({targets, target_count, sources, source_count}, bytes, streaming, End{by});
}

// T, and what it is added and multiplied as.
template <class T, class Wrapping = T>
constexpr void put(CombineKernels& kernels, DType dtype) {
  const auto at = [&](ReduceOp op) -> CombineKernels::Kernel& {
    return kernels.of[static_cast<int>(dtype)][static_cast<int>(op)];
  };
  kernels.size[static_cast<int>(dtype)] = sizeof(T);
  at(ReduceOp::sum) = at(ReduceOp::avg) = at(ReduceOp::premul_sum) = kernel<Wrapping, Add>;
  at(ReduceOp::prod) = kernel<Wrapping, Multiply>;
  at(ReduceOp::min) = kernel<T, Smaller>;
  at(ReduceOp::max) = kernel<T, Larger>;
  if constexpr (!std::is_integral_v<T>) {
    kernels.multiplied[static_cast<int>(dtype)] = average<T, MultipliedBy>;
    kernels.divided[static_cast<int>(dtype)] = average<T, DividedBy>;
  }
  if constexpr (std::is_integral_v<T>) {  // byte by byte, whatever the type
    at(ReduceOp::band) = kernel<std::uint8_t, And>;
    at(ReduceOp::bor) = kernel<std::uint8_t, Or>;
    at(ReduceOp::bxor) = kernel<std::uint8_t, Xor>;
  }
}

constexpr CombineKernels all = [] {
  CombineKernels kernels;
  put<float>(kernels, DType::f32);
  put<double>(kernels, DType::f64);
  put<Half>(kernels, DType::f16);
  put<BFloat16>(kernels, DType::bf16);
  put<std::int32_t, std::uint32_t>(kernels, DType::i32);
  put<std::int64_t, std::uint64_t>(kernels, DType::i64);
  put<std::uint8_t>(kernels, DType::u8);
  put<std::int8_t, std::uint8_t>(kernels, DType::i8);
  // A bool is a byte of 0 or 1.
  kernels.size[static_cast<int>(DType::boolean)] = 1;
  auto& boolean = kernels.of[static_cast<int>(DType::boolean)];
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::bor}) {
    boolean[static_cast<int>(op)] = kernel<std::uint8_t, Or>;
  }
  for (const ReduceOp op : {ReduceOp::prod, ReduceOp::min, ReduceOp::band}) {
    boolean[static_cast<int>(op)] = kernel<std::uint8_t, And>;
  }
  boolean[static_cast<int>(ReduceOp::bxor)] = kernel<std::uint8_t, Xor>;
  kernels.copy = kernel<std::uint8_t, Or>;  // which one source never calls
  return kernels;
}();

}  // namespace

const CombineKernels& combine_kernels() { return all; }

}  // namespace peal::comm::PEAL_LEVEL
