// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/walk.h>

namespace peal::cpu {

bool fill(const Tensor& out, double value) {
  if (out.dtype() == DType::boolean) {
    std::fill_n(out.data<bool>(), out.numel(), value != 0);
    return true;
  }
  return with_number(out.dtype(), [&]<class T>() {
    T* to = out.data<T>();
    parallel_for(out.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      loops<T>().fill(to + begin, value, end - begin);
    });
  });
}

bool arange(const Tensor& out) {
  return with_number(out.dtype(), [&]<class T>() {
    T* to = out.data<T>();
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      to[i] = static_cast<T>(static_cast<functor::computed<T>>(i));
    }
  });
}

bool binary(Binary op, const Tensor& out, const Tensor& a, const Tensor& b) {
  if (op == Binary::div && !is_floating(out.dtype())) return false;
  return with_number(out.dtype(), [&]<class T>() {
    T* to = out.data<T>();
    const T *from_a = a.data<T>(), *from_b = b.data<T>();
    if (out.numel() == 0) return;
    if (a.shape() == b.shape()) {
      parallel_for(out.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
        loops<T>().binary(op, Repeat::none, to + begin, from_a + begin, from_b + begin,
                          end - begin);
      });
      return;
    }
    const Walk<2> walk(out.shape(),
                       {steps_of(a.shape(), out.shape()), steps_of(b.shape(), out.shape())});
    const std::int64_t row = walk.row(), step_a = walk.row_step(0), step_b = walk.row_step(1);
    const Repeat repeat = step_a == 0 ? Repeat::left : step_b == 0 ? Repeat::right : Repeat::none;
    if (walk.rows() == 1) {
      parallel_for(row, 1, [&](std::int64_t begin, std::int64_t end) {
        loops<T>().binary(op, repeat, to + begin, from_a + begin * step_a, from_b + begin * step_b,
                          end - begin);
      });
      return;
    }
    parallel_for(walk.rows(), row, [&](std::int64_t begin, std::int64_t end) {
      walk.each_row(begin, end, [&](std::int64_t at, const Walk<2>::Places& places) {
        loops<T>().binary(op, repeat, to + at * row, from_a + places[0], from_b + places[1], row);
      });
    });
  });
}

bool unary(Unary op, const Tensor& out, const Tensor& x, double s) {
  if (op == Unary::div_scalar && !is_floating(out.dtype())) return false;
  return with_number(out.dtype(), [&]<class T>() {
    T* to = out.data<T>();
    const T* from = x.data<T>();
    parallel_for(out.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      loops<T>().unary(op, to + begin, from + begin, s, end - begin);
    });
  });
}

bool axpy(const Tensor& x, const Tensor& y, double alpha) {
  return with_number(x.dtype(), [&]<class T>() {
    T* to = x.data<T>();
    const T* from = y.data<T>();
    parallel_for(x.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      loops<T>().axpy(to + begin, from + begin, alpha, end - begin);
    });
  });
}

bool expand(const Tensor& out, const Tensor& x, double scale) {
  return with_floating(out.dtype(), [&]<class T>() {
    T* to = out.data<T>();
    const T* from = x.data<T>();
    if (out.numel() == 0) return;
    const Walk<1> walk(out.shape(), {steps_of(x.shape(), out.shape())});
    const std::int64_t row = walk.row();
    const bool stretched = walk.row_step(0) == 0;
    parallel_for(walk.rows(), row, [&](std::int64_t begin, std::int64_t end) {
      walk.each_row(begin, end, [&](std::int64_t at, const Walk<1>::Places& places) {
        const T* first = from + places[0];
        if (stretched) {
          loops<T>().fill(to + at * row, scale * static_cast<double>(*first), row);
        } else {
          loops<T>().unary(Unary::mul_scalar, to + at * row, first, scale, row);
        }
      });
    });
  });
}

}  // namespace peal::cpu
