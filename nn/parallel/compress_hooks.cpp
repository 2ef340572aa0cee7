// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/parallel/compress_hooks.h>

#include <utility>

namespace peal::nn {

CommHook reduce_hook(comm::ProcessGroup group, DType dtype) {
  return [group = std::move(group), dtype](GradBucket& bucket) {
    return compressed_all_reduce(group, bucket.buffer, dtype, comm::ReduceOp::avg, bucket.label);
  };
}

CommHook fp16_compress_hook(comm::ProcessGroup group) {
  return reduce_hook(std::move(group), DType::f16);
}

CommHook bf16_compress_hook(comm::ProcessGroup group) {
  return reduce_hook(std::move(group), DType::bf16);
}

CommHook int8_compress_hook(comm::ProcessGroup group) {
  return reduce_hook(std::move(group), DType::i8);
}

}  // namespace peal::nn
