// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/spread.h>
#include <peal/nn/optim/muon.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace peal::nn {
namespace {

namespace muon_at {  // of settings
enum : std::size_t { lr, weight_decay, momentum, a, b, c, eps, steps, rate, nesterov };
}

// U V^T, nearly, of g = U S V^T.
Tensor orthogonalised(const Tensor& g, std::span<const double> s) {
  const bool tall = g.size(0) > g.size(1);
  Tensor x = tall ? transpose(g, 0, 1) : g;
  x = x / clamp(norm(x), s[muon_at::eps]);  // singular values of at most 1
  for (double step = 0; step < s[muon_at::steps]; ++step) {
    const Tensor gram = matmul(x, transpose(x, 0, 1));
    const Tensor update = gram * s[muon_at::b] + matmul(gram, gram) * s[muon_at::c];
    x = x * s[muon_at::a] + matmul(update, x);
  }
  return tall ? transpose(x, 0, 1) : x;
}

double adjusted(double lr, MuonRate rate, const Shape& shape) {
  const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  switch (rate) {
    case MuonRate::original:
      return lr * std::sqrt(std::max(1.0, rows / columns));
    case MuonRate::match_rms_adamw:
      return lr * 0.2 * std::sqrt(std::max(rows, columns));
    case MuonRate::spectral_unclamped:
      return lr * std::sqrt(rows / columns);
  }
  return lr;
}

}  // namespace

Muon::Names Muon::names() {
  constexpr double unbounded = std::numeric_limits<double>::infinity();
  return {"Muon",
          {{"lr"},
           {"weight_decay"},
           {"momentum"},
           {"ns_a", -unbounded},
           {"ns_b", -unbounded},
           {"ns_c", -unbounded},
           {"eps"},
           {"ns_steps", 0, 100},
           {"adjust_lr_fn", 0, 3}},
          {"nesterov", "maximize"},
          {"momentum_buffer"},
          {},
          {},
          true};
}
std::vector<double> Muon::settings_of(const MuonOptions& o) {
  return {o.lr,
          o.weight_decay,
          o.momentum,
          o.ns_a,
          o.ns_b,
          o.ns_c,
          o.eps,
          static_cast<double>(o.ns_steps),
          static_cast<double>(o.adjust_lr_fn),
          o.nesterov ? 1.0 : 0,
          o.maximize ? 1.0 : 0};
}
Shape Muon::state_shape(std::size_t, const Shape& parameter) const {
  PEAL_CHECK(parameter.dim() == 2, "Muon: expected matrices, got a parameter of shape ", parameter,
             "; give it to another optimizer, AdamW for example");
  return parameter;
}
void Muon::update_one(const Stepped& one, const Tensor& g, bool, const Now& now) const {
  const std::span<const double> s = now.settings;
  const Tensor &p = one.param, &buffer = one.first;
  if (p.numel() == 0) return;
  const double momentum = s[muon_at::momentum], lr = s[muon_at::lr];
  add_(buffer, g - buffer, 1 - momentum);
  const Tensor along = s[muon_at::nesterov] != 0 ? g + (buffer - g) * momentum : buffer;
  const Tensor update = orthogonalised(along, s);
  mul_(p, 1 - lr * s[muon_at::weight_decay]);
  add_(p, update, -adjusted(lr, static_cast<MuonRate>(s[muon_at::rate]), p.shape()));
}

}  // namespace peal::nn
