// SPDX-License-Identifier: Apache-2.0
// Batches for a language model (fastai: LMDataLoader): all texts one behind the other are cut into
// batch_size rows of equal length, and batch k has columns k seq_len.. of each, so that row r of a
// batch goes on where row r of the batch before ended; y is x one token further on. What is left at
// the end, fewer tokens than rows, goes unseen; the last batch may be shorter.
//
//   data::LanguageModelSet set(vocabulary.numbers_of_all(texts), {.batch_size = 64});
//   data::DataLoader loader(set_ref, {.batch_size = 64, .shard = job.place(),
//                                     .way = data::Way::split, .seed = 1});   // rows go to ranks
//
// In each epoch texts stand in another order, a pure function of (seed, epoch), where `shuffle`
// says so; samples are asked for in order, since sample s is row s % batch_size of batch s /
// batch_size. Thread safety: const methods may be called from several threads at once.
#pragma once

#include <peal/data/dataset.h>
#include <peal/data/text/vocabulary.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace peal::data {

struct LanguageModelOptions {
  std::int64_t batch_size = 64;  // rows, of all ranks together
  std::int64_t seq_len = 72;
  bool shuffle = true;
};

class LanguageModelSet : public Dataset {
 public:
  // Errors: batch_size or seq_len below 1, fewer tokens than rows and one.
  LanguageModelSet(std::vector<TokenIds> texts, const LanguageModelOptions& options = {});

  std::int64_t size() const override { return batches_ * options_.batch_size; }
  std::int64_t batches() const { return batches_; }
  // x, y [rows, tokens] i64: of texts in the order they came in. Error: an index outside, rows of
  // different lengths (of the last batch and another one).
  Batch get(std::span<const std::int64_t> indices) const override;
  // In the order of this epoch.
  Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override;

 private:
  // Texts in an order, and where each ends in all of them together.
  struct Stream {
    std::vector<std::int64_t> order, ends;
    Draws of{};
  };
  Stream stream_of(std::vector<std::int64_t> order) const;
  std::shared_ptr<const Stream> shuffled(const Draws& draws) const;
  Batch rows(std::span<const std::int64_t> indices, const Stream& stream) const;
  void copy(const Stream& stream, std::int64_t at, std::span<std::int64_t> to) const;

  std::vector<TokenIds> texts_;
  LanguageModelOptions options_;
  std::int64_t row_ = 0, batches_ = 0;  // tokens of a row in all batches
  Stream in_order_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Stream> last_;  // what was asked for last, mostly once more
};

}  // namespace peal::data
