// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/stateful.h>
#include <peal/data/sampler.h>
#include <peal/data/stream.h>
#include <peal/data/stream_lanes.h>
#include <peal/data/stream_loader.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace peal::data {
namespace {

Tensor of_words(const std::vector<std::int64_t>& words) {
  return Tensor::from(words, {std::ssize(words)}, Device{});
}

}  // namespace

StreamLoader::StreamLoader(std::shared_ptr<const StreamDataset> dataset,
                           const StreamLoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  PEAL_CHECK(dataset_, "[data] stream loader: expected a data set, got none");
  reader_parts(0, options_.place);  // a place in its world
  PEAL_CHECK(options_.batch_size >= 1 && options_.readers >= 1 && options_.prefetch >= 1,
             "[data] stream loader: expected batch_size, readers and prefetch of at least 1, got ",
             options_.batch_size, ", ", options_.readers, " and ", options_.prefetch);
  PEAL_CHECK(options_.workers >= 0 && options_.workers <= options_.readers,
             "[data] stream loader: expected workers from 0 to ", options_.readers,
             ", as many as there are readers, got ", options_.workers);
  PEAL_CHECK(options_.max_bad_samples >= 0,
             "[data] stream loader: expected max_bad_samples to be at least 0, got ",
             options_.max_bad_samples);
  begin(0);
}

StreamLoader::~StreamLoader() = default;

void StreamLoader::begin(std::int64_t epoch) {
  PEAL_CHECK(epoch >= 0, "[data] stream loader: expected an epoch of at least 0, got ", epoch);
  lanes_.reset();
  failure_ = nullptr;
  epoch_ = epoch;
  turn_ = 0;
  dealt_.assign(static_cast<std::size_t>(dataset_->parts()), 0);
  taken_ = dealt_;
}

void StreamLoader::set_epoch(std::int64_t epoch) { begin(epoch); }

// Parts that were not read to their end when they were dealt go round among all readers.
StreamLanes& StreamLoader::lanes() {
  if (lanes_) return *lanes_;
  const Order order = epoch_order(
      std::ssize(dealt_), {.shuffle = options_.shuffle, .seed = options_.seed, .epoch = epoch_});
  std::vector<std::int64_t> left;
  for (std::int64_t k = 0; k < order.size(); ++k) {
    if (dealt_[static_cast<std::size_t>(order[k])] != whole_part) left.push_back(order[k]);
  }
  std::vector<std::vector<PartTaken>> lanes;
  for (int reader = 0; reader < options_.readers; ++reader) {
    std::vector<PartTaken> mine;
    for (const std::int64_t k :
         reader_parts(std::ssize(left), options_.place, reader, options_.readers)) {
      const std::int64_t part = left[static_cast<std::size_t>(k)];
      const std::int64_t taken = taken_[static_cast<std::size_t>(part)];
      if (taken != whole_part) mine.push_back({part, taken});
    }
    lanes.push_back(std::move(mine));
  }
  bad_samples_.clear();
  lanes_ = std::make_unique<StreamLanes>(
      *dataset_, std::move(lanes), static_cast<int>(turn_), Draws{options_.seed, epoch_},
      LaneOptions{options_.batch_size, options_.workers, options_.prefetch, options_.drop_last,
                  options_.max_bad_samples});
  return *lanes_;
}

// One too many is an error from then on, which next() throws.
void StreamLoader::note_bad(const std::vector<PassedOver>& bad) {
  for (const PassedOver& each : bad) {
    bad_samples_.push_back(each);
    const std::string which = concat("[data] sample ", each.sample, " of part ", each.part,
                                     " (epoch ", epoch_, "): ", each.why);
    if (std::ssize(bad_samples_) > options_.max_bad_samples) {
      failure_ = std::make_exception_ptr(Error(concat(
          which, "; it is bad sample ", bad_samples_.size(),
          " of this epoch, of which max_bad_samples lets ", options_.max_bad_samples, " be")));
      return;
    }
    log_warning(which, "; it is passed over");
  }
}

std::optional<Batch> StreamLoader::next() {
  if (failure_) std::rethrow_exception(failure_);
  auto made = lanes().next();
  note_bad(lanes_->take_bad_ends());
  if (made && !failure_) note_bad(made->bad);
  if (failure_) std::rethrow_exception(failure_);
  if (!made) {
    begin(epoch_ + 1);
    return std::nullopt;
  }
  for (const auto& [part, samples] : made->taken) {
    taken_[static_cast<std::size_t>(part)] = samples;
  }
  turn_ = lanes_->turn();
  return std::move(made->batch);
}

// A loop that asks comes to the end of an epoch without next(), so the bad ones there count here.
bool StreamLoader::has_next() {
  if (failure_) return true;
  const bool more = lanes().has_next();
  note_bad(lanes_->take_bad_ends());
  return more || failure_;
}

