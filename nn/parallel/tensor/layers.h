// SPDX-License-Identifier: Apache-2.0
// Tensor-parallel layers (Megatron-LM: ColumnParallelLinear, RowParallelLinear,
// VocabParallelEmbedding; Shoeybi et al., 2019, section 3): a layer whose weight is cut over the
// ranks of a group, each of which computes with its part.
//
// clang-format off
//   ColumnParallelLinear    weight [out / P, in], bias [out / P]: x whole -> a part of y's features
//   RowParallelLinear       weight [out, in / P], bias [out] whole: a part of x's features -> y whole
//   VocabParallelEmbedding  weight [count / P, width]: index whole -> y whole
// clang-format on
//
// So column, what acts on each feature by itself, row, is one all-reduce in forward and one in
// backward. With sequence_parallel what is whole is a part of the sequence instead (sequence_dim: 1
// of [B, T, width], 0 of [rows, width]), and the all-reduce is an all-gather and a reduce-scatter,
// of as many bytes.
//
// P ranks are equal to one, values and gradients. Each draws the whole weight's random numbers, as
// the plain layer does, and keeps its part: how a model begins does not depend on the cut, nor does
// what is drawn next, where ranks begin with one state (manual_seed() of the same seed).
// parallelize_module() (tensor_parallel.h) makes these of a model's plain layers.
//
// Dropout of what each rank has a part of is ParallelDropout (parallel_dropout.h). Outside of such
// regions all draw the same, as they do by themselves.
// Thread safety: as of Module and of the group.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/layers/embedding.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/layers/side_by_side.h>
#include <peal/nn/module.h>
#include <peal/nn/parallel/cut_parameters.h>
#include <peal/nn/parallel/tensor/cut.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::nn {

struct ColwiseParallel {
  bool gather_output = false;      // all features on every rank; not of several parts
  bool sequence_parallel = false;  // x is this rank's part of the sequence
  // The features are so many parts side by side, each of so many heads; a rank has whole heads, as
  // many of each part. 0: any features.
  std::int64_t parts = 1, heads = 0;
  int sequence_dim = 1;  // along which x is cut; not the features'
};

struct RowwiseParallel {
  bool input_is_parallel = true;   // false: x has all features; of an Embedding it is not read
  bool sequence_parallel = false;  // y is this rank's part of the sequence
  int sequence_dim = 1;            // along which y is cut; not the features'
};

// What these have in common: which of their own parameters are cut, and how.
class TensorParallelLayer : public Module, public CutLayer {
 public:
  const comm::ProcessGroup& group() const override { return group_; }
  // None for one that is whole, the same on all ranks.
  std::optional<Cut> cut_of(std::string_view parameter) const;
  // By that.
  std::optional<Shape> whole_shape(std::string_view parameter) const override;
  Tensor take_part(std::string_view parameter, const Tensor& whole) const override;
  Tensor bring_together(std::string_view parameter, const Tensor& part,
                        std::string_view label) const override;

 protected:
  TensorParallelLayer(comm::ProcessGroup group, std::string name);
  // Registers the rank's part, trained where the whole was.
  Tensor add_part(const char* parameter, const Tensor& part, const Cut& cut, bool trained);

  const std::string& name() const { return name_; }

 private:
  comm::ProcessGroup group_;
  std::string name_;  // for errors and traces
  std::vector<std::pair<std::string, Cut>> cuts_;
};

// How a parameter of the model, by its path, is cut; none for one that is whole.
std::optional<Cut> cut_of(const Module& model, std::string_view parameter);

class ColumnParallelLinear : public TensorParallelLayer, public SideBySide {
 public:
  // x [.., in] to this rank's columns of [.., out], with fresh values that are one rank's, cut.
  // Error where `out` cannot be cut into so many equal parts.
  ColumnParallelLinear(std::int64_t in, std::int64_t out, comm::ProcessGroup group,
                       const ColwiseParallel& style = {}, bool bias = true);
  // Of a plain layer, whose values it takes over; `path` is for errors. `weight`: this rank's rows,
  // where another layer has it too (tied weights).
  ColumnParallelLinear(const Linear& whole, comm::ProcessGroup group, const ColwiseParallel& style,
                       std::string_view path = "", const Tensor& weight = {});
  // How its weight is cut. Error where it cannot be.
  static Cut cut(const Linear& whole, int world, const ColwiseParallel& style,
                 std::string_view path = "");

  // x [.., in] to [.., out / world], with gather_output to [.., out]. Errors, by the layer's name:
  // a last dimension of other than `in`, and sequence_dim.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  std::int64_t parts() const override { return style_.parts; }
  std::int64_t share() const override { return group().rank(); }

  Tensor weight, bias;  // this rank's; bias is undefined where there is none

 private:
  ColwiseParallel style_;
};

class RowParallelLinear : public TensorParallelLayer {
 public:
  // This rank's columns of x [.., in] to [.., out], with fresh values that are one rank's, cut; and
  // of a plain layer, as ColumnParallelLinear. Error where `in` cannot be cut into so many equal
  // parts.
  RowParallelLinear(std::int64_t in, std::int64_t out, comm::ProcessGroup group,
                    const RowwiseParallel& style = {}, bool bias = true);
  RowParallelLinear(const Linear& whole, comm::ProcessGroup group, const RowwiseParallel& style,
                    std::string_view path = "", const Tensor& weight = {});
  // How the weight [out, in] lies over so many ranks; Error as above.
  static Cut cut(const Linear& whole, int world, std::string_view path = "");

  // x [.., in / world] to [.., out]. Errors, by the layer's name: a last dimension of other than
  // this rank's, and sequence_dim.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  Tensor weight, bias;

 private:
  RowwiseParallel style_;
};

class VocabParallelEmbedding : public TensorParallelLayer {
 public:
  // Of `count` rows [width], of which each rank has its part; fresh, or of a plain layer, as
  // ColumnParallelLinear. Errors: of cut().
  VocabParallelEmbedding(std::int64_t count, std::int64_t width, comm::ProcessGroup group,
                         const RowwiseParallel& style = {}, const EmbeddingSettings& settings = {});
  VocabParallelEmbedding(const Embedding& whole, comm::ProcessGroup group,
                         const RowwiseParallel& style, std::string_view path = "",
                         const Tensor& weight = {});
  // Error for one with max_norm: it writes rows as they are looked up.
  static Cut cut(const Embedding& whole, int world, std::string_view path = "");

  // The same index on all ranks. Errors: an index that is not i64, or is none of the rows.
  Tensor forward(const Tensor& index) override;
  std::string extra_repr() const override;

  Tensor weight;

 private:
  RowwiseParallel style_;
  std::optional<std::int64_t> padding_;  // among all rows
};

}  // namespace peal::nn
