// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/binary_functions.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/walk.h>

namespace peal::cpu {
namespace {

struct Row {
  std::int64_t n, step_a, step_b;
};

// A constant op, so that the switch over it is outside the loop.
template <BinaryMath op, class T>
void run(const Row& row, T* out, const T* a, const T* b) {
  if (row.step_a == 1 && row.step_b == 1) {
    for (std::int64_t i = 0; i < row.n; ++i) out[i] = functor::of_two(op, a[i], b[i]);
    return;
  }
  for (std::int64_t i = 0; i < row.n; ++i) {
    out[i] = functor::of_two(op, a[i * row.step_a], b[i * row.step_b]);
  }
}

template <class T>
void run(BinaryMath op, const Row& row, T* out, const T* a, const T* b) {
  using enum BinaryMath;
#define PEAL_CASE(name) \
  case name:            \
    return run<name>(row, out, a, b);
  switch (op) {
    PEAL_CASE(maximum)
    PEAL_CASE(minimum)
    PEAL_CASE(fmax)
    PEAL_CASE(fmin)
    PEAL_CASE(remainder)
    PEAL_CASE(fmod)
    PEAL_CASE(floor_divide)
    PEAL_CASE(bitwise_and)
    PEAL_CASE(bitwise_or)
    PEAL_CASE(bitwise_xor)
    PEAL_CASE(left_shift)
    PEAL_CASE(right_shift)
    PEAL_CASE(pow)
    PEAL_CASE(atan2)
    PEAL_CASE(hypot)
    PEAL_CASE(logaddexp)
    PEAL_CASE(xlogy)
  }
#undef PEAL_CASE
}

}  // namespace

bool binary_math(BinaryMath op, const Tensor& out, const Tensor& a, const Tensor& b) {
  if (!serves(op, out.dtype()) || is_low_precision(out.dtype())) return false;
  if (out.numel() == 0) return true;
  const Walk<2> walk(out.shape(),
                     {steps_of(a.shape(), out.shape()), steps_of(b.shape(), out.shape())});
  const Row row{walk.row(), walk.row_step(0), walk.row_step(1)};
  visit(out.dtype(), [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T>) {
      T* to = out.data<T>();
      const T *left = a.data<T>(), *right = b.data<T>();
      if (walk.rows() == 1) {
        return parallel_for(row.n, 1, [&](std::int64_t begin, std::int64_t end) {
          run(op, {end - begin, row.step_a, row.step_b}, to + begin, left + begin * row.step_a,
              right + begin * row.step_b);
        });
      }
      parallel_for(walk.rows(), row.n, [&](std::int64_t begin, std::int64_t end) {
        walk.each_row(begin, end, [&](std::int64_t at, const Walk<2>::Places& places) {
          run(op, row, to + at * row.n, left + places[0], right + places[1]);
        });
      });
    }
  });
  return true;
}

}  // namespace peal::cpu
