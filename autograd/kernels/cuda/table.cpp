// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cuda/device.h>
#include <peal/autograd/kernels/cuda/table.h>

namespace peal::cuda {

const Kernels& table() {
  static const Kernels all = {
      .fill = fill,
      .arange = arange,
      .uniform = uniform,
      .normal = normal,
      .binary = binary,
      .unary = unary,
      .axpy = axpy,
      .expand = expand,
      .pointwise = pointwise,
      .pointwise_backward = pointwise_backward,
      .compare = compare,
      .where = where,
      .cast = cast,
      .read_strided = read_strided,
      .write_strided = write_strided,
      .index_select = index_select,
      .index_add = index_add,
      .gather = gather,
      .scatter_add = scatter_add,
      .check_indices = check_indices,
      .sum = sum,
      .argmax = argmax,
      .argmin = argmin,
      .matmul = matmul,
      .matmul_and_sums = matmul_and_sums,
      .batched_matmul = batched_matmul,
      .softmax = softmax,
      .softmax_backward = softmax_backward,
      .attention = attention,
      .attention_backward = attention_backward,
      .self_attention = self_attention,
      .self_attention_backward = self_attention_backward,
      .layer_norm = layer_norm,
      .layer_norm_backward = layer_norm_backward,
      .channel_statistics = channel_statistics,
      .batch_norm = batch_norm,
      .batch_norm_backward = batch_norm_backward,
      .log_softmax = log_softmax,
      .log_softmax_backward = log_softmax_backward,
      .nll = nll,
      .nll_backward = nll_backward,
      .cross_entropy_backward = cross_entropy_backward,
      .pair_loss = pair_loss,
      .pair_loss_backward = pair_loss_backward,
      .conv2d = conv2d,
      .conv2d_backward = conv2d_backward,
      .max_pool2d = max_pool2d,
      .max_pool2d_backward = max_pool2d_backward,
      .avg_pool2d = avg_pool2d,
      .avg_pool2d_backward = avg_pool2d_backward,
      .dropout = dropout,
      .dropout_backward = dropout_backward,
      .sgd = sgd,
      .adam = adam,
      .power_sum = power_sum,
      .scale_all = scale_all,
  };
  return all;
}

}  // namespace peal::cuda
