// SPDX-License-Identifier: Apache-2.0
// The elementwise loops of f16 and bf16: those of f32, a buffer at a time, so that what is widened
// stays in the first cache.
#include <peal/autograd/kernels/cpu/loops.h>

#include <algorithm>

namespace peal::cpu {
namespace {

constexpr std::int64_t buffer = 1024;

// f(first element, how many) for each buffer's worth.
template <class F>
void each_buffer(std::int64_t n, F&& f) {
  for (std::int64_t i = 0; i < n; i += buffer) f(i, std::min(buffer, n - i));
}

template <class T, Level level>
void binary(Binary op, Repeat repeat, T* out, const T* a, const T* b, std::int64_t n) {
  const WidthLoops<T>& width = width_loops<T>(level);
  float left[buffer], right[buffer], result[buffer];
  if (repeat == Repeat::left) width.widen(left, a, 1);
  if (repeat == Repeat::right) width.widen(right, b, 1);
  each_buffer(n, [&](std::int64_t i, std::int64_t count) {
    if (repeat != Repeat::left) width.widen(left, a + i, count);
    if (repeat != Repeat::right) width.widen(right, b + i, count);
    loops<float>(level).binary(op, repeat, result, left, right, count);
    width.narrow(out + i, result, count);
  });
}

template <class T, Level level>
void unary(Unary op, T* out, const T* x, double s, std::int64_t n) {
  const WidthLoops<T>& width = width_loops<T>(level);
  float wide[buffer];
  each_buffer(n, [&](std::int64_t i, std::int64_t count) {
    width.widen(wide, x + i, count);
    loops<float>(level).unary(op, wide, wide, s, count);
    width.narrow(out + i, wide, count);
  });
}

template <class T, Level level>
void axpy(T* x, const T* y, double alpha, std::int64_t n) {
  const WidthLoops<T>& width = width_loops<T>(level);
  float sum[buffer], more[buffer];
  each_buffer(n, [&](std::int64_t i, std::int64_t count) {
    width.widen(sum, x + i, count);
    width.widen(more, y + i, count);
    loops<float>(level).axpy(sum, more, alpha, count);
    width.narrow(x + i, sum, count);
  });
}

template <class T>
void fill(T* out, double value, std::int64_t n) {
  std::fill_n(out, n, T(static_cast<float>(value)));
}

template <class T, Level level>
constexpr Loops<T> loops_of = {
    .binary = binary<T, level>, .unary = unary<T, level>, .axpy = axpy<T, level>, .fill = fill<T>};

}  // namespace

template <class T>
const Loops<T>& narrow_loops(Level level) {
  if (level == Level::avx512) return loops_of<T, Level::avx512>;
  if (level == Level::avx2) return loops_of<T, Level::avx2>;
  return loops_of<T, Level::baseline>;
}

template const Loops<Half>& narrow_loops<Half>(Level level);
template const Loops<BFloat16>& narrow_loops<BFloat16>(Level level);

}  // namespace peal::cpu
