// SPDX-License-Identifier: Apache-2.0
// Gradient compression: communication hooks that send fewer bytes (PyTorch:
// ddp_comm_hooks.default_hooks and quantization_hooks): each bucket is averaged by
// compressed_all_reduce.h, which says what is rounded. Buckets whose elements have as few bytes
// already are averaged as they are.
//
//   ddp.register_comm_hook(nn::bf16_compress_hook(group));
//
// Thread safety: as of hooks.
#pragma once

#include <peal/nn/parallel/comm_hook.h>
#include <peal/nn/parallel/compressed_all_reduce.h>

namespace peal::nn {

CommHook fp16_compress_hook(comm::ProcessGroup group);  // above 65504: infinite
// Sends f32 gradients as bf16, half the bytes.
CommHook bf16_compress_hook(comm::ProcessGroup group);
// In that type; those of fewer bytes an element as they are.
CommHook reduce_hook(comm::ProcessGroup group, DType dtype);
// In blocks of 256 elements, of a byte each and a scale.
CommHook int8_compress_hook(comm::ProcessGroup group);

}  // namespace peal::nn
