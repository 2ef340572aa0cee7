// SPDX-License-Identifier: Apache-2.0
// Batch norm folded into the layer before it, for evaluation: with its running statistics it
// multiplies each channel and adds to it, which the layer's own weight and bias can do as well. By
// the names and formulas of torch.nn.utils.fusion; fuse_eval is what torch.fx.experimental's fuse
// does, for all of a model:
//
//   nn::ResNet18 net;
//   nn::load_model("resnet18.safetensors", net);
//   net.eval();
//   nn::fuse_eval(net, randn({1, 3, 224, 224}));    // the same outputs within rounding, sooner
//
// The results have keys of their own (no running_mean, and a bias). Thread safety: as of Module.
#pragma once

#include <peal/nn/layers/conv1d.h>
#include <peal/nn/layers/conv2d.h>
#include <peal/nn/layers/conv3d.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/layers/norm.h>

#include <string>
#include <utility>
#include <vector>

namespace peal::nn {

// A layer of its own tensors that gives norm(conv(x)), within rounding; both stay as they are. Its
// weight wants a gradient where conv's does. Error where one of them trains, where norm has no
// running statistics, and where it has other channels than come out.
Conv1d fuse_conv_bn_eval(const Conv1d& conv, const BatchNorm& norm);
Conv2d fuse_conv_bn_eval(const Conv2d& conv, const BatchNorm& norm);
Conv3d fuse_conv_bn_eval(const Conv3d& conv, const BatchNorm& norm);
Linear fuse_linear_bn_eval(const Linear& linear, const BatchNorm& norm);

// Folds every batch norm below that gets, in a forward of `x`, what a convolution or a linear layer
// gave: that one becomes the fused layer, and the norm an Identity (both by replace_child). Layers
// that have hooks, are called twice or are of a derived class stay. Gives the paths of those that
// were folded. Error, and the model is as it was, where any of it is in training, where a forward
// throws, where it gives outputs without elements, and where it gives other outputs for x then,
// because something else reads what a folded layer gives. REQUIRES: model.eval() before; x is no
// constant, as it has to show that difference.
std::vector<std::pair<std::string, std::string>> fuse_eval(Module& model, const Tensor& x);

}  // namespace peal::nn
