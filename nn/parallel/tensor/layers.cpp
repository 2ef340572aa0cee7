// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/masked.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/parallel/even_share.h>
#include <peal/nn/parallel/tensor/layers.h>
#include <peal/nn/parallel/tensor/regions.h>

#include <algorithm>

namespace peal::nn {
namespace {

std::string named_layer(const char* what, std::string_view path) {
  return path.empty() ? std::string(what) : concat(what, " ", path);
}

// The part that there is, or a new one.
Tensor part_or(const Tensor& part, const Tensor& whole, const Cut& cut,
               const comm::ProcessGroup& group) {
  return part.defined() ? part : part_of(whole, cut, group.rank(), group.world());
}

const comm::ProcessGroup& checked(const comm::ProcessGroup& group, const std::string& name) {
  PEAL_CHECK(bool(group), name, ": expected a process group, got none");
  return group;
}

// The sequence's dimension of x [.., features], which is not cut where the features are meant.
int sequence_of(const Tensor& x, int dim, std::string_view name) {
  const int found = dim_from_front(x, dim, name);
  PEAL_CHECK(found + 1 < x.dim(), name, ": sequence_dim ", dim, " of shape ", x.shape(),
             " are its features; of [rows, features] the sequence is sequence_dim 0");
  return found;
}

// From a part of the sum to the whole of it, or to its part of the sequence.
Tensor left_region(const Tensor& x, const comm::ProcessGroup& group, const RowwiseParallel& style,
                   std::string_view name) {
  if (!style.sequence_parallel) return reduce_from_tensor_parallel_region(x, group, name);
  return reduce_scatter_sequence(x, group, sequence_of(x, style.sequence_dim, name), name);
}

bool has_features(const Tensor& x, std::int64_t count) {
  return x.dim() > 0 && x.size(-1) == count;
}

std::string cut_repr(const Shape& whole, std::string_view first, std::string_view second,
                     int world) {
  return concat(first, "=", whole[1], ", ", second, "=", whole[0], ", ranks=", world);
}

}  // namespace

TensorParallelLayer::TensorParallelLayer(comm::ProcessGroup group, std::string name)
    : group_(checked(group, name)), name_(std::move(name)) {}

std::optional<Cut> TensorParallelLayer::cut_of(std::string_view parameter) const {
  for (const auto& [own, cut] : cuts_) {
    if (own == parameter) return cut;
  }
  return std::nullopt;
}

std::optional<Shape> TensorParallelLayer::whole_shape(std::string_view parameter) const {
  const auto cut = cut_of(parameter);
  return cut ? std::optional(cut->whole) : std::nullopt;
}

Tensor TensorParallelLayer::take_part(std::string_view parameter, const Tensor& whole) const {
  return part_of(whole, *cut_of(parameter), group_.rank(), group_.world());
}

Tensor TensorParallelLayer::bring_together(std::string_view parameter, const Tensor& part,
                                           std::string_view label) const {
  return whole_of(part, *cut_of(parameter), group_, label);
}

std::optional<Cut> cut_of(const Module& model, std::string_view parameter) {
  const std::size_t dot = parameter.rfind('.');
  const bool own = dot == std::string_view::npos;
  Module owner = model.get_submodule(own ? std::string_view() : parameter.substr(0, dot));
  const auto* const layer = owner.as<TensorParallelLayer>();
  if (layer == nullptr) return std::nullopt;
  return layer->cut_of(own ? parameter : parameter.substr(dot + 1));
}

Tensor TensorParallelLayer::add_part(const char* parameter, const Tensor& part, const Cut& cut,
                                     bool trained) {
  cuts_.emplace_back(parameter, cut);
  // What looks at several elements at once sees too few of them on one rank, and says so.
  if (group_.world() > 1) part.storage()->mark_piece();
  return register_parameter(parameter, part, trained);
}

Cut ColumnParallelLinear::cut(const Linear& whole, int world, const ColwiseParallel& style,
                              std::string_view path) {
  const std::string name = named_layer("ColumnParallelLinear", path);
  Cut cut{whole.weight.shape(), 0, style.parts};
  const std::int64_t heads = style.heads;
  PEAL_CHECK(style.parts > 0 && heads >= 0, name, ": expected parts above 0 and heads of at least ",
             "0, got ", style.parts, " and ", heads);
  PEAL_CHECK(heads == 0 || heads % world == 0, name, ": ", heads, " heads do not divide among ",
             world, " tensor-parallel ranks; take fewer ranks");
  PEAL_CHECK(heads == 0 || cut.whole[0] % (style.parts * heads) == 0, name, ": ", cut.whole[0],
             " features are not ", style.parts, " parts of ", heads, " equal heads");
  PEAL_CHECK(style.parts == 1 || !style.gather_output, name,
             ": gather_output is for one part, got ", style.parts);
  local_shape(cut, world, name);
  return cut;
}

ColumnParallelLinear::ColumnParallelLinear(std::int64_t in, std::int64_t out,
                                           comm::ProcessGroup group, const ColwiseParallel& style,
                                           bool with_bias)
    : ColumnParallelLinear(Linear(in, out, with_bias), std::move(group), style) {}

ColumnParallelLinear::ColumnParallelLinear(const Linear& whole, comm::ProcessGroup over,
                                           const ColwiseParallel& style, std::string_view path,
                                           const Tensor& part)
    : TensorParallelLayer(std::move(over), named_layer("ColumnParallelLinear", path)),
      style_(style) {
  const Cut rows = cut(whole, group().world(), style, path);
  weight = add_part("weight", part_or(part, whole.weight, rows, group()), rows,
                    whole.weight.requires_grad());
  if (!whole.bias.defined()) return;
  const Cut bias_cut{whole.bias.shape(), 0, style.parts};
  bias = add_part("bias", part_or({}, whole.bias, bias_cut, group()), bias_cut,
                  whole.bias.requires_grad());
}

Tensor ColumnParallelLinear::forward(const Tensor& x) {
  const std::int64_t features = weight.size(1);
  PEAL_CHECK(has_features(x, features), name(), ": expected all ", features,
             " features on every rank, got shape ", x.shape(),
             has_features(x, features / group().world())
                 ? "; what another ColwiseParallel gives is cut: let that one gather_output, or "
                   "let this one be RowwiseParallel"
                 : "");
  const Tensor in =
      style_.sequence_parallel
          ? all_gather_sequence(x, group(), sequence_of(x, style_.sequence_dim, name()), name())
          : copy_to_tensor_parallel_region(x, group(), name());
  const Tensor y = linear(in, weight, bias);
  return style_.gather_output ? gather_from_tensor_parallel_region(y, group(), -1, name()) : y;
}

std::string ColumnParallelLinear::extra_repr() const {
  return cut_repr(cut_of("weight")->whole, "in_features", "out_features", group().world());
}

Cut RowParallelLinear::cut(const Linear& whole, int world, std::string_view path) {
  Cut cut{whole.weight.shape(), 1, 1};
  local_shape(cut, world, named_layer("RowParallelLinear", path));
  return cut;
}

RowParallelLinear::RowParallelLinear(std::int64_t in, std::int64_t out, comm::ProcessGroup group,
                                     const RowwiseParallel& style, bool with_bias)
    : RowParallelLinear(Linear(in, out, with_bias), std::move(group), style) {}

RowParallelLinear::RowParallelLinear(const Linear& whole, comm::ProcessGroup over,
                                     const RowwiseParallel& style, std::string_view path,
                                     const Tensor& part)
    : TensorParallelLayer(std::move(over), named_layer("RowParallelLinear", path)), style_(style) {
  const Cut columns = cut(whole, group().world(), path);
  weight = add_part("weight", part_or(part, whole.weight, columns, group()), columns,
                    whole.weight.requires_grad());
  if (!whole.bias.defined()) return;
  bias = register_parameter("bias", whole.bias, whole.bias.requires_grad());
}

Tensor RowParallelLinear::forward(const Tensor& x) {
  const Tensor in =
      style_.input_is_parallel ? x : scatter_to_tensor_parallel_region(x, group(), -1, name());
  const std::int64_t share = weight.size(1), all = share * group().world();
  PEAL_CHECK(has_features(in, share), name(), ": expected this rank's ", share, " of ", all,
             " features, got shape ", x.shape(),
             has_features(in, all)
                 ? "; let what gives them all be ColwiseParallel, or let this one "
                   "cut them itself (input_is_parallel = false)"
                 : "");
  const Tensor y = left_region(linear(in, weight), group(), style_, name());
  if (!bias.defined()) return y;
  // Added once, to the sum. To a part of the sequence: the ranks' gradients of it add up. In y's
  // type, as Linear does, and its gradients add up in its own.
  const Tensor once =
      style_.sequence_parallel ? copy_to_tensor_parallel_region(bias, group(), name()) : bias;
  return y + cast(once, y.dtype());
}

std::string RowParallelLinear::extra_repr() const {
  return cut_repr(cut_of("weight")->whole, "in_features", "out_features", group().world());
}

Cut VocabParallelEmbedding::cut(const Embedding& whole, int world, std::string_view path) {
  const std::string name = named_layer("VocabParallelEmbedding", path);
  PEAL_CHECK(!whole.settings().max_norm, name,
             ": an embedding with max_norm writes rows as they are looked up, and is not cut");
  Cut cut{whole.weight.shape(), 0, 1};
  local_shape(cut, world, name);
  return cut;
}

VocabParallelEmbedding::VocabParallelEmbedding(std::int64_t count, std::int64_t width,
                                               comm::ProcessGroup group,
                                               const RowwiseParallel& style,
                                               const EmbeddingSettings& settings)
    : VocabParallelEmbedding(Embedding(count, width, settings), std::move(group), style) {}

VocabParallelEmbedding::VocabParallelEmbedding(const Embedding& whole, comm::ProcessGroup over,
                                               const RowwiseParallel& style, std::string_view path,
                                               const Tensor& part)
    : TensorParallelLayer(std::move(over), named_layer("VocabParallelEmbedding", path)),
      style_(style),
      padding_(whole.settings().padding_idx) {
  const Cut rows = cut(whole, group().world(), path);
  weight = add_part("weight", part_or(part, whole.weight, rows, group()), rows,
                    whole.weight.requires_grad());
}

Tensor VocabParallelEmbedding::forward(const Tensor& index) {
  const std::int64_t all = cut_of("weight")->whole[0], share = weight.size(0);
  const std::int64_t first = share * group().rank();
  PEAL_CHECK(index.dtype() == DType::i64, name(), ": expected an index of i64, got ",
             index.dtype());
  if (index.numel() > 0) {  // alike on all ranks, for each sees all of them
    const std::int64_t low = min(index).item<std::int64_t>(),
                       high = max(index).item<std::int64_t>();
    PEAL_CHECK(low >= 0 && high < all, name(), ": index ", low < 0 ? low : high, " is not one of ",
               all, " rows");
  }
  const Tensor outside = (index < first) | (index >= first + share);
  std::optional<std::int64_t> padding;
  if (padding_ && *padding_ >= first && *padding_ < first + share) padding = *padding_ - first;
  const Tensor mine = embedding(masked_fill(index - first, outside, 0), weight, padding);
  const Tensor part = masked_fill(mine, unsqueeze(outside, -1), 0);
  return left_region(part, group(), style_, name());
}

std::string VocabParallelEmbedding::extra_repr() const {
  const Shape whole = cut_of("weight")->whole;
  return concat(whole[0], ", ", whole[1], ", ranks=", group().world());
}

}  // namespace peal::nn