void StreamLoader::skip_first_batches(std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) {
    PEAL_CHECK(has_next(), "[data] stream loader: epoch ", epoch_, " has ", k,
               " batches left, and ", count, " were to be skipped");
    next();
  }
}

NamedTensors StreamLoader::state_dict() const {
  std::vector<std::int64_t> turns(static_cast<std::size_t>(options_.place.world), 0);
  turns[static_cast<std::size_t>(options_.place.rank)] = turn_;
  return {{"epoch", Tensor::scalar(epoch_, Device{})},
          {"readers", Tensor::scalar(std::int64_t{options_.readers}, Device{})},
          {"seed", Tensor::scalar(static_cast<std::int64_t>(options_.seed), Device{})},
          {"window", Tensor::scalar(dataset_->window(), Device{})},
          {"turns", of_words(turns)},
          {"dealt", of_words(dealt_)},
          {"taken", of_words(taken_)}};
}

// What was taken of a part is a number of samples, in the order that the seed and the window give
// it. Older states have neither.
void StreamLoader::check_order(StateReader& reader, const Tensor& taken) const {
  const std::int64_t window = dataset_->window();
  const auto seed = static_cast<std::int64_t>(options_.seed);
  const auto saved = [&](const char* key, std::int64_t otherwise) {
    return reader.has(key) ? reader.number<std::int64_t>(key) : otherwise;
  };
  const std::int64_t saved_seed = saved("seed", seed), saved_window = saved("window", window);
  const auto words =
      taken.defined() ? taken.to_vector<std::int64_t>() : std::vector<std::int64_t>();
  const bool within = std::any_of(words.begin(), words.end(),
                                  [](std::int64_t k) { return k > 0 && k != whole_part; });
  if (!within) return;
  constexpr const char* why = ": the order is another, and some samples would come twice";
  if (saved_window != window) {
    reader.fault(concat("window: expected ", window, ", as of this set, got ", saved_window, why));
  }
  if (saved_seed != seed && window > 1) {
    reader.fault(concat("seed: expected ", options_.seed, ", as of this loader, got ",
                        static_cast<std::uint64_t>(saved_seed), why));
  }
}

void StreamLoader::load_state_dict(const NamedTensors& state) {
  const auto found = std::find_if(state.begin(), state.end(),
                                  [](const auto& entry) { return entry.first == "turns"; });
  const std::int64_t world = found == state.end() ? 1 : found->second.numel();
  const Shape parts{std::ssize(taken_)};
  StateReader reader("StreamLoader", state);
  const auto epoch = reader.number<std::int64_t>("epoch");
  const auto readers = reader.number<std::int64_t>("readers");
  const Tensor turns = reader.tensor("turns", {world}, DType::i64);
  const Tensor dealt = reader.tensor("dealt", parts, DType::i64);
  const Tensor taken = reader.tensor("taken", parts, DType::i64);
  check_order(reader, taken);
  reader.finish();
  begin(epoch);
  taken_ = taken.to_vector<std::int64_t>();
  dealt_ = taken_;
  if (world != options_.place.world || readers != options_.readers) return;
  dealt_ = dealt.to_vector<std::int64_t>();
  turn_ = turns.to_vector<std::int64_t>()[static_cast<std::size_t>(options_.place.rank)];
}

NamedTensors StreamLoader::merge_states(std::span<const NamedTensors> states) {
  PEAL_CHECK(!states.empty(), "[data] stream loader: expected states to merge, got none");
  NamedTensors merged;
  for (std::size_t i = 0; i < states[0].size(); ++i) {
    const auto& [name, first] = states[0][i];
    std::vector<std::int64_t> greatest = first.to_vector<std::int64_t>();
    for (const NamedTensors& state : states) {
      PEAL_CHECK(
          i < state.size() && state[i].first == name && state[i].second.shape() == first.shape(),
          "[data] stream loader: states of different loaders cannot be merged: they differ "
          "in '",
          name, "'");
      const auto words = state[i].second.to_vector<std::int64_t>();
      // Of a rank that is an epoch behind, what it has read would be left out of the next.
      const bool alike = name == "epoch" || name == "readers" || name == "seed" || name == "window";
      PEAL_CHECK(!alike || words == first.to_vector<std::int64_t>(),
                 "[data] stream loader: states cannot be merged where ", name, " is ",
                 first.item<std::int64_t>(), " in one and ", words[0], " in another",
                 "; take them while all ranks are in one epoch");
      for (std::size_t k = 0; k < words.size(); ++k) greatest[k] = std::max(greatest[k], words[k]);
    }
    merged.emplace_back(name, Tensor::from(greatest, first.shape(), Device{}));
  }
  return merged;
}

}  // namespace peal::data
