// SPDX-License-Identifier: Apache-2.0
// Fused optimizer steps against PyTorch's formulas written out, in f64, and f32 beside f64.
#include <peal/autograd/ops/optimizer.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using test::distance;
using test::doubles;
using test::normal;

namespace {

constexpr std::int64_t n = 67;

std::vector<double> plain_sgd(const SgdStep& o, int steps) {
  std::vector<double> p = doubles(normal<double>({n}, 1)), b(p.size());
  for (int s = 0; s < steps; ++s) {
    const auto grads = doubles(normal<double>({n}, 10 + static_cast<unsigned>(s)));
    for (std::size_t i = 0; i < p.size(); ++i) {
      double g = grads[i] + o.weight_decay * p[i];
      if (o.momentum != 0) {
        b[i] = s == 0 ? g : o.momentum * b[i] + (1 - o.dampening) * g;
        g = o.nesterov ? g + o.momentum * b[i] : b[i];
      }
      p[i] -= o.lr * g;
    }
  }
  return p;
}

template <class T>
std::vector<double> fused_sgd(SgdStep o, int steps) {
  const Tensor p = normal<T>({n}, 1), b = Tensor::empty({n}, p.dtype());
  test::doubles(p);
  for (int s = 0; s < steps; ++s) {
    o.first = s == 0;
    sgd_step(p, normal<T>({n}, 10 + static_cast<unsigned>(s)), o.momentum != 0 ? b : Tensor(), o);
  }
  return doubles(p);
}

std::vector<double> plain_adam(const AdamStep& o, int steps) {
  std::vector<double> p = doubles(normal<double>({n}, 1)), m(p.size()), v(p.size());
  for (int s = 1; s <= steps; ++s) {
    const auto grads = doubles(normal<double>({n}, 10 + static_cast<unsigned>(s)));
    for (std::size_t i = 0; i < p.size(); ++i) {
      double g = grads[i];
      if (o.decoupled) {
        p[i] *= 1 - o.lr * o.weight_decay;
      } else {
        g += o.weight_decay * p[i];
      }
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(o.beta1, s));
      const double v_hat = v[i] / (1 - std::pow(o.beta2, s));
      p[i] -= o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
    }
  }
  return p;
}

template <class T>
std::vector<double> fused_adam(AdamStep o, int steps) {
  const Tensor p = normal<T>({n}, 1);
  const Tensor m = Tensor::zeros({n}, p.dtype()), v = Tensor::zeros({n}, p.dtype());
  const auto version = p.storage()->version();
  for (int s = 1; s <= steps; ++s) {
    o.step = s;
    adam_step(p, normal<T>({n}, 10 + static_cast<unsigned>(s)), m, v, o);
  }
  CHECK(p.storage()->version() == version + static_cast<std::uint64_t>(steps));
  return doubles(p);
}

}  // namespace

TEST_CASE("SGD with momentum, dampening, Nesterov and weight decay") {
  for (const SgdStep& o :
       {SgdStep{.lr = 0.1}, SgdStep{.lr = 0.1, .weight_decay = 0.01},
        SgdStep{.lr = 0.1, .momentum = 0.9},
        SgdStep{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1},
        SgdStep{.lr = 0.1, .momentum = 0.9, .nesterov = true}}) {
    CHECK(distance(fused_sgd<double>(o, 5), plain_sgd(o, 5)) < 1e-14);
    CHECK(distance(fused_sgd<float>(o, 5), plain_sgd(o, 5)) < 1e-6);
  }
}

TEST_CASE("Adam and AdamW") {
  for (const AdamStep& o :
       {AdamStep{.lr = 0.1}, AdamStep{.lr = 0.1, .weight_decay = 0.2},
        AdamStep{.lr = 0.1, .weight_decay = 0.2, .decoupled = true},
        AdamStep{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3, .decoupled = true}}) {
    CHECK(distance(fused_adam<double>(o, 7), plain_adam(o, 7)) < 1e-13);
    CHECK(distance(fused_adam<float>(o, 7), plain_adam(o, 7)) < 1e-5);
  }
}
