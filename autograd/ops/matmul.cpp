// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/product.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

namespace peal {
Tensor product(std::string_view op, const Tensor& a, const Tensor& b, bool transpose_a,
               bool transpose_b, const Tensor& bias) {
  Tensor out = Tensor::empty({a.size(transpose_a ? 1 : 0), b.size(transpose_b ? 0 : 1)}, a.dtype(),
                             a.device());
  kernels(a.device()).matmul(op, a, out, a, b, transpose_a, transpose_b, bias);
  return out;
}

namespace {

Shape leading(const Shape& shape) { return Shape(std::span(shape.begin(), shape.end() - 2)); }

// x's matrices as [B, M, N] with B those of `batch`: copied where they are stretched.
Tensor stretched(const Tensor& x, const Shape& batch) {
  Shape shape = batch;
  shape.push_back(x.size(-2));
  shape.push_back(x.size(-1));
  Tensor all = x;
  if (shape.numel() != x.numel()) {
    all = Tensor::empty(shape, x.dtype(), x.device());
    kernels(x.device()).expand("matmul", x, all, x, 1.0);
  }
  return all.detach({batch.numel(), x.size(-2), x.size(-1)});
}

// One product for each matrix of the batch.
Tensor products(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b,
                const Shape& batch) {
  const Tensor left = stretched(a, batch), right = stretched(b, batch);
  Shape shape = batch;
  shape.push_back(left.size(transpose_a ? 2 : 1));
  shape.push_back(right.size(transpose_b ? 1 : 2));
  const Tensor out = Tensor::empty(shape, a.dtype(), a.device());
  kernels(a.device())
      .batched_matmul("matmul", a, out.detach({batch.numel(), shape[-2], shape[-1]}), left, right,
                      transpose_a, transpose_b);
  return out;
}

// The gradients of matmul as ops, to be differentiated in turn.
Tensors gradients_of_ops(const Tensor& g, const Tensor& a, const Tensor& b, bool ta, bool tb,
                         Needs needs) {
  Tensors grads(2);
  if (needs[0])
    grads[0] = sum_to(ta ? matmul(b, g, tb, true) : matmul(g, b, false, !tb), a.shape());
  if (needs[1])
    grads[1] = sum_to(tb ? matmul(g, a, true, ta) : matmul(a, g, !ta, false), b.shape());
  return grads;
}

// Error where there are no columns of a for the rows of b.
void check_chain(const Tensor& a, const Tensor& b, bool ta, bool tb) {
  check_alike("matmul", a, b);
  PEAL_CHECK(a.dim() > 0 && b.dim() > 0, "matmul: expected vectors or matrices, got shapes ",
             a.shape(), " and ", b.shape());
  PEAL_CHECK(!(ta && a.dim() == 1) && !(tb && b.dim() == 1),
             "matmul: a vector cannot be transposed, got shapes ", a.shape(), " and ", b.shape());
  const std::int64_t columns = a.dim() == 1 ? a.size(0) : a.size(ta ? -2 : -1);
  const std::int64_t rows = b.dim() == 1 ? b.size(0) : b.size(tb ? -1 : -2);
  PEAL_CHECK(columns == rows, "matmul: shapes ", a.shape(), ta ? " transposed" : "", " and ",
             b.shape(), tb ? " transposed" : "", " do not chain: ", columns, " columns meet ", rows,
             " rows");
}

Tensor batched(const Tensor& a, const Tensor& b, bool ta, bool tb) {
  const Shape batch = broadcast("matmul", leading(a.shape()), leading(b.shape()));
  return record("matmul", products(a, b, ta, tb, batch), {a, b},
                [a = save(a), b = save(b), ta, tb, batch](const Tensor& g, Needs needs) {
                  Tensors grads(2);
                  if (backward_is_recorded()) return gradients_of_ops(g, a(), b(), ta, tb, needs);
                  if (needs[0]) {
                    const Tensor all = ta ? products(b(), g, tb, true, batch)
                                          : products(g, b(), false, !tb, batch);
                    grads[0] = sum_to(all, a().shape());
                  }
                  if (needs[1]) {
                    const Tensor all = tb ? products(g, a(), true, ta, batch)
                                          : products(a(), g, !ta, false, batch);
                    grads[1] = sum_to(all, b().shape());
                  }
                  return grads;
                });
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  const OpName op("matmul");
  if (lowers(a, b)) return matmul(lowered(a), lowered(b), transpose_a, transpose_b);
  check_chain(a, b, transpose_a, transpose_b);
  if (a.dim() == 1)
    return squeeze(matmul(unsqueeze(a, 0), b, false, transpose_b), b.dim() == 1 ? 0 : -2);
  if (b.dim() == 1) return squeeze(matmul(a, unsqueeze(b, 1), transpose_a), -1);
  // Many matrices times one are one matrix of all their rows.
  if (a.dim() > 2 && b.dim() == 2 && !transpose_a) {
    Shape result = a.shape();
    result[-1] = b.size(transpose_b ? 0 : 1);
    const std::int64_t rows = leading(a.shape()).numel() * a.size(-2);
    return reshaped(matmul(reshaped(a, {rows, a.size(-1)}), b, false, transpose_b), result);
  }
  TraceSpan span("matmul");
  if (a.dim() > 2 || b.dim() > 2) return batched(a, b, transpose_a, transpose_b);
  return record("matmul", product("matmul", a, b, transpose_a, transpose_b), {a, b},
                [a = save(a), b = save(b), transpose_a, transpose_b](const Tensor& g, Needs needs) {
                  Tensors grads(2);
                  if (backward_is_recorded()) {
                    return gradients_of_ops(g, a(), b(), transpose_a, transpose_b, needs);
                  }
                  if (needs[0]) {
                    grads[0] = transpose_a ? product("matmul", b(), g, transpose_b, true)
                                           : product("matmul", g, b(), false, !transpose_b);
                  }
                  if (needs[1]) {
                    grads[1] = transpose_b ? product("matmul", g, a(), true, transpose_a)
                                           : product("matmul", a(), g, !transpose_a, false);
                  }
                  return grads;
                });
}

LinearSizes linear_sizes(std::string_view op, const Tensor& x, const Shape& shape,
                         const Tensor& weight, const Tensor& bias) {
  check_alike(op, x, weight);
  PEAL_CHECK(weight.dim() == 2, op, ": expected a weight [out, in], got shape ", weight.shape());
  PEAL_CHECK(shape.dim() >= 1 && shape[-1] == weight.size(1), op, ": input of shape ", shape,
             " does not fit weight [out, in] = ", weight.shape());
  if (bias.defined()) {
    check_alike(op, x, bias);
    PEAL_CHECK(bias.dim() == 1 && bias.size(0) == weight.size(0), op, ": expected a bias [",
               weight.size(0), "], got shape ", bias.shape());
  }
  LinearSizes sizes{1, weight.size(1), weight.size(0), shape};
  for (int i = 0; i + 1 < shape.dim(); ++i) sizes.rows *= shape[i];
  sizes.result[-1] = sizes.out;
  return sizes;
}

void linear_gradients(std::string_view op, const Tensor& g, const Tensor& x, Tensor* weight,
                      Tensor* bias, DType dtype) {
  const Kernels& table = kernels(g.device());
  if (bias != nullptr) *bias = Tensor::empty({g.size(1)}, dtype, g.device());
  if (weight != nullptr) *weight = Tensor::empty({g.size(1), x.size(1)}, dtype, g.device());
  if (weight != nullptr && bias != nullptr && table.matmul_and_sums) {
    return table.matmul_and_sums(op, g, *weight, g, x, true, false, *bias);
  }
  if (weight != nullptr) table.matmul(op, g, *weight, g, x, true, false, {});
  if (bias != nullptr) table.sum(op, g, *bias, g, 0b01, 1.0);
}

namespace {

// A layer whose weight and bias come as they are computed with, and as the parameters that they
// were rounded from, in whose type their gradients are.
Tensor layer(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& parameter,
             const Tensor& bias_parameter) {
  constexpr std::string_view op = "linear";
  TraceSpan span(op);
  const LinearSizes o = linear_sizes(op, x, x.shape(), weight, bias);
  const Tensor y =
      product(op, x.detach({o.rows, o.in}), weight, false, true, bias).detach(o.result);
  return record(op, y, {x, parameter, bias_parameter},
                [op, x = save(x), weight = save(weight), parameter = save(parameter),
                 dtype = parameter.dtype(), o](const Tensor& g, Needs needs) {
                  Tensors grads(3);
                  if (backward_is_recorded()) {
                    const Tensor rows = reshaped(g, {o.rows, o.out});
                    if (needs[0]) {
                      const Tensor by = cast(parameter(), g.dtype());
                      grads[0] = reshaped(matmul(rows, by), x().shape());
                    }
                    if (needs[1]) {
                      const Tensor flat = reshaped(x(), {o.rows, o.in});
                      grads[1] = cast(matmul(rows, flat, true, false), dtype);
                    }
                    if (needs[2]) grads[2] = sum(cast(rows, dtype), {0});
                    return grads;
                  }
                  const Tensor flat = g.detach({o.rows, o.out});
                  if (needs[0]) {
                    grads[0] = product(op, flat, weight(), false, false).detach(x().shape());
                  }
                  linear_gradients(op, flat, x().detach({o.rows, o.in}),
                                   needs[1] ? &grads[1] : nullptr, needs[2] ? &grads[2] : nullptr,
                                   dtype);
                  return grads;
                });
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!lowers(x, weight, bias)) return layer(x, weight, bias, weight, bias);
  const Tensor narrow = lowered(x);
  const auto wide = [&](const Tensor& parameter) {
    return !parameter.defined() || parameter.dtype() == DType::f32;
  };
  // The CPU's products write f32 as well: what is not rounded need not be widened after. In f16
  // gradients end at its range, on which scaled losses count.
  if (x.device().type != DeviceType::cpu || narrow.dtype() != DType::bf16 || !wide(weight) ||
      !wide(bias)) {
    return linear(narrow, lowered(weight), lowered(bias));
  }
  const auto rounded = [](const Tensor& parameter) {
    const NoGrad guard;
    return lowered(parameter);
  };
  return layer(narrow, rounded(weight), rounded(bias), weight, bias);
}

}  // namespace peal
