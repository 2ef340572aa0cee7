// SPDX-License-Identifier: Apache-2.0
// Compressed all_reduce: one that sends fewer bytes. Each rank sends each other its part of the
// data in few bits; that rank adds in f32, rounds the result once more, and sends it to all. So
// what travels has 2 bytes an element, or 1, over any transport; each number is rounded twice,
// whatever the number of ranks; and all ranks have the same bits. (An all_reduce in f16 would
// widen, and send 4; docs/decisions/0004-low-precision-reduction.md.) DDP has the same for its
// gradients (compress_hooks.h).
//
//   nn::compressed_all_reduce(group, x, DType::bf16, comm::ReduceOp::avg).wait();
//
// Thread safety: as of collectives.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>

namespace peal::nn {

// Every rank's data becomes the sum over all ranks, or the average. `wire`: a floating type, in
// which the parts travel, f16 (above 65504: infinite, the sum too) or bf16 (8 bits of each number's
// mantissa are left) or, of f64, f32; data that has as few bytes an element is reduced as it is. Or
// i8: blocks of 256 elements, each 1/127 of the largest of its block times a whole number: of small
// ones beside large ones little is left (Dettmers, "8-bit approximations for parallelism in deep
// learning", ICLR 2016). A block with a NaN or an infinity is NaN as a whole, so who looks for
// overflows finds them. Errors: data that is not floating, another wire or reduction; and, as of
// any collective, on all ranks where theirs are not equal; a label with a tag of its own must have
// another for data of another size or type, as DDP's buckets have.
[[nodiscard]] comm::Work compressed_all_reduce(const comm::ProcessGroup& group, const Tensor& data,
                                               DType wire, comm::ReduceOp op = comm::ReduceOp::sum,
                                               const comm::Label& label = {});

// What travels where the wire is i8: of x [n * 256] in f32, codes u8 [n * 256], scales f32 [n, 1].
struct Int8Blocks {
  static constexpr std::int64_t size = 256;
  Tensor codes, scales;
};
// x f32, of a multiple of 256 elements; and back, as [n].
Int8Blocks to_int8(const Tensor& x);
Tensor from_int8(const Int8Blocks& blocks);

}  // namespace peal::nn
