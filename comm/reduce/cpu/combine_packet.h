// SPDX-License-Identifier: Apache-2.0
// SIMD registers of one element type, as they come from memory and go back there: a packet is the
// elements of `width` bytes, in one register as they are, or in two of f32 for f16 and bf16. Part
// of combine_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/core/half.h>

#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace peal::comm::PEAL_LEVEL {
namespace {

// In GCC's portable notation.
#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX2__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif
template <class T, int width>
struct VectorOf {
  typedef T type __attribute__((vector_size(width)));
};
template <class T, int width>
using Vector = typename VectorOf<T, width>::type;
template <int width>
using Bytes = Vector<std::uint8_t, width>;
template <int width>
using Words = Vector<std::uint32_t, width>;
template <int width>
using Floats = Vector<float, width>;

// The first `bytes` of a register, the rest of which is 0 and not stored.
template <int width, int bytes>
[[gnu::always_inline]] inline Bytes<width> load(const std::byte* from) {
  Bytes<width> value;
  if constexpr (bytes == width) {
    __builtin_memcpy(&value, from, width);
  } else {
    std::uint64_t low = 0;
    __builtin_memcpy(&low, from, bytes);
    value = reinterpret_cast<Bytes<width>>(Vector<std::uint64_t, width>{low});
  }
  return value;
}
template <int bytes, int width>
[[gnu::always_inline]] inline void store(std::byte* to, const Vector<std::uint8_t, width>& value) {
  __builtin_memcpy(to, &value, bytes);
}

// Round the caches, where there is an instruction for it. `to` is aligned to the register.
template <int width>
[[gnu::always_inline]] inline void stream(std::byte* to, const Bytes<width>& value) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<__m512i>(value));
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(value));
#elif defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), reinterpret_cast<__m128i>(value));
#else
  store<width, width>(to, value);
#endif
}
[[gnu::always_inline]] inline void end_of_streaming() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

template <class T, int width>
struct Packet {
  Vector<T, width> all;

  [[gnu::always_inline]] explicit Packet(const Bytes<width>& bytes)
      : all(reinterpret_cast<Vector<T, width>>(bytes)) {}
  [[gnu::always_inline]] Bytes<width> bytes() const { return reinterpret_cast<Bytes<width>>(all); }
  template <class F>
  [[gnu::always_inline]] void take(F f, const Packet& other) {
    all = f(all, other.all);
  }
  template <class F>
  [[gnu::always_inline]] void become(F f) {
    all = f(all);
  }
};

// Of two-byte elements, which are computed in f32.
template <int width>
struct Widened {
  Floats<width> lower, upper;

  template <class F>
  [[gnu::always_inline]] void take(F f, const Widened& other) {
    lower = f(lower, other.lower);
    upper = f(upper, other.upper);
  }
  template <class F>
  [[gnu::always_inline]] void become(F f) {
    lower = f(lower);
    upper = f(upper);
  }
};

// Each word of 32 bits holds two elements. A bf16 is the upper half of an f32.
template <int width>
struct Packet<BFloat16, width> : Widened<width> {
  using Widened<width>::lower;
  using Widened<width>::upper;

  [[gnu::always_inline]] explicit Packet(const Bytes<width>& bytes) {
    const auto words = reinterpret_cast<Words<width>>(bytes);
    lower = reinterpret_cast<Floats<width>>(words << 16);
    upper = reinterpret_cast<Floats<width>>(words & 0xffff0000u);
  }
  [[gnu::always_inline]] Bytes<width> bytes() const {
    return reinterpret_cast<Bytes<width>>((rounded(lower) >> 16) | (rounded(upper) & 0xffff0000u));
  }

 private:
  // To nearest, ties to even, in the upper half. A NaN is one that was widened or an operation's
  // own; the lower half of both is 0, so that nothing is carried out of it.
  [[gnu::always_inline]] static Words<width> rounded(const Floats<width>& value) {
    const auto word = reinterpret_cast<Words<width>>(value);
    return word + 0x7fffu + ((word >> 16) & 1u);
  }
};

