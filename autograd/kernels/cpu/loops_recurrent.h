// SPDX-License-Identifier: Apache-2.0
// The rows of recurrent_rows.h in f32. Part of loops_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops_math.h>
#include <peal/autograd/kernels/cpu/recurrent_rows.h>

#include <cstdint>

namespace peal::cpu::PEAL_LEVEL {
namespace {

struct GateMath {
  static PEAL_ELEMENT float sigmoid(float x) { return logistic(x); }
  static PEAL_ELEMENT float tanh(float x) { return hyperbolic_tangent(x); }
};

void lstm(float* gates, const float* before, float* cell, float* h, std::int64_t n) {
  lstm_row<GateMath>(gates, before, cell, h, n);
}
void lstm_backward(float* dgates, float* dc, const float* dh, const float* gates,
                   const float* before, const float* cell, std::int64_t n) {
  lstm_row_backward<GateMath>(dgates, dc, dh, gates, before, cell, n);
}
void gru(float* gates, float* inner, const float* products, const float* before, float* h,
         std::int64_t n) {
  gru_row<GateMath>(gates, inner, products, before, h, n);
}
void gru_backward(float* dgates, float* dproducts, float* dh, const float* gates,
                  const float* inner, const float* before, std::int64_t n) {
  gru_row_backward(dgates, dproducts, dh, gates, inner, before, n);
}

constexpr RecurrentLoops recurrent_loops_here = {
    .lstm = lstm, .lstm_backward = lstm_backward, .gru = gru, .gru_backward = gru_backward};

}  // namespace

const RecurrentLoops& all_recurrent_loops() { return recurrent_loops_here; }

}  // namespace peal::cpu::PEAL_LEVEL
