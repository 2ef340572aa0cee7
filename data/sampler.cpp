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

void put_order(NamedTensors& state, const Sampler& sampler) {
  for (const auto& [what, number] : sampler.order_of()) {
    state.emplace_back(what, Tensor::scalar(number, Device{}));
  }
}

void check_order(StateReader& reader, const Sampler& sampler, std::int64_t consumed) {
  for (const auto& [what, number] : sampler.order_of()) {
    if (!reader.has(what)) continue;  // older states have none
    const auto saved = reader.number<std::int64_t>(what);
    if (consumed == 0 || saved == number) continue;
    reader.fault(concat(what, ": expected ", number, ", as of this sampler, got ", saved,
                        ": its order is another, and some samples would come twice"));
  }
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
  if (const auto drawn_from = seed()) {
    state.emplace_back("seed", Tensor::scalar(static_cast<std::int64_t>(*drawn_from), Device{}));
  }
  put_order(state, *this);
  return state;
}

void DistributedSampler::load_state_dict(const NamedTensors& state) {
  StateReader reader("DistributedSampler", state);
  const auto epoch = reader.number<std::int64_t>("epoch");
  const auto consumed = reader.number<std::int64_t>("consumed");
  if (reader.has("seed")) {
    const auto saved = static_cast<std::uint64_t>(reader.number<std::int64_t>("seed"));
    if (consumed > 0 && saved != seed().value_or(saved)) {
      reader.fault(concat("seed: expected ", *seed(), ", as of this sampler, got ", saved,
                          ": its order is another, and some samples would come twice"));
    }
  }
  check_order(reader, *this, consumed);
  reader.finish();
  resume(epoch, consumed);
}

std::vector<std::int64_t> DistributedSampler::indices() const {
  return shard(size_, world_, rank_, options_);
}

std::int64_t DistributedSampler::size() const { return shard_size(size_, world_, rank_, options_); }

}  // namespace peal::data
