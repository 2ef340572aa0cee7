// SPDX-License-Identifier: Apache-2.0
// Every layer at once.
#pragma once

#include <peal/nn/layers/activation.h>
#include <peal/nn/layers/adaptive_softmax.h>
#include <peal/nn/layers/attention.h>
#include <peal/nn/layers/containers.h>
#include <peal/nn/layers/conv1d.h>
#include <peal/nn/layers/conv2d.h>
#include <peal/nn/layers/conv3d.h>
#include <peal/nn/layers/conv_transpose.h>
#include <peal/nn/layers/dropout.h>
#include <peal/nn/layers/embedding.h>
#include <peal/nn/layers/flatten.h>
#include <peal/nn/layers/folding.h>
#include <peal/nn/layers/fusion.h>
#include <peal/nn/layers/group_norm.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/layers/norm.h>
#include <peal/nn/layers/padding.h>
#include <peal/nn/layers/pairs.h>
#include <peal/nn/layers/pooling.h>
#include <peal/nn/layers/rearrange.h>
#include <peal/nn/layers/rectifiers.h>
#include <peal/nn/layers/recurrent.h>
#include <peal/nn/layers/recurrent_cell.h>
#include <peal/nn/layers/sequential.h>
#include <peal/nn/layers/transformer.h>
#include <peal/nn/layers/upsample.h>
#include <peal/nn/layers/weight_drop.h>
