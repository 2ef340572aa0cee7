// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cuda/device.h>
#include <peal/autograd/kernels/cuda/table.h>

namespace peal::cuda {

const Kernels& table() {
  static const Kernels all = [] {
    Kernels k;
    k.fill = fill;
    k.arange = arange;
    k.uniform = uniform;
    k.normal = normal;
    k.binary = binary;
    k.unary = unary;
    k.axpy = axpy;
    k.expand = expand;
    k.pointwise = pointwise;
    k.pointwise_backward = pointwise_backward;
    k.compare = compare;
    k.where = where;
    k.cast = cast;
    k.read_strided = read_strided;
    k.write_strided = write_strided;
    k.index_select = index_select;
    k.index_add = index_add;
    k.gather = gather;
    k.scatter_add = scatter_add;
    k.sum = sum;
    k.argmax = argmax;
    k.argmin = argmin;
    k.softmax = softmax;
    k.softmax_backward = softmax_backward;
    k.layer_norm = layer_norm;
    k.layer_norm_backward = layer_norm_backward;
    k.channel_statistics = channel_statistics;
    k.batch_norm = batch_norm;
    k.batch_norm_backward = batch_norm_backward;
    k.log_softmax = log_softmax;
    k.log_softmax_backward = log_softmax_backward;
    k.nll = nll;
    k.nll_backward = nll_backward;
    k.cross_entropy_backward = cross_entropy_backward;
    k.pair_loss = pair_loss;
    k.pair_loss_backward = pair_loss_backward;
    k.max_pool2d = max_pool2d;
    k.max_pool2d_backward = max_pool2d_backward;
    k.avg_pool2d = avg_pool2d;
    k.avg_pool2d_backward = avg_pool2d_backward;
    k.dropout = dropout;
    k.dropout_backward = dropout_backward;
    k.sgd = sgd;
    k.adam = adam;
    return k;
  }();
  return all;
}

}  // namespace peal::cuda
