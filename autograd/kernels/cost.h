// SPDX-License-Identifier: Apache-2.0
// What a call of a kernel takes, as plain functions of its arguments, for the profiler. An entry of
// the table finds its function by the types of its arguments, geometry among them.
//
// Flops are those of the definition: 2 for each multiplication with its addition, padding included,
// whatever the kernel does instead (Winograd's convolution needs fewer). Of elementwise kernels
// they are 1 an element of the largest operand, which is what can be said of all of them. Bytes are
// those of the operands, each read or written once, or both where it is changed: less than a
// machine moves where they do not stay in a cache. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/geometry.h>
#include <peal/autograd/kernels/steps.h>

#include <algorithm>
#include <span>
#include <type_traits>

namespace peal {

inline double count_of(const Tensor& x) {
  return x.defined() ? static_cast<double>(x.numel()) : 0.0;
}

// The bytes of all tensors among the arguments.
template <class... Args>
double operand_bytes(const Args&... args) {
  double bytes = 0;
  const auto add = [&](const auto& arg) {
    if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, Tensor>) {
      if (arg.defined()) bytes += static_cast<double>(arg.view().bytes());
    }
  };
  (add(args), ...);
  return bytes;
}

// Multiplications with their additions: of the operands' type.
inline OpCost cost_of_products(double flops, double bytes, const Tensor& operand) {
  return {flops, bytes, is_low_precision(operand.dtype()) ? flops : 0};
}

// Elementwise, and whatever else has no function of its own.
template <class... Args>
OpCost cost_of(const Args&... args) {
  double most = 0;
  const auto look = [&](const auto& arg) {
    if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, Tensor>) {
      most = std::max(most, count_of(arg));
    }
  };
  (look(args), ...);
  return {most, operand_bytes(args...)};
}

// axpy changes x. (expand, which takes the same, is called to stretch x, not with its own shape.)
inline OpCost cost_of(const Tensor& x, const Tensor& y, double) {
  const bool changes = x.shape() == y.shape();
  return {count_of(x), operand_bytes(x, y, changes ? x : Tensor())};
}

// Lists of parameters: an element each; parameter and state are changed.
template <class Options>
OpCost cost_of(const std::span<const Stepped>& list, const Options&) {
  OpCost all;
  for (const Stepped& each : list) {
    all +=
        {count_of(each.param), 2 * operand_bytes(each.param, each.first, each.second, each.third) +
                                   operand_bytes(each.grad, each.rounded)};
  }
  return all;
}

// power_sum and clip_norm: all are read. (Whether they are scaled then, who counts does not know.)
template <class... Most>
OpCost cost_of(const Tensor& out, const std::span<const Tensor>& list, double, const Most&...) {
  OpCost all{0, operand_bytes(out)};
  for (const Tensor& each : list) all += {count_of(each), operand_bytes(each)};
  return all;
}

// scale_all
inline OpCost cost_of(const std::span<const Tensor>& list, double, const Tensor& found) {
  OpCost all{0, operand_bytes(found)};
  for (const Tensor& each : list) all += {count_of(each), 2 * operand_bytes(each)};
  return all;
}

// matmul: M N sums of K products, and the bias.
inline OpCost cost_of(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a, bool,
                      const Tensor& bias) {
  const auto k = static_cast<double>(a.size(transpose_a ? 0 : 1));
  return cost_of_products(count_of(out) * (2 * k + (bias.defined() ? 1 : 0)),
                          operand_bytes(out, a, b, bias), a);
}

// matmul_gelu and matmul_gelu_backward: the product alone.
inline OpCost cost_of(const Tensor& out, const Tensor& other, const Tensor& a, const Tensor& b,
                      const Tensor& last) {
  return cost_of_products(count_of(out) * 2 * static_cast<double>(a.size(1)),
                          operand_bytes(out, other, a, b, last), a);
}

// batched_matmul
inline OpCost cost_of(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a, bool) {
  const auto k = static_cast<double>(a.size(transpose_a ? 1 : 2));
  return cost_of_products(count_of(out) * 2 * k, operand_bytes(out, a, b), a);
}

// grid_sample: of each result the products; backward to the image and to the weights of its
// elements.
inline OpCost cost_of(const GridGeometry& o, const Tensor& y, const Tensor& x, const Tensor& grid) {
  return {count_of(y) * 2 * static_cast<double>(o.elements()), operand_bytes(y, x, grid)};
}
inline OpCost cost_of(const GridGeometry& o, const Tensor& dx, const Tensor& dgrid,
                      const Tensor& dy, const Tensor& x, const Tensor& grid) {
  const int passes = (dx.defined() ? 1 : 0) + (dgrid.defined() ? 1 : 0);
  return {count_of(dy) * 2 * static_cast<double>(o.elements()) * passes,
          operand_bytes(dx, dgrid, dy, x, grid)};
}

// row_distances, and back to both rows: a difference, and a product that is added, once or twice.
inline double differences_of(const RowPairs& o) {
  return static_cast<double>(o.count()) * static_cast<double>(o.width);
}
inline OpCost cost_of(const RowPairs& o, const Tensor& y, const Tensor& x) {
  return {3 * differences_of(o), operand_bytes(y, x)};
}
inline OpCost cost_of(const RowPairs& o, const Tensor& dx, const Tensor& dy, const Tensor& y,
                      const Tensor& x) {
  return {4 * differences_of(o), operand_bytes(dx, dy, y, x)};
}

