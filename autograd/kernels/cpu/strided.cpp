// SPDX-License-Identifier: Apache-2.0
// Copies between a dense array and a strided part of another: elements are bytes of their size.
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/short_copy.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/walk.h>

namespace peal::cpu {
namespace {

template <class F>
void with_element(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f.template operator()<std::uint8_t>();
    case 2:
      return f.template operator()<std::uint16_t>();
    case 4:
      return f.template operator()<std::uint32_t>();
    default:
      return f.template operator()<std::uint64_t>();
  }
}

// copy(first dense element, first strided element, step, n) for every row of the dense shape.
template <class E, class Copy>
void each_run(const Shape& shape, E* dense, E* strided, const Steps& steps, Copy&& copy) {
  const Walk<1> walk(shape, {steps});
  const std::int64_t row = walk.row(), step = walk.row_step(0);
  parallel_for(walk.rows(), row, [&](std::int64_t begin, std::int64_t end) {
    walk.each_row(begin, end, [&](std::int64_t at, const auto& places) {
      copy(dense + at * row, strided + places[0], step, row);
    });
  });
}

}  // namespace

bool read_strided(const Tensor& out, const Tensor& x, const Steps& steps, std::int64_t at) {
  if (out.numel() == 0) return true;
  with_element(out.dtype(), [&]<class E>() {
    each_run(out.shape(), static_cast<E*>(out.raw()), static_cast<E*>(x.raw()) + at, steps,
             [](E* dense, const E* strided, std::int64_t step, std::int64_t n) {
               if (step == 1) {
                 short_copy(dense, strided, n);
               } else {
                 for (std::int64_t i = 0; i < n; ++i) dense[i] = strided[i * step];
               }
             });
  });
  return true;
}

bool write_strided(const Tensor& out, const Tensor& x, const Steps& steps, std::int64_t at) {
  if (x.numel() == 0) return true;
  with_element(out.dtype(), [&]<class E>() {
    each_run(x.shape(), static_cast<E*>(x.raw()), static_cast<E*>(out.raw()) + at, steps,
             [](const E* dense, E* strided, std::int64_t step, std::int64_t n) {
               if (step == 1) {
                 short_copy(strided, dense, n);
               } else {
                 for (std::int64_t i = 0; i < n; ++i) strided[i * step] = dense[i];
               }
             });
  });
  return true;
}

}  // namespace peal::cpu
