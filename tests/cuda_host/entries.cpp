// SPDX-License-Identifier: Apache-2.0
#include "entries.h"

#include <peal/autograd/kernels/cuda/device.h>

namespace peal::test {
namespace {

// clang-format off
#define CUDA_HOST_ENTRIES(X) \
  X(fill) X(arange) X(uniform) X(normal) X(binary) \
  X(unary) X(axpy) X(expand) X(pointwise) X(pointwise_backward) \
  X(compare) X(where) X(cast) X(read_strided) X(write_strided) \
  X(index_select) X(index_add) X(gather) X(scatter_add) X(sum) \
  X(argmax) X(argmin) X(matmul) X(batched_matmul) X(softmax) \
  X(softmax_backward) X(attention) X(attention_backward) X(layer_norm) X(layer_norm_backward) \
  X(channel_statistics) X(batch_norm) X(batch_norm_backward) X(log_softmax) X(log_softmax_backward) \
  X(target_share) X(nll) X(nll_backward) X(cross_entropy_backward) X(pair_loss) X(pair_loss_backward) \
  X(conv2d) X(conv2d_backward) X(max_pool2d) X(max_pool2d_backward) X(avg_pool2d) \
  X(avg_pool2d_backward) X(dropout) X(dropout_backward) X(sgd) X(adam)
// clang-format on

#define CUDA_HOST_COUNT(name) +1
static_assert(sizeof(Kernels) == sizeof(Kernel<>) * (0 CUDA_HOST_ENTRIES(CUDA_HOST_COUNT)),
              "an entry of autograd/kernels/table.h is not named here");

std::vector<std::string>& missing() {
  static std::vector<std::string> names;
  return names;
}

#define CUDA_HOST_STUB(name)                                                     \
  template <class... Args>                                                       \
  void fill_##name(Kernel<Args...>& entry) {                                     \
    if (entry) return;                                                           \
    missing().push_back(#name);                                                  \
    entry = Kernel<Args...>([](Args...) -> bool { throw MissingEntry{#name}; }); \
  }
CUDA_HOST_ENTRIES(CUDA_HOST_STUB)

}  // namespace

const Kernels& table_with_gaps_named() {
  static const Kernels all = [] {
    Kernels table = cuda::table();
#define CUDA_HOST_FILL(name) fill_##name(table.name);
    CUDA_HOST_ENTRIES(CUDA_HOST_FILL)
    return table;
  }();
  return all;
}

const std::vector<std::string>& missing_entries() {
  table_with_gaps_named();
  return missing();
}

}  // namespace peal::test