// The products of one pass over all windows: forward, to the input, or to the weight.
inline double flops_of(const Conv2dGeometry& o) {
  return 2.0 * static_cast<double>(o.batch * o.out_channels * o.out_height * o.out_width) *
         static_cast<double>(o.in_channels / o.groups * o.kernel_height * o.kernel_width);
}

// conv2d
inline OpCost cost_of(const Conv2dGeometry& o, const Tensor& y, const Tensor& x,
                      const Tensor& weight, const Tensor& bias) {
  return cost_of_products(flops_of(o) + (bias.defined() ? count_of(y) : 0),
                          operand_bytes(y, x, weight, bias), x);
}

// conv2d_backward
inline OpCost cost_of(const Conv2dGeometry& o, const Tensor& dx, const Tensor& dweight,
                      const Tensor& dbias, const Tensor& dy, const Tensor& x,
                      const Tensor& weight) {
  const int passes = (dx.defined() ? 1 : 0) + (dweight.defined() ? 1 : 0);
  return cost_of_products(passes * flops_of(o) + (dbias.defined() ? count_of(dy) : 0),
                          operand_bytes(dx, dweight, dbias, dy, dweight.defined() ? x : Tensor(),
                                        dx.defined() ? weight : Tensor()),
                          dy);
}

// One product of all queries with the keys that they see, over the width of all heads.
inline double flops_of(const AttentionGeometry& o) {
  const auto t = static_cast<double>(o.queries), s = static_cast<double>(o.keys);
  const double seen = std::min(t, s);  // a causal query sees the keys up to its own place
  const double pairs = o.causal ? seen * (seen + 1) / 2 + (t - seen) * s : t * s;
  return 2.0 * pairs * static_cast<double>(o.batch * o.heads * o.width);
}

// attention: scores and weighted values; the softmax between is not counted.
inline OpCost cost_of(const AttentionGeometry& o, const AttentionResult& result, const Tensor& q,
                      const Tensor& k, const Tensor& v) {
  return cost_of_products(2 * flops_of(o), operand_bytes(result.y, result.kept, q, k, v), q);
}

// attention_backward: dv, the probabilities' gradient, dq and dk. What is computed again where the
// probabilities are not kept does not count.
inline OpCost cost_of(const AttentionGeometry& o, const Tensor& dq, const Tensor& dk,
                      const Tensor& dv, const Tensor& dy, const AttentionResult& result,
                      const Tensor& q, const Tensor& k, const Tensor& v) {
  const int query = dq.defined() ? 1 : 0, key = dk.defined() ? 1 : 0;
  const int passes = (dv.defined() ? 1 : 0) + query + key + (query + key > 0 ? 1 : 0);
  return cost_of_products(passes * flops_of(o),
                          operand_bytes(dq, dk, dv, dy, result.y, result.kept, q, k, v), q);
}

// changed_attention and its backward: as much as without a mask and dropout.
template <class... Args>
OpCost cost_of(const AttentionGeometry& o, const AttentionChanges& changes, const Args&... args) {
  OpCost cost = cost_of(o, args...);
  cost.bytes += operand_bytes(changes.mask);
  return cost;
}

// self_attention
inline OpCost cost_of(const AttentionGeometry& o, const AttentionResult& result,
                      const Tensor& qkv) {
  return cost_of_products(2 * flops_of(o), operand_bytes(result.y, result.kept, qkv), qkv);
}

// self_attention_backward
inline OpCost cost_of(const AttentionGeometry& o, const Tensor& dqkv, const Tensor& dy,
                      const AttentionResult& result, const Tensor& qkv) {
  return cost_of_products(4 * flops_of(o), operand_bytes(dqkv, dy, result.y, result.kept, qkv),
                          qkv);
}

// recurrent and recurrent_backward: the products with the state alone.
template <class... Args>
OpCost cost_of(const RecurrentGeometry& o, const Tensor& first, const Args&... args) {
  return cost_of_products(
      2.0 * static_cast<double>(o.steps * o.batch * o.gates() * o.hidden * o.hidden),
      operand_bytes(first, args...), first);
}

// nll: an element of each row.
inline OpCost cost_of(const Tensor& loss, const Tensor& log_probabilities, const Tensor& target,
                      const ClassTargets&) {
  const double all = operand_bytes(log_probabilities), each = operand_bytes(loss);
  return {count_of(loss), each + operand_bytes(target) + std::min(all, each)};
}

// read_strided and write_strided: the smaller operand's elements move; nothing is computed.
inline OpCost cost_of(const Tensor& out, const Tensor& x, const Steps&, std::int64_t) {
  return {0, 2 * std::min(operand_bytes(out), operand_bytes(x))};
}

// index_select, gather, and what adds back: so here, and the indices.
inline OpCost cost_of(const Tensor& out, const Tensor& x, const Tensor& index, int) {
  return {0, 2 * std::min(operand_bytes(out), operand_bytes(x)) + operand_bytes(index)};
}

}  // namespace peal
