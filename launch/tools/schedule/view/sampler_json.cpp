// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/data/batches.h>
#include <peal/data/dealt_state.h>
#include <peal/data/sampler.h>
#include <peal/launch/tools/schedule/view/sampler_json.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace peal::launch {

using nlohmann::json;

namespace {

constexpr std::int64_t most_samples = 400;
constexpr int most_ranks = 32;

const std::map<std::string, data::Way>& ways() {
  static const std::map<std::string, data::Way> all{{"samples", data::Way::samples},
                                                    {"batches", data::Way::batches},
                                                    {"split", data::Way::split},
                                                    {"contiguous", data::Way::contiguous},
                                                    {"dispatched", data::Way::dispatched}};
  return all;
}

struct Reading {
  std::int64_t sample = 0, place = 0;
};
using ReadBatches = std::vector<std::vector<Reading>>;  // of a rank
using RankBatches = std::vector<ReadBatches>;           // by rank

// Whose epoch it is, and how its ranks share it.
class Epoch {
 public:
  explicit Epoch(const SamplerViewOptions& options) : options_(options) {
    const auto way = ways().find(options.way);
    PEAL_CHECK(way != ways().end(), "view sampler: --way: expected samples, batches, split, ",
               "contiguous or dispatched, got '", options.way, "'");
    way_ = way->second;
    PEAL_CHECK(options.samples >= 1 && options.samples <= most_samples,
               "view sampler: a page shows 1 to ", most_samples, " samples, got ", options.samples);
    for (const int ranks : {options.ranks, options.resumed}) {
      PEAL_CHECK(ranks >= 1 && ranks <= most_ranks, "view sampler: a page shows 1 to ", most_ranks,
                 " ranks, got ", ranks);
    }
    PEAL_CHECK(options.batch_size >= 1, "view sampler: expected a batch of at least 1, got ",
               options.batch_size);
    PEAL_CHECK(!(options.exact && options.drop_last),
               "view sampler: --exact reads every sample, --drop-last leaves some out");
  }

  // All batches of an epoch that nobody has begun.
  RankBatches from_start(int ranks) const { return batches(ranks, {}); }

  // What is left of it after `taken` batches of each of the first ranks.
  RankBatches after(std::int64_t taken) const {
    if (way_ != data::Way::samples) return batches(options_.resumed, {dealt_before(taken)});
    return batches(options_.resumed, {}, state(taken));
  }

  // As a checkpoint has it, entry by entry.
  json saved(std::int64_t taken) const {
    json all = json::array();
    if (way_ != data::Way::samples) {
      const data::Dealt one = dealt_before(taken);
      all.push_back(
          {"dealt", fmt::format("way {}, batch {}, ranks {}, batches {}, drop {}", options_.way,
                                one.batch_size, one.world, one.batches, one.drop ? 1 : 0)});
      return all;
    }
    for (const auto& [name, tensor] : state(taken)) {
      all.push_back({name, fmt::format("{}", tensor.to_vector<std::int64_t>().front())});
    }
    return all;
  }
  std::int64_t state_bytes(std::int64_t taken) const {
    if (way_ != data::Way::samples) {
      return static_cast<std::int64_t>(data::tensor_of({dealt_before(taken)}).view().bytes());
    }
    std::int64_t bytes = 0;
    for (const auto& [name, tensor] : state(taken)) {
      bytes += static_cast<std::int64_t>(tensor.view().bytes());
    }
    return bytes;
  }

  std::vector<std::int64_t> order() const {
    return data::epoch_order(options_.samples, sharding()).to_vector();
  }

 private:
  data::ShardOptions sharding() const {
    return {.shuffle = !options_.sequential,
            .seed = options_.seed,
            .epoch = options_.epoch,
            .drop_last = options_.drop_last,
            .exact = options_.exact};
  }
  data::Deal deal(int ranks, int rank) const {
    return {.way = way_,
            .batch_size = options_.batch_size,
            .place = {rank, ranks},
            .tail = options_.exact       ? data::Tail::uneven
                    : options_.drop_last ? data::Tail::drop
                                         : data::Tail::fill};
  }
  data::Dealt dealt_before(std::int64_t taken) const {
    return data::dealt(deal(options_.ranks, 0), taken);
  }
  // Of the sampler of rank 0, which has read so many batches; all ranks have the same.
  NamedTensors state(std::int64_t taken) const {
    data::DistributedSampler sampler(options_.samples, options_.ranks, 0, sharding());
    const std::int64_t read = std::min(taken * options_.batch_size, sampler.size());
    sampler.resume(options_.epoch, std::min(sampler.consumed_after(read), options_.samples));
    return sampler.state_dict();
  }

  RankBatches batches(int ranks, const std::vector<data::Dealt>& before,
                      const NamedTensors& state = {}) const {
    RankBatches all;
    for (int rank = 0; rank < ranks; ++rank) {
      all.push_back(way_ == data::Way::samples ? by_turns(ranks, rank, state)
                                               : by_deal(ranks, rank, before));
    }
    return all;
  }

