// SPDX-License-Identifier: Apache-2.0
// Recurrent layers, step by step: a product with the state, from a copy of the weight that all
// steps share, and one pass over what it gives.
#include <peal/autograd/kernels/cpu/gemm.h>
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/panels.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/recurrent_rows.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/dispatch.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace peal::cpu {
namespace {

struct DoubleMath {
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double tanh(double x) { return std::tanh(x); }
};

constexpr RecurrentLoops no_loops{};

// The rows of either type by one spelling.
template <class T>
struct GateRows {
  static constexpr bool wide = std::is_same_v<T, double>;
  const RecurrentLoops& loops = wide ? no_loops : recurrent_loops();

  void lstm(T* gates, const T* before, T* cell, T* h, std::int64_t n) const {
    if constexpr (wide) {
      lstm_row<DoubleMath>(gates, before, cell, h, n);
    } else {
      loops.lstm(gates, before, cell, h, n);
    }
  }
  void lstm_backward(T* dgates, T* dc, const T* dh, const T* gates, const T* before, const T* cell,
                     std::int64_t n) const {
    if constexpr (wide) {
      lstm_row_backward<DoubleMath>(dgates, dc, dh, gates, before, cell, n);
    } else {
      loops.lstm_backward(dgates, dc, dh, gates, before, cell, n);
    }
  }
  void gru(T* gates, T* inner, const T* products, const T* before, T* h, std::int64_t n) const {
    if constexpr (wide) {
      gru_row<DoubleMath>(gates, inner, products, before, h, n);
    } else {
      loops.gru(gates, inner, products, before, h, n);
    }
  }
  void gru_backward(T* dgates, T* dproducts, T* dh, const T* gates, const T* inner, const T* before,
                    std::int64_t n) const {
    if constexpr (wide) {
      gru_row_backward(dgates, dproducts, dh, gates, inner, before, n);
    } else {
      loops.gru_backward(dgates, dproducts, dh, gates, inner, before, n);
    }
  }
  void function(RecurrentCell cell, T* h, const T* x, std::int64_t n) const {
    if (cell == RecurrentCell::relu) return cpu::loops<T>().unary(Unary::relu, h, x, 0, n);
    if constexpr (wide) {
      for (std::int64_t i = 0; i < n; ++i) h[i] = std::tanh(x[i]);
    } else {
      pointwise_loops<float>().math(Pointwise::tanh, h, x, 0, 0, n);
    }
  }
  void slope(RecurrentCell cell, T* dx, const T* dh, const T* h, std::int64_t n) const {
    if (cell == RecurrentCell::relu) {
      return cpu::loops<T>().binary(Binary::relu_backward, Repeat::none, dx, dh, h, n);
    }
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) dx[i] = dh[i] * (T(1) - h[i] * h[i]);
  }
};

// The products of all steps with one weight.
template <class T>
class StepProduct {
 public:
  StepProduct(const RecurrentGeometry& o, const Tensor& weight, bool transposed)
      : weight_(weight.data<T>()),
        o_{o.batch, weight.size(transposed ? 0 : 1), weight.size(transposed ? 1 : 0), false,
           transposed} {
    if constexpr (std::is_same_v<T, float>) {
      if (o.steps > 1 && Panels::worth(o.steps * o.batch, o_.k, o_.n)) {
        panels_.emplace(weight_, o_.k, o_.n, transposed);
      }
    }
  }

  // out = a weight, or out += that.
  void operator()(T* out, const T* a, bool add) const {
    if constexpr (std::is_same_v<T, float>) {
      if (panels_) return panels_->multiply(out, a, o_.m, add);
    }
    gemm(out, a, weight_, o_, add);
  }

 private:
  const T* weight_;
  Product o_;
  std::optional<Panels> panels_;
};

template <class T>
T* array_of(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

// f(row) for the sequences, of which each has `wide` numbers.
template <class F>
void each_sequence(const RecurrentGeometry& o, std::int64_t wide, F&& f) {
  parallel_for(o.batch, wide * 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

template <class T>
void run_sequence(const RecurrentGeometry& o, const Tensor& states, const Tensor& inner,
                  const Tensor& gates, const Tensor& y, const Tensor& weight, const Tensor& bias,
                  const Tensor& lengths) {
  const std::int64_t n = o.hidden, wide = o.gates() * n, plane = o.batch * n;
  const bool is_lstm = o.cell == RecurrentCell::lstm, is_gru = o.cell == RecurrentCell::gru;
  const StepProduct<T> product(o, weight, true);
  const GateRows<T> rows;
  const std::int64_t* length = array_of<std::int64_t>(lengths);
  const T* added = array_of<T>(bias);
  const Tensor scratch =
      is_gru ? Tensor::empty({o.batch, wide}, states.dtype(), Device{}) : Tensor();
  for (std::int64_t i = 0; i < o.steps; ++i) {
    const std::int64_t t = o.step(i);
    const T* before = array_of<T>(states) + o.before(t) * plane;
    T* after = array_of<T>(states) + o.after(t) * plane;
    T* gate = array_of<T>(gates) + t * o.batch * wide;
    T* products = is_gru ? array_of<T>(scratch) : gate;
    product(products, before, !is_gru);
    each_sequence(o, wide, [&](std::int64_t row) {
      const std::int64_t first = row * n;
      const bool goes_on = length == nullptr || t < length[row];
      T* h = after + first;
      if (added != nullptr) {
        T* own = products + row * wide;
        loops<T>().binary(Binary::add, Repeat::none, own, own, added, wide);
      }
      if (!goes_on) {
        std::copy_n(before + first, n, h);
        if (is_lstm) {
          std::copy_n(array_of<T>(inner) + o.before(t) * plane + first, n,
                      array_of<T>(inner) + o.after(t) * plane + first);
        }
      } else if (is_lstm) {
        rows.lstm(gate + row * wide, array_of<T>(inner) + o.before(t) * plane + first,
                  array_of<T>(inner) + o.after(t) * plane + first, h, n);
      } else if (is_gru) {
        rows.gru(gate + row * wide, array_of<T>(inner) + t * plane + first, products + row * wide,
                 before + first, h, n);
      } else {
        rows.function(o.cell, h, gate + row * wide, n);
      }
      if (length == nullptr) return;
      T* out = array_of<T>(y) + t * plane + first;
      goes_on ? std::copy_n(h, n, out) : std::fill_n(out, n, T(0));
    });
  }
}

template <class T>
void run_sequence_back(const RecurrentGeometry& o, const Tensor& dgates, const Tensor& dproducts,
                       const Tensor& dh, const Tensor& dc, const Tensor& dy, const Tensor& states,
                       const Tensor& inner, const Tensor& gates, const Tensor& weight,
                       const Tensor& lengths) {
  const std::int64_t n = o.hidden, wide = o.gates() * n, plane = o.batch * n;
  const bool is_lstm = o.cell == RecurrentCell::lstm, is_gru = o.cell == RecurrentCell::gru;
  const StepProduct<T> product(o, weight, false);
  const GateRows<T> rows;
  const std::int64_t* length = array_of<std::int64_t>(lengths);
  // Whether dh keeps something that the product is added to.
  const bool keeps = is_gru || length != nullptr;
  for (std::int64_t i = o.steps - 1; i >= 0; --i) {
    const std::int64_t t = o.step(i);
    T* made = array_of<T>(dgates) + t * o.batch * wide;
    T* of_products = is_gru ? array_of<T>(dproducts) + t * o.batch * wide : made;
    each_sequence(o, wide, [&](std::int64_t row) {
      const std::int64_t first = row * n;
      T* d = array_of<T>(dh) + first;
      if (length != nullptr && t >= length[row]) {
        std::fill_n(made + row * wide, wide, T(0));
        if (is_gru) std::fill_n(of_products + row * wide, wide, T(0));
        return;
      }
      if (dy.defined()) loops<T>().axpy(d, array_of<T>(dy) + t * plane + first, 1, n);
      if (is_lstm) {
        rows.lstm_backward(made + row * wide, array_of<T>(dc) + first, d,
                           array_of<T>(gates) + (t * o.batch + row) * wide,
                           array_of<T>(inner) + o.before(t) * plane + first,
                           array_of<T>(inner) + o.after(t) * plane + first, n);
      } else if (is_gru) {
        return rows.gru_backward(made + row * wide, of_products + row * wide, d,
                                 array_of<T>(gates) + (t * o.batch + row) * wide,
                                 array_of<T>(inner) + t * plane + first,
                                 array_of<T>(states) + o.before(t) * plane + first, n);
      } else {
        rows.slope(o.cell, made + row * wide, d, array_of<T>(states) + o.after(t) * plane + first,
                   n);
      }
      if (keeps) std::fill_n(d, n, T(0));
    });
    product(array_of<T>(dh), of_products, keeps);
  }
}

}  // namespace

bool recurrent(const RecurrentGeometry& o, const Tensor& states, const Tensor& inner,
               const Tensor& gates, const Tensor& y, const Tensor& weight, const Tensor& bias,
               const Tensor& lengths) {
  return with_real(states.dtype(), [&]<class T>() {
    run_sequence<T>(o, states, inner, gates, y, weight, bias, lengths);
  });
}

bool recurrent_backward(const RecurrentGeometry& o, const Tensor& dgates, const Tensor& dproducts,
                        const Tensor& dh, const Tensor& dc, const Tensor& dy, const Tensor& states,
                        const Tensor& inner, const Tensor& gates, const Tensor& weight,
                        const Tensor& lengths) {
  return with_real(dgates.dtype(), [&]<class T>() {
    run_sequence_back<T>(o, dgates, dproducts, dh, dc, dy, states, inner, gates, weight, lengths);
  });
}

}  // namespace peal::cpu
