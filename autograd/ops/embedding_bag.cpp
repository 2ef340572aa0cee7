// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/embedding_bag.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>

#include <algorithm>
#include <vector>

namespace peal {
namespace {

constexpr std::string_view bags = "embedding_bag";

// Bags of several lengths as a rectangle [B, longest]: where in the list each place lies, and
// whether it is one (else 0 and false).
struct Rectangle {
  Tensor at, there;
};
Rectangle rectangle(const Tensor& index, const Tensor& offsets, bool include_last) {
  PEAL_CHECK(offsets.defined() && offsets.dtype() == DType::i64 && offsets.dim() == 1, bags,
             ": an index ", index.shape(), " needs i64 offsets [B]");
  std::vector<std::int64_t> begins = offsets.to_vector<std::int64_t>();
  if (!include_last) begins.push_back(index.numel());
  PEAL_CHECK(!begins.empty() && begins.front() == 0 && begins.back() == index.numel() &&
                 std::is_sorted(begins.begin(), begins.end()),
             bags, ": expected offsets that rise from 0 to at most the index' size, ",
             index.numel());
  const std::int64_t count = std::ssize(begins) - 1;
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < begins.size(); ++i) {
    longest = std::max(longest, begins[i] - begins[i - 1]);
  }
  std::vector<std::int64_t> at, there;
  for (std::size_t i = 1; i < begins.size(); ++i) {
    for (std::int64_t j = begins[i - 1]; j < begins[i - 1] + longest; ++j) {
      there.push_back(j < begins[i]);
      at.push_back(j < begins[i] ? j : 0);
    }
  }
  const Shape shape{count, longest};
  return {Tensor::from(at, shape, index.device()),
          cast(Tensor::from(there, shape, index.device()), DType::boolean)};
}

// The elements of a list in a rectangle.
Tensor placed(const Tensor& list, const Tensor& at) {
  const Tensor chosen = index_select(list, 0, flatten(at));
  return reshape(chosen, {at.size(0), at.size(1)});
}

}  // namespace

Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets,
                     const EmbeddingBagOptions& options) {
  const OpName name(bags);
  PEAL_CHECK(weight.dim() == 2, bags, ": expected a weight [count, width], got shape ",
             weight.shape());
  check_floating(bags, weight);
  PEAL_CHECK(index.dim() == 1 || (index.dim() == 2 && !offsets.defined()), bags,
             ": expected an index [B, N], or [M] with offsets, got shape ", index.shape());
  Tensor own = options.per_sample_weights, chosen = index, there;
  if (own.defined()) {
    PEAL_CHECK(options.mode == BagMode::sum && own.shape() == index.shape(), bags,
               ": per_sample_weights are for a sum, of shape ", index.shape(), ", got shape ",
               own.shape());
    check_alike(bags, weight, own);
  }
  if (index.dim() == 1) {
    const Rectangle bag = rectangle(index, offsets, options.include_last_offset);
    if (bag.at.numel() == 0) {
      return Tensor::zeros({bag.at.size(0), weight.size(1)}, weight.dtype(), weight.device());
    }
    chosen = placed(index, bag.at);
    if (own.defined()) own = placed(own, bag.at);
    there = bag.there;
  }
  if (options.padding_idx) {
    const std::int64_t padding =
        *options.padding_idx < 0 ? *options.padding_idx + weight.size(0) : *options.padding_idx;
    const Tensor counts =
        ne(chosen, full({}, static_cast<double>(padding), DType::i64, index.device()));
    there = there.defined() ? logical_and(there, counts) : counts;
  }
  const auto number = [&](double value) {
    return full({}, value, weight.dtype(), weight.device());
  };
  Tensor rows = embedding(chosen, weight, options.padding_idx);  // [B, N, width]
  if (own.defined()) rows = rows * unsqueeze(own, 2);
  if (options.mode == BagMode::max) {
    if (!there.defined()) return max(rows, 1).values;
    const Tensor most = max(where(unsqueeze(there, 2), rows, number(-INFINITY)), 1).values;
    return where(any(there, 1, true), most, number(0));  // 0 of an empty bag
  }
  if (there.defined()) rows = where(unsqueeze(there, 2), rows, number(0));
  const Tensor total = sum(rows, {1});
  if (options.mode == BagMode::sum) return total;
  if (!there.defined())
    return total / static_cast<double>(std::max<std::int64_t>(chosen.size(1), 1));
  return total / clamp(sum(cast(there, weight.dtype()), {1}, true), 1);
}

}  // namespace peal