  ReadBatches by_turns(int ranks, int rank, const NamedTensors& state) const {
    data::DistributedSampler sampler(options_.samples, ranks, rank, sharding());
    if (!state.empty()) sampler.load_state_dict(state);
    ReadBatches all;
    std::int64_t at = 0;
    for (const auto& batch : data::in_batches(sampler.indices(), options_.batch_size)) {
      auto& mine = all.emplace_back();
      for (const std::int64_t sample : batch) mine.push_back({sample, sampler.place(at++)});
    }
    return all;
  }

  ReadBatches by_deal(int ranks, int rank, const std::vector<data::Dealt>& before) const {
    const data::Deal how = deal(ranks, rank);
    const auto planned =
        data::dealt_batches(data::epoch_order(options_.samples, sharding()), how, before);
    ReadBatches all;
    for (std::int64_t k = 0; k < planned.size(); ++k) {
      const std::vector<std::int64_t> samples = planned[k];
      const auto places = data::dealt_places(options_.samples, how, before, k);
      auto& mine = all.emplace_back();
      for (std::size_t i = 0; i < samples.size(); ++i) mine.push_back({samples[i], places[i]});
    }
    return all;
  }

  const SamplerViewOptions& options_;
  data::Way way_ = data::Way::samples;
};

std::int64_t steps_of(const RankBatches& all) {
  std::int64_t most = 0;
  for (const ReadBatches& mine : all) most = std::max(most, std::ssize(mine));
  return most;
}

// Steps begin..end-1 of all ranks, and how often each sample comes in them.
json phase(const RankBatches& all, std::int64_t begin, std::int64_t end,
           std::vector<std::int64_t>& seen) {
  json steps = json::array();
  for (std::int64_t step = begin; step < end; ++step) {
    json ranks = json::array();
    for (const ReadBatches& mine : all) {
      json batch = json::array();
      if (step < std::ssize(mine)) {
        for (const Reading& one : mine[static_cast<std::size_t>(step)]) {
          batch.push_back({one.sample, one.place});
          ++seen[static_cast<std::size_t>(one.sample)];
        }
      }
      ranks.push_back(std::move(batch));
    }
    steps.push_back(std::move(ranks));
  }
  return {{"ranks", all.size()}, {"steps", std::move(steps)}};
}

struct GoneOn {
  std::string name, says;
  const RankBatches& then;
  std::int64_t skipped;  // of `then`
  json state;
  std::int64_t bytes;
};

json gone_on(const GoneOn& way, const RankBatches& before, const SamplerViewOptions& options) {
  std::vector<std::int64_t> seen(static_cast<std::size_t>(options.samples));
  json phases = json::array({phase(before, 0, options.taken, seen)});
  phases.push_back(phase(way.then, way.skipped, std::max(way.skipped, steps_of(way.then)), seen));
  json repeated = json::array(), lost = json::array();
  for (std::size_t s = 0; s < seen.size(); ++s) {
    if (seen[s] > 1) repeated.push_back(s);
    if (seen[s] == 0) lost.push_back(s);
  }
  return {{"name", way.name}, {"says", way.says},     {"state", way.state}, {"bytes", way.bytes},
          {"phases", phases}, {"repeated", repeated}, {"lost", lost}};
}

}  // namespace

json sampler_json(const SamplerViewOptions& options) {
  const Epoch epoch(options);
  const RankBatches before = epoch.from_start(options.ranks);
  PEAL_CHECK(options.taken >= 0 && options.taken <= steps_of(before),
             "view sampler: --taken: expected 0 to ", steps_of(before),
             ", the steps of this epoch, got ", options.taken);
  const RankBatches rest = epoch.after(options.taken), again = epoch.from_start(options.resumed);
  json ways = json::array();
  const auto add = [&](const GoneOn& way) { ways.push_back(gone_on(way, before, options)); };
  add({"From the state",
       "state_dict() says how far all ranks together have come in the order; whoever goes on deals "
       "out the rest.",
       rest, 0, epoch.saved(options.taken), epoch.state_bytes(options.taken)});
  add({"By skipping steps",
       "Every new rank goes past as many batches of its own as the old ones took. That is right "
       "only "
       "for as many ranks.",
       again, options.taken, json::array({{"steps", fmt::format("{}", options.taken)}}), 8});
  add({"From the beginning", "Nothing was kept: the epoch starts over.", again, 0, json::array(),
       0});
  return {{"kind", "sampler"},
          {"title", fmt::format("Who reads what: {} samples, {} ranks, then {}", options.samples,
                                options.ranks, options.resumed)},
          {"intro",
           "Each row of cells is an epoch in its shuffled order, a cell a sample. A rank's colour "
           "fills what it has read by the step of the slider; then the run is left, and another "
           "number of ranks goes on. Left and right step, space plays."},
          {"order", epoch.order()},
          {"batch", options.batch_size},
          {"taken", options.taken},
          {"ways", std::move(ways)}};
}

}  // namespace peal::launch
