// SPDX-License-Identifier: Apache-2.0
// Gradient compression: communication hooks that send fewer bytes (PyTorch:
// ddp_comm_hooks.default_hooks and quantization_hooks). Each rank sends each other its part of the
// bucket in few bits; that rank adds in f32, rounds the average once more, and sends it to all. So
// what travels has 2 bytes an element, or 1, over any transport, and each number is rounded twice,
// whatever the number of ranks. (An all_reduce in f16 would widen, and send 4;
// docs/decisions/0004-low-precision-reduction.md.) Buckets whose elements have as few bytes already
// are averaged as they are.
//
//   ddp.register_comm_hook(nn::bf16_compress_hook(group));
//
// Thread safety: as of hooks.
#pragma once

#include <peal/nn/parallel/comm_hook.h>

namespace peal::nn {

CommHook fp16_compress_hook(comm::ProcessGroup group);  // above 65504: infinite
// Sends f32 gradients as bf16, half the bytes: 8 bits of each number's mantissa are left.
CommHook bf16_compress_hook(comm::ProcessGroup group);
// In that type; those of fewer bytes an element as they are.
CommHook reduce_hook(comm::ProcessGroup group, DType dtype);
// Blocks of 256 elements, each 1/127 of the largest of its block times a whole number: of small
// ones beside large ones little is left (Dettmers, "8-bit approximations for parallelism in deep
// learning", ICLR 2016). A block with a NaN or an infinity is NaN as a whole, so who looks for
// overflows finds them.
CommHook int8_compress_hook(comm::ProcessGroup group);

// What int8_compress_hook() sends, and what is received: x [n * 256] in f32, codes u8 [n * 256],
// scales f32 [n, 1].
struct Int8Blocks {
  static constexpr std::int64_t size = 256;
  Tensor codes, scales;
};
// x f32, of a multiple of 256 elements; and back, as [n].
Int8Blocks to_int8(const Tensor& x);
Tensor from_int8(const Int8Blocks& blocks);

}  // namespace peal::nn
