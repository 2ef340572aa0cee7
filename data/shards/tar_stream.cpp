// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/data/formats/tar.h>
#include <peal/data/shards/tar_index.h>
#include <peal/data/shards/tar_stream.h>
#include <peal/data/shards/windowed.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

namespace peal::data {
namespace {

// The samples of a shard, one after the other.
class ShardReader {
 public:
  // `told` is whether the log has heard of the shard's symbolic links.
  ShardReader(const std::string& name, std::atomic_flag& told)
      : name_(name), told_(told), tar_(open_bytes(name), name) {}

  // Without its content where that is not wanted.
  std::optional<TarSample> next(bool wanted) {
    if (!ahead_ && !find()) return std::nullopt;
    TarSample sample{name_, ahead_->stem};
    do {
      PEAL_CHECK(!sample.has(ahead_->suffix), "[data] ", sample.name(), " has two files '",
                 ahead_->suffix, "'; files that follow one another and have one stem are a sample");
      const std::size_t at = sample.bytes.size();
      if (wanted) tar_.read(sample.bytes);
      sample.files.push_back({ahead_->suffix, at, sample.bytes.size() - at});
    } while (find() && ahead_->stem == sample.stem);
    return sample;
  }

 private:
  // The next file of a sample.
  bool find() {
    ahead_.reset();
    while (!ended_ && !ahead_) {
      const auto entry = tar_.next();
      ended_ = !entry;
      if (ended_ && !told_.test_and_set()) tar_.warn_of_links();
      if (!entry || entry->kind == TarEntry::folder) continue;
      ahead_ = stem_and_suffix(entry->name);
      if (ahead_) check_no_link(*entry, name_);
    }
    return ahead_.has_value();
  }

  std::string name_;
  std::atomic_flag& told_;
  TarReader tar_;
  std::optional<StemAndSuffix> ahead_;  // whose content comes next
  bool ended_ = false;
};

}  // namespace

TarStream::TarStream(std::vector<std::string> shards, Decode decode, TarStreamOptions options)
    : shards_(std::move(shards)),
      decode_(std::move(decode)),
      options_(std::move(options)),
      told_of_links_(shards_.size()) {
  PEAL_CHECK(!shards_.empty(), "[data] tar stream: expected shards, got none");
  PEAL_CHECK(decode_, "[data] tar stream: expected a function that decodes a sample");
  PEAL_CHECK(options_.window >= 1, "[data] tar stream: expected a window of at least 1, got ",
             options_.window);
}

StreamDataset::Reader TarStream::read(std::int64_t part, std::int64_t from,
                                      const Draws& draws) const {
  const auto at = static_cast<std::size_t>(part);
  const auto reader = std::make_shared<ShardReader>(shards_.at(at), told_of_links_.at(at));
  return
      [=, this,
       next = windowed<TarSample>([reader](bool wanted) { return reader->next(wanted); }, part,
                                  from, options_.window, draws)]() mutable -> std::optional<Batch> {
        const auto found = next();
        if (!found) return std::nullopt;
        Draw draw = draws.of(number_in_stream(part, found->second));
        try {
          const Sample sample = decoded(decode_, found->first, draw);
          return data::collate(std::span(&sample, 1));
        } catch (const std::exception& failure) {
          if (ran_out_of_memory()) throw;
          std::throw_with_nested(BadStreamSample(failure.what()));
        }
      };
}

Batch TarStream::collate(std::span<const Batch> samples) const {
  return joined(samples, options_.together);
}

}  // namespace peal::data
