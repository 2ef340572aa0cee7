// SPDX-License-Identifier: Apache-2.0
// Recurrent layers, step by step: cuBLASLt's product with the state, added to what the input
// brought, and one kernel over what it gives. Nothing waits, so a sequence can be captured.
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/kernels/cuda/cublaslt.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/dispatch.h>
#include <peal/autograd/kernels/recurrent_step.h>

#include <cmath>

namespace peal::cuda {

using functor::computed;

namespace {

template <class C>
struct DeviceGates {
  static PEAL_ELEMENT C sigmoid(C x) { return C(1) / (C(1) + std::exp(-x)); }
  static PEAL_ELEMENT C tanh(C x) { return std::tanh(x); }
};

// out = a b, or b's transpose, or out += that.
bool step_product(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_b, bool add) {
  const RowProduct o = dense_product(out.size(0), out.size(1), a.size(1), false, transpose_b);
  return multiply(o, {a.dtype(), out.dtype()}, out.device(), {out.raw(), a.raw(), b.raw()}, 1, add);
}

// The arrays of one step: planes [N, H], gates [N, G H].
template <class T>
struct StepArrays {
  using C = computed<T>;
  RecurrentCell cell;
  std::int64_t hidden, t;
  const std::int64_t* lengths;  // null: all go on
  T *gates, *inner;             // inner: gru's
  const T *before, *cell_before;
  T *after, *cell_after;

  __device__ bool goes_on(std::int64_t row) const { return lengths == nullptr || t < lengths[row]; }
  // Of element i of a plane, the first of its gates; the others follow `hidden` apart.
  __device__ std::int64_t gate(std::int64_t i, int count) const {
    return i / hidden * (count - 1) * hidden + i;
  }
  __device__ C read(const T* x, std::int64_t i) const { return static_cast<C>(x[i]); }
  __device__ functor::LstmGates<C> lstm_gates(std::int64_t at) const {
    return {read(gates, at), read(gates, at + hidden), read(gates, at + 2 * hidden),
            read(gates, at + 3 * hidden)};
  }
  __device__ functor::GruGates<C> gru_gates(const T* x, std::int64_t at) const {
    return {read(x, at), read(x, at + hidden), read(x, at + 2 * hidden)};
  }
  __device__ void put(T* x, std::int64_t at, const functor::LstmGates<C>& g) const {
    x[at] = static_cast<T>(g.input);
    x[at + hidden] = static_cast<T>(g.forget);
    x[at + 2 * hidden] = static_cast<T>(g.fresh);
    x[at + 3 * hidden] = static_cast<T>(g.output);
  }
  __device__ void put(T* x, std::int64_t at, const functor::GruGates<C>& g) const {
    x[at] = static_cast<T>(g.reset);
    x[at + hidden] = static_cast<T>(g.update);
    x[at + 2 * hidden] = static_cast<T>(g.fresh);
  }
};

template <class T>
struct RecurrentStep {
  using C = computed<T>;
  StepArrays<T> a;
  const T* products;  // gru's
  const T* bias;      // or null; of gru the products have it
  T* y;               // or null

  __device__ void operator()(std::int64_t i) const {
    const bool goes_on = a.goes_on(i / a.hidden);
    if (goes_on) {
      a.after[i] = static_cast<T>(made(i));
    } else {
      a.after[i] = a.before[i];
      if (a.cell == RecurrentCell::lstm) a.cell_after[i] = a.cell_before[i];
    }
    if (y != nullptr) y[i] = goes_on ? a.after[i] : static_cast<T>(C(0));
  }
  // The bias of the k-th gate.
  __device__ C added(std::int64_t i, int k) const {
    return bias != nullptr ? static_cast<C>(bias[k * a.hidden + i % a.hidden]) : C(0);
  }
  __device__ C made(std::int64_t i) const {
    switch (a.cell) {
      case RecurrentCell::lstm: {
        const std::int64_t at = a.gate(i, 4);
        functor::LstmGates<C> gates = a.lstm_gates(at);
        gates.input += added(i, 0);
        gates.forget += added(i, 1);
        gates.fresh += added(i, 2);
        gates.output += added(i, 3);
        C cell;
        const C h = functor::lstm_step<DeviceGates<C>>(gates, a.read(a.cell_before, i), cell);
        a.cell_after[i] = static_cast<T>(cell);
        a.put(a.gates, at, gates);
        return h;
      }
      case RecurrentCell::gru: {
        const std::int64_t at = a.gate(i, 3);
        functor::GruGates<C> gates = a.gru_gates(a.gates, at);
        const functor::GruGates<C> with_state = a.gru_gates(products, at);
        const C h = functor::gru_step<DeviceGates<C>>(gates, with_state, a.read(a.before, i));
        a.inner[i] = static_cast<T>(with_state.fresh);
        a.put(a.gates, at, gates);
        return h;
      }
      case RecurrentCell::tanh:
        return std::tanh(a.read(a.gates, i) + added(i, 0));
      case RecurrentCell::relu: {
        const C x = a.read(a.gates, i) + added(i, 0);
        return x <= C(0) ? C(0) : x;
      }
    }
    return C(0);
  }
};

template <class T>
struct RecurrentSlope {
  using C = computed<T>;
  StepArrays<T> a;
  T *dgates, *dproducts;  // dproducts: gru's
  T *dh, *dc;
  const T* dy;  // or null
  bool keeps;   // the product is added to dh

