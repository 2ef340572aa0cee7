// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/bf16.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/cpu/widening.h>

namespace peal::cpu {

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
      .pointwise = widening<pointwise, 1>,
      .pointwise_backward = widening<pointwise_backward, 1>,
      .compare = compare,
      .where = where,
      .cast = cast,
      .read_strided = read_strided,
      .write_strided = write_strided,
      .index_select = index_select,
      .index_add = widening<index_add, 1, Written::onto>,
      .gather = gather,
      .scatter_add = widening<scatter_add, 1, Written::onto>,
      .check_indices = {},  // ops look at the values themselves
      .sum = widening<sum, 1>,
      .argmax = argmax,
      .argmin = argmin,
      .matmul = preferring<matmul_bf16, widening<matmul, 1>>,
      .matmul_and_sums = {},  // nothing is saved: the output's gradient is in the caches
      .matmul_gelu = {},
      .matmul_gelu_backward = {},
      .batched_matmul = preferring<batched_matmul_bf16, widening<batched_matmul, 1>>,
      .softmax = widening<softmax, 1>,
      .softmax_backward = widening<softmax_backward, 1>,
      .attention = widening<attention, 2>,
      .attention_backward = widening<attention_backward, 3>,
      .self_attention = widening<self_attention, 2>,
      .self_attention_backward = widening<self_attention_backward, 1>,
      .layer_norm = widening<layer_norm, 3>,
      .layer_norm_backward = widening<layer_norm_backward, 3>,
      .channel_statistics = widening<channel_statistics, 2>,
      .batch_norm = widening<batch_norm, 1>,
      .batch_norm_backward = widening<batch_norm_backward, 3>,
      .log_softmax = widening<log_softmax, 1>,
      .log_softmax_backward = widening<log_softmax_backward, 1>,
      .nll = widening<nll, 1>,
      .nll_backward = widening<nll_backward, 1>,
      .cross_entropy_backward = widening<cross_entropy_backward, 1>,
      .pair_loss = widening<pair_loss, 1>,
      .pair_loss_backward = widening<pair_loss_backward, 2>,
      .conv2d = preferring<conv2d_bf16, widening<conv2d, 1>>,
      .conv2d_backward = preferring<conv2d_backward_bf16, widening<conv2d_backward, 3>>,
      .max_pool2d = widening<max_pool2d, 1>,
      .max_pool2d_backward = widening<max_pool2d_backward, 1>,
      .avg_pool2d = widening<avg_pool2d, 1>,
      .avg_pool2d_backward = widening<avg_pool2d_backward, 1>,
      .dropout = widening<dropout, 1>,
      .dropout_backward = widening<dropout_backward, 1>,
      .sgd = sgd,
      .adam = adam,
      .power_sum = power_sum,
      .clip_norm = clip_norm,
      .scale_all = scale_all,
  };
  return all;
}

}  // namespace peal::cpu
