// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/rng.h>
#include <peal/autograd/core/stateful.h>
#include <peal/data/permutation.h>
#include <peal/data/sampler.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace peal::data {
namespace {

void check(std::int64_t size, int world, int rank, const ShardOptions& options) {
  PEAL_CHECK(world >= 1, "[data] sampler: expected a world of at least 1, got ", world);
  PEAL_CHECK(rank >= 0 && rank < world, "[data] sampler: expected a rank from 0 to ", world - 1,
             ", got ", rank);
  PEAL_CHECK(size >= 0, "[data] sampler: expected a size of at least 0, got ", size);
  PEAL_CHECK(options.epoch >= 0, "[data] sampler: expected an epoch of at least 0, got ",
             options.epoch);
  PEAL_CHECK(options.consumed >= 0, "[data] sampler: expected consumed to be at least 0, got ",
             options.consumed);
  PEAL_CHECK(!(options.exact && options.drop_last),
             "[data] sampler: exact sees every sample once, drop_last leaves some out: choose one");
}

// The samples that all ranks together still see, padding included.
std::int64_t global_count(std::int64_t size, int world, const ShardOptions& options) {
  const std::int64_t left = std::max<std::int64_t>(size - options.consumed, 0);
  if (options.exact) return left;
  return (options.drop_last ? left / world : (left + world - 1) / world) * world;
}

// Fisher and Yates. Words of Philox from the upper half of the stream, which no op's generator
// reaches. A remainder of 64 bits is off a uniform draw by less than size / 2^64.
std::vector<std::int64_t> order(std::int64_t size, const ShardOptions& options) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(size));
  std::iota(samples.begin(), samples.end(), std::int64_t{0});
  if (!options.shuffle) return samples;
  const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(options.epoch);
  constexpr std::uint64_t upper_half = std::uint64_t{1} << 63;
  PhiloxBlock block{};
  for (std::uint64_t left = samples.size(), draw = 0; left > 1; --left, ++draw) {
    if (draw % 2 == 0) block = philox(seed, upper_half + draw / 2);
    const std::uint32_t* word = block.word + draw % 2 * 2;
    const std::uint64_t bits = std::uint64_t{word[0]} << 32 | word[1];
    std::swap(samples[left - 1], samples[bits % left]);
  }
  return samples;
}

}  // namespace

std::int64_t Sampler::consumed_after(std::int64_t taken) const {
  PEAL_CHECK(taken == 0, "[data] sampler: this one says nothing of how to go on after ", taken,
             " samples of its epoch: let it override consumed_after() and resume(), or save its "
             "state between epochs");
  return 0;
}

void Sampler::resume(std::int64_t epoch, std::int64_t consumed) {
  PEAL_CHECK(consumed == 0, "[data] sampler: this one cannot take up an epoch after ", consumed,
             " samples: let it override consumed_after() and resume()");
  set_epoch(epoch);
}

void put_order(NamedTensors& state, const HowOrdered& mine) {
  if (mine.seed) {
    state.emplace_back("seed", Tensor::scalar(static_cast<std::int64_t>(*mine.seed), Device{}));
  }
  for (const auto& [what, number] : mine.numbers) {
    state.emplace_back(what, Tensor::scalar(number, Device{}));
  }
}

std::optional<std::uint64_t> check_order(StateReader& reader, const HowOrdered& mine, bool within) {
  const bool older = !reader.has("seed") && !reader.has("samples");
  std::optional<std::uint64_t> seed;
  if (reader.has("seed")) seed = static_cast<std::uint64_t>(reader.number<std::int64_t>("seed"));
  if (within && !older && seed != mine.seed && !(mine.any_seed && seed && mine.seed)) {
    const std::string expected = mine.seed
                                     ? concat("expected ", *mine.seed, ", as of this ", mine.whose)
                                     : concat("this ", mine.whose, " draws no order");
    reader.fault(concat("seed: ", expected, ", got ", seed ? concat(*seed) : "none",
                        ": its order is another, and some samples would come twice"));
  }
  for (const auto& [what, number] : mine.numbers) {
    if (!reader.has(what)) continue;
    const auto saved = reader.number<std::int64_t>(what);
    if (!within || saved == number) continue;
    reader.fault(concat(what, ": expected ", number, ", as of this ", mine.whose, ", got ", saved,
                        ": the rest of its epoch would be another"));
  }
  // An order that is drawn has its seed for it.
  if (reader.has(augmentation)) reader.number<std::int64_t>(augmentation);
  return seed;
}

