// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/text/text_set.h>

#include <algorithm>
#include <span>

namespace peal::data {

Collate pad_parts(std::int64_t seq_len, std::int64_t value) {
  PEAL_CHECK(seq_len >= 1, "[data] pad_parts: expected parts of at least one token, got seq_len ",
             seq_len);
  return [seq_len, value](std::span<const Sample> samples) {
    std::vector<Sample> sorted(samples.begin(), samples.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Sample& a, const Sample& b) { return a.x.numel() > b.x.numel(); });
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
    return batch;
  };
}

TextSet::TextSet(std::vector<TokenIds> texts, std::vector<std::int64_t> classes, Collate together)
    : SampleSet(std::move(together)), texts_(std::move(texts)), classes_(std::move(classes)) {
  PEAL_CHECK(texts_.size() == classes_.size(), "[data] texts: expected a class for each of ",
             texts_.size(), " texts, got ", classes_.size());
}

}  // namespace peal::data
