// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/walk.h>

namespace peal::cpu {
namespace {

template <class T>
bool holds(Compare op, T a, T b) {
  switch (op) {
    case Compare::eq:
      return a == b;
    case Compare::ne:
      return a != b;
    case Compare::lt:
      return a < b;
    case Compare::le:
      return a <= b;
    case Compare::gt:
      return a > b;
    case Compare::ge:
      return a >= b;
  }
  return false;
}

}  // namespace

bool compare(Compare op, const Tensor& out, const Tensor& a, const Tensor& b) {
  const Walk<2> walk(out.shape(),
                     {steps_of(a.shape(), out.shape()), steps_of(b.shape(), out.shape())});
  if (out.numel() == 0) return true;
  const std::int64_t row = walk.row(), step_a = walk.row_step(0), step_b = walk.row_step(1);
  visit(a.dtype(), [&]<class T>() {
    using C = functor::computed<T>;
    bool* to = out.data<bool>();
    const T *left = a.data<T>(), *right = b.data<T>();
    parallel_for(walk.rows(), row, [&](std::int64_t begin, std::int64_t end) {
      walk.each_row(begin, end, [&](std::int64_t at, const Walk<2>::Places& places) {
        const T *from_a = left + places[0], *from_b = right + places[1];
        for (std::int64_t i = 0; i < row; ++i) {
          to[at * row + i] =
              holds(op, static_cast<C>(from_a[i * step_a]), static_cast<C>(from_b[i * step_b]));
        }
      });
    });
  });
  return true;
}

bool where(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Walk<3> walk(out.shape(),
                     {steps_of(condition.shape(), out.shape()), steps_of(a.shape(), out.shape()),
                      steps_of(b.shape(), out.shape())});
  if (out.numel() == 0) return true;
  const std::int64_t row = walk.row();
  const std::int64_t step_c = walk.row_step(0), step_a = walk.row_step(1),
                     step_b = walk.row_step(2);
  visit(out.dtype(), [&]<class T>() {
    T* to = out.data<T>();
    const bool* picks = condition.data<bool>();
    const T *left = a.data<T>(), *right = b.data<T>();
    parallel_for(walk.rows(), row, [&](std::int64_t begin, std::int64_t end) {
      walk.each_row(begin, end, [&](std::int64_t at, const Walk<3>::Places& places) {
        const bool* pick = picks + places[0];
        const T *from_a = left + places[1], *from_b = right + places[2];
        for (std::int64_t i = 0; i < row; ++i) {
          to[at * row + i] = pick[i * step_c] ? from_a[i * step_a] : from_b[i * step_b];
        }
      });
    });
  });
  return true;
}

bool cast(const Tensor& out, const Tensor& x) {
  visit(x.dtype(), [&]<class From>() {
    const From* from = x.data<From>();
    visit(out.dtype(), [&]<class To>() {
      To* to = out.data<To>();
      using Wide = functor::computed<To>;
      parallel_for(out.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
        if constexpr (std::is_same_v<To, float> && !std::is_same_v<functor::computed<From>, From>) {
          width_loops<From>().widen(to + begin, from + begin, end - begin);
        } else if constexpr (std::is_same_v<From, float> && !std::is_same_v<Wide, To>) {
          width_loops<To>().narrow(to + begin, from + begin, end - begin);
        } else {
          for (std::int64_t i = begin; i < end; ++i) {
            to[i] =
                static_cast<To>(static_cast<Wide>(static_cast<functor::computed<From>>(from[i])));
          }
        }
      });
    });
  });
  return true;
}

}  // namespace peal::cpu
