// SPDX-License-Identifier: Apache-2.0
// The graphs that cuDNN is asked for in attention, as values: what they are made of needs no
// device, so a test can have them planned for a GPU that is not there. Seen by cudnn_attention.cpp
// and that test alone, in builds that have nvidia-cudnn-frontend.
#pragma once

#include <peal/autograd/core/dtype.h>
#include <peal/autograd/kernels/geometry.h>

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

namespace peal::cuda {

// What a graph depends on: of every operand, how many elements lie between two tokens.
struct AttentionLayout {
  AttentionGeometry geometry;
  DType dtype;
  std::int64_t q, k, v, y;
  std::int64_t dy = 0, dq = 0, dk = 0, dv = 0;  // 0: the pass forward
  bool is_backward() const { return dy != 0; }
};

// By which a graph knows the addresses that it is executed with.
enum AttentionOperand : std::int64_t {
  at_q = 1,
  at_k,
  at_v,
  at_y,
  at_sums,
  at_dy,
  at_dq,
  at_dk,
  at_dv
};

class AttentionGraph {
 public:
  using Graph = cudnn_frontend::graph::Graph;
  using Attributes = cudnn_frontend::graph::Tensor_attributes;

  // capability: 90 for 9.0; 0: the current device's.
  explicit AttentionGraph(const AttentionLayout& layout, int capability = 0)
      : layout_(layout), o_(layout.geometry) {
    if (capability != 0) graph_->set_sm_version(capability);
    graph_
        ->set_io_data_type(layout.dtype == DType::f16 ? cudnn_frontend::DataType_t::HALF
                                                      : cudnn_frontend::DataType_t::BFLOAT16)
        .set_intermediate_data_type(cudnn_frontend::DataType_t::FLOAT)
        .set_compute_data_type(cudnn_frontend::DataType_t::FLOAT);
    if (layout.is_backward()) {
      add_backward();
    } else {
      add_forward();
    }
  }
  const std::shared_ptr<Graph>& operator()() const { return graph_; }

 private:
  using Operand = std::shared_ptr<Attributes>;

  // [B, heads, count, width], as it lies in memory.
  void describe(Attributes& x, AttentionOperand at, std::int64_t count, std::int64_t row) const {
    x.set_uid(at)
        .set_dim({o_.batch, o_.heads, count, o_.width})
        .set_stride({count * row, o_.width, row, 1});
  }
  void describe_sums(Attributes& x) const {
    x.set_uid(at_sums)
        .set_dim({o_.batch, o_.heads, o_.queries, 1})
        .set_stride({o_.heads * o_.queries, o_.queries, 1, 1})
        .set_data_type(cudnn_frontend::DataType_t::FLOAT);
  }
  Operand input(AttentionOperand at, std::int64_t count, std::int64_t row) const {
    Attributes x;
    describe(x, at, count, row);
    return graph_->tensor(x);
  }
  void output(Attributes& x, AttentionOperand at, std::int64_t count, std::int64_t row) const {
    describe(x, at, count, row);
    x.set_output(true);
  }
  // Of a query that sees the keys up to its own place, as peal has it.
  template <class Options>
  Options& set_options(Options& options) const {
    return options.set_attn_scale(1 / std::sqrt(static_cast<float>(o_.width)))
        .set_causal_mask(o_.causal);
  }

  void add_forward() {
    cudnn_frontend::graph::SDPA_attributes options;
    options.set_name("attention").set_generate_stats(true);
    const auto [y, sums] =
        graph_->sdpa(input(at_q, o_.queries, layout_.q), input(at_k, o_.keys, layout_.k),
                     input(at_v, o_.keys, layout_.v), set_options(options));
    output(*y, at_y, o_.queries, layout_.y);
    describe_sums(*sums);
    sums->set_output(true);
  }
  void add_backward() {
    Attributes sums;
    describe_sums(sums);
    cudnn_frontend::graph::SDPA_backward_attributes options;
    options.set_name("attention_backward");
    const auto [dq, dk, dv] = graph_->sdpa_backward(
        input(at_q, o_.queries, layout_.q), input(at_k, o_.keys, layout_.k),
        input(at_v, o_.keys, layout_.v), input(at_y, o_.queries, layout_.y),
        input(at_dy, o_.queries, layout_.dy), graph_->tensor(sums), set_options(options));
    output(*dq, at_dq, o_.queries, layout_.dq);
    output(*dk, at_dk, o_.keys, layout_.dk);
    output(*dv, at_dv, o_.keys, layout_.dv);
  }

  AttentionLayout layout_;
  AttentionGeometry o_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
};

}  // namespace peal::cuda
