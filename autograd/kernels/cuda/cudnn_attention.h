// SPDX-License-Identifier: Apache-2.0
// Scaled dot product attention by cuDNN's graph API (what PyTorch's SDPBackend::CUDNN_ATTENTION
// is): on Hopper and later its kernels multiply by instructions that those of fused_attention.h do
// not have. It serves f16 and bf16, heads whose width is a multiple of 8 up to 128, operands on
// boundaries of 16 bytes; nothing where the context wants determinism, as its sums for the gradient
// of queries are atomic, and which kernels serve a forward pass depends on the calls before it and
// on memory. What it does not serve is the own kernels', and a forward pass of either can be
// followed by a backward pass of the other: both keep the same numbers.
//
// A plan is for a geometry, layout and device, takes up to a second, and is its thread's, or, once
// that has ended, of one that comes after it. It is made when these have come twice, outside of
// captured graphs, and after a thread's first 32 plans for a device only when they have come 1000
// times; until then the own kernels serve them. So lengths that change with every batch cost no
// more than those 32. A build without nvidia-cudnn-frontend serves nothing here. Thread safety: as
// of the tensors; all is queued on the current stream, and can be captured.
#pragma once

#include <peal/autograd/kernels/cuda/fused_attention.h>

namespace peal::cuda {

// Whether cuDNN is asked at all: by build, its version, device, type and width.
bool asks_cudnn_attention(const AttentionGeometry& o, DType dtype, Device device);

// As fused_attention() and fused_attention_backward(), of f16 and bf16 alone. False where nothing
// was done: also where no plan is made yet.
bool cudnn_attention(const AttentionGeometry& o, const Tokens& y, const Tensor& sums,
                     const Tokens& q, const Tokens& k, const Tokens& v);
bool cudnn_attention_backward(const AttentionGeometry& o, const Tokens* dq, const Tokens* dk,
                              const Tokens* dv, const Tokens& dy, const Tokens& y,
                              const Tensor& sums, const Tokens& q, const Tokens& k,
                              const Tokens& v);

}  // namespace peal::cuda