  __device__ void operator()(std::int64_t i) const {
    const int count = a.cell == RecurrentCell::lstm ? 4 : a.cell == RecurrentCell::gru ? 3 : 1;
    const std::int64_t at = a.gate(i, count);
    if (!a.goes_on(i / a.hidden)) {
      for (int k = 0; k < count; ++k) {
        dgates[at + k * a.hidden] = static_cast<T>(C(0));
        if (dproducts != nullptr) dproducts[at + k * a.hidden] = static_cast<T>(C(0));
      }
      return;
    }
    C d = a.read(dh, i) + (dy != nullptr ? a.read(dy, i) : C(0));
    const C h = a.read(a.after, i);
    switch (a.cell) {
      case RecurrentCell::lstm: {
        C rest = a.read(dc, i);
        a.put(dgates, at,
              functor::lstm_slope<DeviceGates<C>>(a.lstm_gates(at), a.read(a.cell_before, i),
                                                  a.read(a.cell_after, i), d, rest));
        dc[i] = static_cast<T>(rest);
        break;
      }
      case RecurrentCell::gru: {
        const functor::GruGates<C> gates = a.gru_gates(a.gates, at);
        functor::GruGates<C> slope =
            functor::gru_slope(gates, a.read(a.inner, i), a.read(a.before, i), d);
        a.put(dgates, at, slope);
        slope.fresh *= gates.reset;
        a.put(dproducts, at, slope);
        dh[i] = static_cast<T>(d);
        return;
      }
      case RecurrentCell::tanh:
        dgates[at] = static_cast<T>(d * (C(1) - h * h));
        break;
      case RecurrentCell::relu:
        dgates[at] = static_cast<T>(h <= C(0) ? C(0) : d);
        break;
    }
    if (keeps) dh[i] = static_cast<T>(C(0));
  }
};

template <class T>
T* step_plane(const Tensor& x, std::int64_t number, std::int64_t plane) {
  return x.defined() ? pointer<T>(x) + number * plane : nullptr;
}

template <class T>
StepArrays<T> arrays_of(const RecurrentGeometry& o, std::int64_t t, const Tensor& states,
                        const Tensor& inner, const Tensor& gates, const Tensor& lengths) {
  const std::int64_t plane = o.batch * o.hidden;
  const Tensor cells = o.cell == RecurrentCell::lstm ? inner : Tensor();
  return {o.cell,
          o.hidden,
          t,
          pointer<const std::int64_t>(lengths),
          step_plane<T>(gates, t, o.gates() * plane),
          o.cell == RecurrentCell::gru ? step_plane<T>(inner, t, plane) : nullptr,
          step_plane<T>(states, o.before(t), plane),
          step_plane<T>(cells, o.before(t), plane),
          step_plane<T>(states, o.after(t), plane),
          step_plane<T>(cells, o.after(t), plane)};
}

}  // namespace

bool recurrent(const RecurrentGeometry& o, const Tensor& states, const Tensor& inner,
               const Tensor& gates, const Tensor& y, const Tensor& weight, const Tensor& bias,
               const Tensor& lengths) {
  const std::int64_t plane = o.batch * o.hidden, wide = o.gates() * o.hidden;
  const bool is_gru = o.cell == RecurrentCell::gru;
  const Tensor products =
      is_gru ? Tensor::empty({o.batch, wide}, states.dtype(), states.device()) : Tensor();
  bool served = true;
  for (std::int64_t i = 0; i < o.steps && served; ++i) {
    const std::int64_t t = o.step(i);
    const Tensor before = states.detach({o.batch, o.hidden}, o.before(t) * plane);
    served = is_gru ? matmul(products, before, weight, false, true, bias)
                    : step_product(gates.detach({o.batch, wide}, t * o.batch * wide), before,
                                   weight, true, true);
    served = served && with_floating(states.dtype(), [&]<class T>() {
               for_each(states, plane,
                        RecurrentStep<T>{arrays_of<T>(o, t, states, inner, gates, lengths),
                                         pointer<const T>(products),
                                         is_gru ? nullptr : pointer<const T>(bias),
                                         step_plane<T>(y, t, plane)});
             });
  }
  return served;
}

bool recurrent_backward(const RecurrentGeometry& o, const Tensor& dgates, const Tensor& dproducts,
                        const Tensor& dh, const Tensor& dc, const Tensor& dy, const Tensor& states,
                        const Tensor& inner, const Tensor& gates, const Tensor& weight,
                        const Tensor& lengths) {
  const std::int64_t plane = o.batch * o.hidden, wide = o.gates() * o.hidden;
  const bool is_gru = o.cell == RecurrentCell::gru, keeps = is_gru || lengths.defined();
  bool served = true;
  for (std::int64_t i = o.steps - 1; i >= 0 && served; --i) {
    const std::int64_t t = o.step(i);
    served = with_floating(states.dtype(), [&]<class T>() {
      for_each(states, plane,
               RecurrentSlope<T>{arrays_of<T>(o, t, states, inner, gates, lengths),
                                 step_plane<T>(dgates, t, o.batch * wide),
                                 step_plane<T>(dproducts, t, o.batch * wide), pointer<T>(dh),
                                 pointer<T>(dc), step_plane<T>(dy, t, plane), keeps});
    });
    const Tensor& through = is_gru ? dproducts : dgates;
    served = served && step_product(dh, through.detach({o.batch, wide}, t * o.batch * wide), weight,
                                    false, keeps);
  }
  return served;
}

}  // namespace peal::cuda
