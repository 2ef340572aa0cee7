// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/rows.h>
#include <peal/data/sampler.h>
#include <peal/data/text/language_model_set.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace peal::data {

LanguageModelSet::LanguageModelSet(std::vector<TokenIds> texts, const LanguageModelOptions& options)
    : texts_(std::move(texts)), options_(options) {
  PEAL_CHECK(options_.batch_size >= 1 && options_.seq_len >= 1,
             "[data] language model: expected a batch_size and a seq_len of at least 1, got ",
             options_.batch_size, " and ", options_.seq_len);
  std::vector<std::int64_t> order(texts_.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  in_order_ = stream_of(std::move(order));
  const std::int64_t tokens = in_order_.ends.empty() ? 0 : in_order_.ends.back();
  row_ = (tokens - 1) / options_.batch_size;  // each token has one behind it to be told
  PEAL_CHECK(row_ >= 1, "[data] language model: ", tokens, " tokens are too few for ",
             options_.batch_size, " rows, and one token behind them");
  batches_ = (row_ + options_.seq_len - 1) / options_.seq_len;
}

LanguageModelSet::Stream LanguageModelSet::stream_of(std::vector<std::int64_t> order) const {
  Stream stream{std::move(order), {}};
  std::int64_t end = 0;
  for (const std::int64_t text : stream.order) {
    stream.ends.push_back(end += std::ssize(texts_[static_cast<std::size_t>(text)]));
  }
  return stream;
}

std::shared_ptr<const LanguageModelSet::Stream> LanguageModelSet::shuffled(
    const Draws& draws) const {
  const std::lock_guard lock(mutex_);
  if (!last_ || last_->of.seed != draws.seed || last_->of.epoch != draws.epoch) {
    Stream stream =
        stream_of(shard(std::ssize(texts_), 1, 0, {.seed = draws.seed, .epoch = draws.epoch}));
    stream.of = draws;
    last_ = std::make_shared<const Stream>(std::move(stream));
  }
  return last_;
}

Batch LanguageModelSet::get(std::span<const std::int64_t> indices) const {
  return rows(indices, in_order_);
}

Batch LanguageModelSet::augmented(std::span<const std::int64_t> indices, const Draws& draws) const {
  return options_.shuffle ? rows(indices, *shuffled(draws)) : get(indices);
}

Batch LanguageModelSet::rows(std::span<const std::int64_t> indices, const Stream& stream) const {
  const auto length_of = [&](std::int64_t index) {
    check_index("language model", index, size());
    return std::min(options_.seq_len, row_ - index / options_.batch_size * options_.seq_len);
  };
  const std::int64_t length = indices.empty() ? 0 : length_of(indices.front());
  Batch batch{Tensor::empty({std::ssize(indices), length}, DType::i64, Device{}),
              Tensor::empty({std::ssize(indices), length}, DType::i64, Device{})};
  std::int64_t* x = batch.x.data<std::int64_t>();
  std::int64_t* y = batch.y.data<std::int64_t>();
  for (const std::int64_t index : indices) {
    PEAL_CHECK(length_of(index) == length, "[data] language model: sample ", index, " has ",
               length_of(index), " tokens and sample ", indices.front(), " ", length,
               "; take batches of ", options_.batch_size, " in order, without shuffle");
    const std::int64_t at =
        index % options_.batch_size * row_ + index / options_.batch_size * options_.seq_len;
    copy(stream, at, {x, static_cast<std::size_t>(length)});
    copy(stream, at + 1, {y, static_cast<std::size_t>(length)});
    x += length;
    y += length;
  }
  return batch;
}

void LanguageModelSet::copy(const Stream& stream, std::int64_t at,
                            std::span<std::int64_t> to) const {
  auto k = static_cast<std::size_t>(std::upper_bound(stream.ends.begin(), stream.ends.end(), at) -
                                    stream.ends.begin());
  while (!to.empty()) {
    const TokenIds& text = texts_[static_cast<std::size_t>(stream.order[k])];
    const std::int64_t begin = stream.ends[k] - std::ssize(text);
    const auto count =
        std::min<std::size_t>(to.size(), static_cast<std::size_t>(stream.ends[k] - at));
    std::copy_n(text.begin() + (at - begin), count, to.begin());
    to = to.subspan(count);
    at += static_cast<std::int64_t>(count);
    ++k;
  }
}

}  // namespace peal::data
