// SPDX-License-Identifier: Apache-2.0
// The elementwise loops of f16: those of f32, a buffer at a time, so that what is widened
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

template <Level level>
void binary(Binary op, Repeat repeat, Half* out, const Half* a, const Half* b, std::int64_t n) {
  const WidthLoops<Half>& width = width_loops<Half>(level);
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

template <Level level>
void unary(Unary op, Half* out, const Half* x, double s, std::int64_t n) {
  const WidthLoops<Half>& width = width_loops<Half>(level);
  float wide[buffer];
  each_buffer(n, [&](std::int64_t i, std::int64_t count) {
    width.widen(wide, x + i, count);
    loops<float>(level).unary(op, wide, wide, s, count);
    width.narrow(out + i, wide, count);
  });
}

template <Level level>
void axpy(Half* x, const Half* y, double alpha, std::int64_t n) {
  const WidthLoops<Half>& width = width_loops<Half>(level);
  float sum[buffer], more[buffer];
  each_buffer(n, [&](std::int64_t i, std::int64_t count) {
    width.widen(sum, x + i, count);
    width.widen(more, y + i, count);
    loops<float>(level).axpy(sum, more, alpha, count);
    width.narrow(x + i, sum, count);
  });
}

void fill(Half* out, double value, std::int64_t n) {
  std::fill_n(out, n, Half(static_cast<float>(value)));
}

template <Level level>
constexpr Loops<Half> loops_of = {
    .binary = binary<level>, .unary = unary<level>, .axpy = axpy<level>, .fill = fill};

}  // namespace

const Loops<Half>& half_loops(Level level) {
  if (level == Level::avx512) return loops_of<Level::avx512>;
  if (level == Level::avx2) return loops_of<Level::avx2>;
  return loops_of<Level::baseline>;
}

}  // namespace peal::cpu