std::int64_t shard_size(std::int64_t size, int world, int rank, const ShardOptions& options) {
  check(size, world, rank, options);
  return (global_count(size, world, options) - rank + world - 1) / world;
}

std::vector<std::int64_t> shard(std::int64_t size, int world, int rank,
                                const ShardOptions& options) {
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(shard_size(size, world, rank, options)));
  const bool each_by_itself = size >= huge;
  const Permutation permutation(each_by_itself && options.shuffle ? size : 0,
                                options.seed + static_cast<std::uint64_t>(options.epoch));
  const std::vector<std::int64_t> all =
      each_by_itself ? std::vector<std::int64_t>() : order(size, options);
  const auto sample = [&](std::int64_t place) {
    if (!each_by_itself) return all[static_cast<std::size_t>(place)];
    return options.shuffle ? permutation.at(place) : place;
  };
  // Padding starts from the head of the whole order even when the epoch is taken up in the middle:
  // so the same world sees exactly what it would have seen without the break.
  const std::int64_t end = options.consumed + global_count(size, world, options);
  for (std::int64_t at = options.consumed + rank; at < end; at += world) {
    mine.push_back(sample(at % size));
  }
  return mine;
}

Order planned_shard(std::int64_t size, int world, int rank, const ShardOptions& options) {
  if (options.shuffle && size < huge) return shard(size, world, rank, options);
  const Permutation permutation(options.shuffle ? size : 0,
                                options.seed + static_cast<std::uint64_t>(options.epoch));
  return {shard_size(size, world, rank, options), [=](std::int64_t k) {
            const std::int64_t place = (options.consumed + rank + k * world) % size;
            return options.shuffle ? permutation.at(place) : place;
          }};
}

DistributedSampler::DistributedSampler(std::int64_t size, int world, int rank, ShardOptions options)
    : size_(size), world_(world), rank_(rank), options_(options) {
  check(size_, world_, rank_, options_);
}

void DistributedSampler::resume(std::int64_t epoch, std::int64_t consumed) {
  PEAL_CHECK(consumed <= size_, "[data] sampler: an epoch of ", size_,
             " samples cannot be taken up after ", consumed,
             "; is it the data set that the state was saved of?");
  ShardOptions changed = options_;
  changed.epoch = epoch;
  changed.consumed = consumed;
  check(size_, world_, rank_, changed);
  options_ = changed;
}

std::int64_t DistributedSampler::consumed_after(std::int64_t taken) const {
  const std::int64_t mine = size();
  PEAL_CHECK(taken >= 0 && taken <= mine, "[data] sampler: expected 0 to ", mine,
             " samples taken of this rank's epoch, got ", taken);
  return std::min(options_.consumed + taken * world_, std::max(size_, options_.consumed));
}

NamedTensors DistributedSampler::state_dict() const {
  NamedTensors state{{"epoch", Tensor::scalar(options_.epoch, Device{})},
                     {"consumed", Tensor::scalar(options_.consumed, Device{})}};
  put_order(state, {"sampler", seed(), order_of()});
  return state;
}

void DistributedSampler::load_state_dict(const NamedTensors& state) {
  StateReader reader("DistributedSampler", state);
  const auto epoch = reader.number<std::int64_t>("epoch");
  const auto consumed = reader.number<std::int64_t>("consumed");
  check_order(reader, {"sampler", seed(), order_of()}, consumed > 0);
  reader.finish();
  resume(epoch, consumed);
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  return shard(size_, world_, rank_, options_);
}

std::int64_t DistributedSampler::size() const { return shard_size(size_, world_, rank_, options_); }

}  // namespace peal::data
