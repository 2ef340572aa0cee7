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
    k.dropout = dropout;
    k.dropout_backward = dropout_backward;
    k.sgd = sgd;
    k.adam = adam;
    return k;
  }();
  return all;
}

}  // namespace peal::cuda
