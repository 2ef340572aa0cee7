// SPDX-License-Identifier: Apache-2.0
// Where a loader stands: how much is left of an epoch, taking one up, and its state.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/stateful.h>
#include <peal/data/copy_ahead.h>
#include <peal/data/dealt_state.h>
#include <peal/data/loader.h>
#include <peal/data/prefetch.h>

#include <algorithm>
#include <utility>

namespace peal::data {

std::int64_t DataLoader::size() const {
  if (within()) return batches_;
  if (by_batches()) return std::max<std::int64_t>(count_planned(coming()) - next_consumed_, 0);
  const std::int64_t samples = sampler_ ? sampler_->size()
                                        : shard_size(dataset_->size(), place().world, place().rank,
                                                     shard_options(coming(), next_consumed_));
  return count_batches(samples, options_.batch_size, options_.drop_last);
}

// Without the order, which takes long to draw.
std::int64_t DataLoader::count_planned(std::int64_t epoch) const {
  if (plan_) return plan_(epoch).size();
  const Order rest = places_of(data::left(dataset_->size(), dealt_before(epoch)));
  return deal(rest.size(), deal_of_options()).size();
}

void DataLoader::set_epoch(std::int64_t epoch) {
  dealt_before_.clear();
  resume(epoch, 0);
}

void DataLoader::resume(std::int64_t epoch, std::int64_t consumed) {
  PEAL_CHECK(epoch >= 0 && consumed >= 0,
             "[data] loader: expected an epoch and consumed of at least 0, got ", epoch, " and ",
             consumed);
  PEAL_CHECK(sampler_ || by_batches() || consumed <= dataset_->size(),
             "[data] loader: an epoch of ", dataset_->size(), " samples cannot be taken up after ",
             consumed, "; is it the data set that the state was saved of?");
  if (sampler_) sampler_->resume(epoch, consumed);
  epoch_.reset();
  ahead_.reset();
  failure_ = nullptr;
  next_epoch_ = epoch;
  next_consumed_ = sampler_ ? 0 : consumed;
  taken_ = batches_taken_ = last_taken_ = 0;
}

void DataLoader::skip_first_batches(std::int64_t count) {
  PEAL_CHECK(count >= 0 && count <= left(), "[data] loader: expected 0 to ", left(),
             " batches to skip in epoch ", epoch(), ", got ", count);
  if (by_batches()) return resume(epoch(), consumed() + count);
  const std::int64_t samples = count * options_.batch_size;
  if (sampler_) {
    const std::int64_t taken = within() ? taken_ : 0;
    return resume(epoch(), sampler_->consumed_after(std::min(taken + samples, sampler_->size())));
  }
  resume(epoch(),
         std::min(consumed() + samples * place().world, std::max(dataset_->size(), consumed())));
}

std::int64_t DataLoader::consumed() const {
  if (sampler_) return sampler_->consumed_after(within() ? taken_ : 0);
  if (!within()) return next_consumed_;
  if (by_batches()) return begun_at_ + batches_taken_;
  // Rank 0's count, which has the most: others may be a sample behind at the end of an exact epoch.
  const std::int64_t seen = batches_taken_ * options_.batch_size * place().world;
  return std::min(begun_at_ + seen, std::max(dataset_->size(), begun_at_));
}

std::vector<std::int64_t> DataLoader::places() const {
  PEAL_CHECK(!plan_,
             "[data] loader: a plan says which samples are in a batch, and not where they stand in "
             "the order of all ranks; for that, let options make the batches (way)");
  std::vector<std::int64_t> places;
  if (!within() || batches_taken_ == 0) return places;
  const std::int64_t last = first_batch_ + batches_taken_ - 1;
  if (by_batches()) {
    places = dealt_places(dataset_->size(), deal_of_options(), dealt_before(running_), last);
  } else {
    for (std::int64_t k = taken_ - last_taken_; k < taken_; ++k) {
      const std::int64_t at = begun_at_ + place().rank + k * place().world;
      places.push_back(sampler_ ? sampler_->place(k) : at < dataset_->size() ? at : -1);
    }
  }
  for (const BadSample& bad : bad_samples_) {
    if (bad.batch == last) places[static_cast<std::size_t>(bad.row)] = -1;
  }
  return places;
}

Dealt DataLoader::dealt_now(std::int64_t batches) const {
  return dealt(deal_of_options(), batches);
}

// A seed that nobody chose gives way to a state's.
HowOrdered DataLoader::how_ordered() const {
  if (sampler_) {
    HowOrdered mine{"sampler", sampler_->seed(), sampler_->order_of()};
    mine.numbers.emplace_back(augmentation, static_cast<std::int64_t>(seed_));
    return mine;
  }
  HowOrdered mine{"loader", std::nullopt, {}, !options_.seed};
  if (options_.shuffle) mine.seed = seed_;
  if (!plan_) mine.numbers.emplace_back("samples", dataset_->size());
  if (!options_.shuffle) {
    mine.numbers.emplace_back(augmentation, static_cast<std::int64_t>(seed_));
  }
  return mine;
}

NamedTensors DataLoader::state_dict() const {
  NamedTensors state{{"epoch", Tensor::scalar(epoch(), Device{})}};
  put_order(state, how_ordered());
  if (options_.max_bad_samples > 0) {
    const bool none = epoch() != bad_epoch_ || consumed() == 0;
    state.emplace_back("bad_samples", Tensor::scalar(none ? 0 : bad_so_far(), Device{}));
  }
  if (plan_ || !by_batches()) {
    state.emplace_back(plan_ ? "batches" : "consumed", Tensor::scalar(consumed(), Device{}));
    return state;
  }
  const auto before = dealt_before(epoch());
  std::vector<Dealt> all(before.begin(), before.end());
  all.push_back(dealt_now(consumed()));
  state.emplace_back("dealt", tensor_of(all));
  return state;
}

void DataLoader::load_state_dict(const NamedTensors& state) {
  StateReader reader("DataLoader", state);
  const auto epoch = reader.number<std::int64_t>("epoch");
  const std::int64_t bad =
      reader.has("bad_samples") ? reader.number<std::int64_t>("bad_samples") : 0;
  std::optional<std::uint64_t> seed;
  if (!options_.seed && reader.has(augmentation)) {
    seed = static_cast<std::uint64_t>(reader.number<std::int64_t>(augmentation));
  }
  const auto goes_on = [&](std::int64_t consumed, std::optional<std::uint64_t> of_order) {
    resume(epoch, consumed);
    if (options_.shuffle && !options_.seed) seed = of_order;
    seed_ = seed.value_or(seed_);
    bad_samples_.clear();
    bad_epoch_ = epoch;
    bad_before_ = bad;
  };
  if (plan_ || !by_batches()) {
    const auto consumed = reader.number<std::int64_t>(plan_ ? "batches" : "consumed");
    const auto of_order = check_order(reader, how_ordered(), consumed > 0);
    reader.finish();
    return goes_on(consumed, of_order);
  }
  TakenUp taken = read_dealt(reader, state, dealt_now(0), dataset_->size(), how_ordered());
  goes_on(taken.batches, taken.seed);
  taken_up_ = epoch;
  dealt_before_ = std::move(taken.before);
}

}  // namespace peal::data
