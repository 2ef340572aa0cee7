// SPDX-License-Identifier: Apache-2.0
// The ops under the names that PyTorch gives them in torch.nn.functional.
#pragma once

#include <peal/autograd/ops/ops.h>

namespace peal::nn::functional {

using peal::adaptive_avg_pool1d;
using peal::adaptive_avg_pool2d;
using peal::adaptive_avg_pool3d;
using peal::adaptive_max_pool1d;
using peal::adaptive_max_pool1d_with_indices;
using peal::adaptive_max_pool2d;
using peal::adaptive_max_pool2d_with_indices;
using peal::adaptive_max_pool3d;
using peal::adaptive_max_pool3d_with_indices;
using peal::affine_grid;
using peal::alpha_dropout;
using peal::avg_pool1d;
using peal::avg_pool2d;
using peal::avg_pool3d;
using peal::batch_norm;
using peal::bilinear;
using peal::binary_cross_entropy;
using peal::binary_cross_entropy_with_logits;
using peal::celu;
using peal::channel_shuffle;
using peal::conv1d;
using peal::conv2d;
using peal::conv3d;
using peal::conv_transpose1d;
using peal::conv_transpose2d;
using peal::conv_transpose3d;
using peal::cosine_embedding_loss;
using peal::cosine_similarity;
using peal::cross_entropy;
using peal::ctc_loss;
using peal::dropout;
using peal::dropout1d;
using peal::dropout2d;
using peal::dropout3d;
using peal::elu;
using peal::embedding;
using peal::embedding_bag;
using peal::feature_alpha_dropout;
using peal::feature_dropout;
using peal::feed_forward;
using peal::fold;
using peal::fractional_max_pool2d;
using peal::fractional_max_pool2d_with_indices;
using peal::gaussian_nll_loss;
using peal::gelu;
using peal::glu;
using peal::grid_sample;
using peal::group_norm;
using peal::gumbel_softmax;
using peal::hardshrink;
using peal::hardsigmoid;
using peal::hardswish;
using peal::hardtanh;
using peal::hinge_embedding_loss;
using peal::huber_loss;
using peal::instance_norm;
using peal::interpolate;
using peal::kl_div;
using peal::l1_loss;
using peal::layer_norm;
using peal::leaky_relu;
using peal::linear;
using peal::local_response_norm;
using peal::log_softmax;
using peal::logsigmoid;
using peal::lp_pool1d;
using peal::lp_pool2d;
using peal::lp_pool3d;
using peal::margin_ranking_loss;
using peal::max_pool1d;
using peal::max_pool1d_with_indices;
using peal::max_pool2d;
using peal::max_pool2d_with_indices;
using peal::max_pool3d;
using peal::max_pool3d_with_indices;
using peal::max_unpool1d;
using peal::max_unpool2d;
using peal::max_unpool3d;
using peal::mish;
using peal::mse_loss;
using peal::multi_margin_loss;
using peal::multilabel_margin_loss;
using peal::multilabel_soft_margin_loss;
using peal::nll_loss;
using peal::normalize;
using peal::one_hot;
using peal::pad;
using peal::pairwise_distance;
using peal::pdist;
using peal::pixel_shuffle;
using peal::pixel_unshuffle;
using peal::poisson_nll_loss;
using peal::prelu;
using peal::relu;
using peal::relu6;
using peal::rms_norm;
using peal::rotary_embedding;
using peal::rrelu;
using peal::scaled_dot_product_attention;
using peal::self_attention;
using peal::selu;
using peal::sigmoid;
using peal::silu;
using peal::smooth_l1_loss;
using peal::soft_margin_loss;
using peal::softmax;
using peal::softmin;
using peal::softplus;
using peal::softshrink;
using peal::softsign;
using peal::tanh;
using peal::tanhshrink;
using peal::threshold;
using peal::triplet_margin_loss;
using peal::triplet_margin_with_distance_loss;

// im2col alone: torch.nn.functional's unfold(x, 3, 1, 1) is no Tensor.unfold(3, 1, 1).
inline Tensor unfold(const Tensor& x, Pair kernel_size, Pair dilation = 1, Pair padding = 0,
                     Pair stride = 1) {
  return peal::unfold(x, kernel_size, {dilation, padding, stride});
}
inline Tensor unfold(const Tensor& x, Pair kernel_size, const UnfoldOptions& options) {
  return peal::unfold(x, kernel_size, options);
}

}  // namespace peal::nn::functional
