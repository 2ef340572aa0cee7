// SPDX-License-Identifier: Apache-2.0
// The ops under the names that PyTorch gives them in torch.nn.functional.
#pragma once

#include <peal/autograd/ops/ops.h>

namespace peal::nn::functional {

using peal::adaptive_avg_pool2d;
using peal::alpha_dropout;
using peal::avg_pool2d;
using peal::batch_norm;
using peal::binary_cross_entropy_with_logits;
using peal::conv1d;
using peal::conv2d;
using peal::cross_entropy;
using peal::dropout;
using peal::embedding;
using peal::feature_dropout;
using peal::feed_forward;
using peal::gelu;
using peal::layer_norm;
using peal::linear;
using peal::log_softmax;
using peal::max_pool2d;
using peal::mse_loss;
using peal::nll_loss;
using peal::relu;
using peal::scaled_dot_product_attention;
using peal::self_attention;
using peal::sigmoid;
using peal::smooth_l1_loss;
using peal::softmax;
using peal::tanh;

}  // namespace peal::nn::functional
