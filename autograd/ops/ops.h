// SPDX-License-Identifier: Apache-2.0
// Every op at once.
#pragma once

#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/attention.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/convolution.h>
#include <peal/autograd/ops/distance.h>
#include <peal/autograd/ops/dropout.h>
#include <peal/autograd/ops/embedding_bag.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/feed_forward.h>
#include <peal/autograd/ops/group_norm.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/indexing.h>
#include <peal/autograd/ops/loss.h>
#include <peal/autograd/ops/margin_loss.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/norm.h>
#include <peal/autograd/ops/pad.h>
#include <peal/autograd/ops/pair_loss.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/pool.h>
#include <peal/autograd/ops/probability_loss.h>
#include <peal/autograd/ops/promotion.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/rotary.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/softmax.h>
