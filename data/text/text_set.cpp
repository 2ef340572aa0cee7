// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/text/text_set.h>

#include <algorithm>
#include <numeric>
#include <span>

namespace peal::data {

Collate pad_parts(std::int64_t seq_len, std::int64_t value) {
  PEAL_CHECK(seq_len >= 1, "[data] pad_parts: expected parts of at least one token, got seq_len ",
             seq_len);
  return [seq_len, value](std::span<const Sample> samples) {
    std::vector<std::int64_t> order(samples.size());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    const auto sample_of = [&](std::int64_t k) -> const Sample& {
      return samples[static_cast<std::size_t>(k)];
    };
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return sample_of(a).x.numel() > sample_of(b).x.numel();
    });
    std::vector<Sample> sorted;
    for (const std::int64_t k : order) sorted.push_back(sample_of(k));
    Batch batch = pad_collate({.side = Padding::right})(sorted);
    PEAL_CHECK(batch.x.dim() == 2 && batch.x.dtype() == DType::i64,
               "[data] pad_parts: expected texts of i64 [tokens], got a batch of ", batch.x.dtype(),
               " ", batch.x.shape());
    // All texts end in the last part, so that none is padding there.
    const auto before = [&](const Sample& sample) {
      const std::int64_t most = sorted.front().x.numel(), own = sample.x.numel();
      return ((most + seq_len - 1) / seq_len - (own + seq_len - 1) / seq_len) * seq_len;
    };
    std::int64_t width = 0;
    for (const Sample& each : sorted) width = std::max(width, before(each) + each.x.numel());
    std::vector<std::int64_t> tokens;
    std::int64_t rows = 0;
    for (const Sample& each : sorted) {
      const std::int64_t* text = each.x.data<std::int64_t>();
      tokens.insert(tokens.end(), static_cast<std::size_t>(before(each)), value);
      tokens.insert(tokens.end(), text, text + each.x.numel());
      tokens.resize(static_cast<std::size_t>(++rows * width), value);
    }
    batch.x = Tensor::from(tokens, {std::ssize(sorted), width}, Device{});
    batch.more.emplace_back("order", Tensor::from(order, {std::ssize(order)}, Device{}));
    return batch;
  };
}

TextSet::TextSet(std::vector<TokenIds> texts, std::vector<std::int64_t> classes, Collate together)
    : SampleSet(std::move(together)), texts_(std::move(texts)), classes_(std::move(classes)) {
  PEAL_CHECK(classes_.empty() || texts_.size() == classes_.size(),
             "[data] texts: expected a class for each of ", texts_.size(), " texts, got ",
             classes_.size());
}

}  // namespace peal::data