#if defined(__F16C__)
template <int width>
struct Packet<Half, width> : Widened<width> {
  using Widened<width>::lower;
  using Widened<width>::upper;

  [[gnu::always_inline]] explicit Packet(const Bytes<width>& bytes) {
    if constexpr (width == 16) {
      const auto all = reinterpret_cast<__m128i>(bytes);
      lower = _mm_cvtph_ps(all);
      upper = _mm_cvtph_ps(_mm_unpackhi_epi64(all, all));
    } else if constexpr (width == 32) {
      const auto all = reinterpret_cast<__m256i>(bytes);
      lower = _mm256_cvtph_ps(_mm256_castsi256_si128(all));
      upper = _mm256_cvtph_ps(_mm256_extracti128_si256(all, 1));
    } else {
#if defined(__AVX512F__)
      const auto all = reinterpret_cast<__m512i>(bytes);
      lower = _mm512_cvtph_ps(_mm512_castsi512_si256(all));
      upper = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(all, 1));
#endif
    }
  }
  [[gnu::always_inline]] Bytes<width> bytes() const {
    constexpr int nearest = _MM_FROUND_TO_NEAREST_INT;
    if constexpr (width == 16) {
      return reinterpret_cast<Bytes<width>>(
          _mm_unpacklo_epi64(_mm_cvtps_ph(lower, nearest), _mm_cvtps_ph(upper, nearest)));
    } else if constexpr (width == 32) {
      return reinterpret_cast<Bytes<width>>(
          _mm256_set_m128i(_mm256_cvtps_ph(upper, nearest), _mm256_cvtps_ph(lower, nearest)));
    } else {
#if defined(__AVX512F__)
      return reinterpret_cast<Bytes<width>>(
          _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(lower, nearest)),
                             _mm512_cvtps_ph(upper, nearest), 1));
#endif
    }
  }
};
#else
// What the instructions do, of all lanes at once; a NaN keeps what it carries and becomes quiet.
template <int width>
struct Packet<Half, width> : Widened<width> {
  using Widened<width>::lower;
  using Widened<width>::upper;

  [[gnu::always_inline]] explicit Packet(const Bytes<width>& bytes) {
    const auto words = reinterpret_cast<Words<width>>(bytes);
    lower = wide(words & 0xffffu);
    upper = wide(words >> 16);
  }
  [[gnu::always_inline]] Bytes<width> bytes() const {
    return reinterpret_cast<Bytes<width>>(narrow(lower) | (narrow(upper) << 16));
  }

 private:
  [[gnu::always_inline]] static Floats<width> wide(const Words<width>& half) {
    const auto magnitude = half & 0x7fffu;
    const auto small =
        __builtin_convertvector(reinterpret_cast<Vector<std::int32_t, width>>(magnitude),
                                Floats<width>) *
        0x1p-24f;
    const auto large = (magnitude << 13) + (magnitude >= 0x7c00u ? 0x70000000u - Words<width>{}
                                                                 : 0x38000000u - Words<width>{});
    const auto either = magnitude < 0x400u ? reinterpret_cast<Words<width>>(small) : large;
    return reinterpret_cast<Floats<width>>(either | ((half & 0x8000u) << 16));
  }
  [[gnu::always_inline]] static Words<width> narrow(const Floats<width>& value) {
    const auto word = reinterpret_cast<Words<width>>(value);
    const auto magnitude = word & 0x7fffffffu;
    const auto shifted = reinterpret_cast<Words<width>>(reinterpret_cast<Floats<width>>(magnitude) +
                                                        0.5f);  // rounds what is below 2^-14
    const auto normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    auto out = magnitude < 0x38800000u ? shifted - 0x3f000000u : normal;
    out = magnitude >= 0x477ff000u ? 0x7c00u - Words<width>{} : out;
    out = value == value ? out : ((word >> 13) & 0x3ffu) | 0x7e00u;
    return out | ((word >> 16) & 0x8000u);
  }
};
#endif

}  // namespace
}  // namespace peal::comm::PEAL_LEVEL
