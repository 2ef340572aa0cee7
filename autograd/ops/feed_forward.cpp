// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/feed_forward.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/product.h>
#include <peal/autograd/tape.h>

#include <array>

namespace peal {

Tensor feed_forward(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                    const Tensor& down_bias, GeluApproximation approximation) {
  constexpr std::string_view op = "feed_forward";
  const OpName name(op);
  const bool low = lowers(x, up, up_bias, down, down_bias);
  if (low && x.device().type != DeviceType::cpu) {
    return feed_forward(lowered(x), lowered(up), lowered(up_bias), lowered(down),
                        lowered(down_bias), approximation);
  }
  if (low) return linear(gelu(linear(x, up, up_bias), approximation), down, down_bias);
  const LinearSizes first = linear_sizes(op, x, x.shape(), up, up_bias);
  const LinearSizes second = linear_sizes(op, x, first.result, down, down_bias);
  const auto fused = kernels(x.device()).matmul_gelu;
  if (approximation != GeluApproximation::tanh || !fused) {
    return linear(gelu(linear(x, up, up_bias), approximation), down, down_bias);
  }
  TraceSpan span(op);
  const Tensor hidden = Tensor::empty({first.rows, first.out}, x.dtype(), x.device());
  const std::array inputs = {x, up, up_bias, down, down_bias};
  const Tensor kept =
      wants_grad(inputs) ? Tensor::empty(hidden.shape(), x.dtype(), x.device()) : Tensor();
  fused(op, x, hidden, kept, x.detach({first.rows, first.in}), up, up_bias);
  const Tensor y = product(op, hidden, down, false, true, down_bias).detach(second.result);
  return record(
      op, y, {x, up, up_bias, down, down_bias},
      [op, x = save(x), up = save(up), down = save(down), hidden, kept, first, second](
          const Tensor& g, Needs needs) {
        Tensors grads(5);
        const Tensor flat = g.detach({second.rows, second.out});
        linear_gradients(op, flat, hidden, needs[3] ? &grads[3] : nullptr,
                         needs[4] ? &grads[4] : nullptr, g.dtype());
        if (!needs[0] && !needs[1] && !needs[2]) return grads;
        const Tensor slope = Tensor::empty(hidden.shape(), g.dtype(), g.device());
        if (needs[2]) grads[2] = Tensor::empty({first.out}, g.dtype(), g.device());
        kernels(g.device()).matmul_gelu_backward(op, g, slope, grads[2], flat, down(), kept);
        if (needs[1])
          grads[1] = product(op, slope, x().detach({first.rows, first.in}), true, false);
        if (needs[0]) grads[0] = product(op, slope, up(), false, false).detach(x().shape());
        return grads;
      });
}

}  // namespace peal
