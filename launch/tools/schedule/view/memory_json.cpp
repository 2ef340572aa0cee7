// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/tools/schedule/view/memory_json.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/parallel/bucket_plan.h>
#include <peal/nn/parallel/sharded/fsdp_state.h>
#include <peal/nn/parallel/sharded/memory_estimate.h>
#include <peal/nn/parallel/sharded/placement.h>
#include <peal/nn/parallel/sharded/unit_schedule.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {

using nlohmann::json;

namespace {

constexpr std::int64_t most_blocks = 24, most_width = 1024, most_batch = 4096;
constexpr int most_ranks = 16;

struct FeedForward : nn::Module {
  nn::Linear up, down;
  explicit FeedForward(std::int64_t width)
      : up(add("up", nn::Linear(width, 4 * width))),
        down(add("down", nn::Linear(4 * width, width))) {}
  Tensor forward(const Tensor& x) override { return x + down(gelu(up(x))); }
};

std::vector<FeedForward> blocks_of(const MemoryViewOptions& options) {
  std::vector<FeedForward> blocks;
  for (std::int64_t b = 0; b < options.blocks; ++b) blocks.emplace_back(options.width);
  return blocks;
}

// The moments of a step: 0 before it, then forward, then backward of each block, the optimizer's.
struct Moments {
  std::int64_t blocks;
  std::size_t count() const { return static_cast<std::size_t>(2 * blocks + 2); }
  std::size_t forward(std::int64_t block) const { return static_cast<std::size_t>(1 + block); }
  std::size_t backward(std::int64_t block) const {
    return static_cast<std::size_t>(2 * blocks - block);
  }
  json names() const {
    json all = json::array({"before the step"});
    for (std::int64_t b = 0; b < blocks; ++b) all.push_back(fmt::format("forward of block {}", b));
    for (std::int64_t b = blocks; b-- > 0;) all.push_back(fmt::format("backward of block {}", b));
    all.push_back("the optimizer's step");
    return all;
  }
};

// What one rank has at a moment.
struct Held {
  std::int64_t parameters = 0, gathered = 0, gradients = 0, buckets = 0, state = 0, activations = 0;
};
using RankLedger = std::vector<Held>;  // by moment
using Ledger = std::vector<RankLedger>;

std::int64_t bytes_of(const Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.view().bytes());
}

// A step in this process alone, once the optimizer has its state: what is in use besides
// parameters, state and gradients, by moment, the most since the moment before.
class MeasuredStep {
 public:
  MeasuredStep(const MemoryViewOptions& options, bool checkpointed)
      : moments_{options.blocks},
        checkpointed_(checkpointed),
        blocks_(blocks_of(options)),
        x_(randn({options.batch, options.width})) {
    for (const FeedForward& block : blocks_) {
      for (const Tensor& p : block.parameters()) parameters_.push_back(p);
    }
  }

  std::vector<std::int64_t> activations() {
    nn::Adam optimizer(parameters_);
    step(optimizer);
    optimizer.zero_grad();
    seen_.assign(moments_.count(), 0);
    before_ = static_cast<std::int64_t>(cpu_allocator_statistics().in_use);
    cpu_reset_peak();
    step(optimizer);
    look(moments_.count() - 1);
    return seen_;
  }

 private:
  void step(nn::Adam& optimizer) {
    {
      Tensor x = x_;
      for (std::size_t b = 0; b < blocks_.size(); ++b) {
        x = checkpointed_
                ? checkpoint([&block = blocks_[b]](const Tensor& in) { return block(in); }, x)
                : blocks_[b](x);
        look(moments_.forward(static_cast<std::int64_t>(b)));
        if (b + 1 == blocks_.size()) break;
        // Its gradient is there when backward is through the block behind it.
        const auto behind = moments_.backward(static_cast<std::int64_t>(b + 1));
        x.register_hook([this, behind](const Tensor&) { look(behind); });
      }
      mean(x * x).backward();
    }
    look(moments_.backward(0));
    optimizer.step();
  }

  void look(std::size_t moment) {
    if (seen_.empty()) return;
    std::int64_t gradients = 0;
    for (const Tensor& p : parameters_) {
      if (p.grad().defined()) gradients += bytes_of(p.grad());
    }
    const auto most = static_cast<std::int64_t>(cpu_allocator_statistics().peak);
    seen_[moment] = std::max<std::int64_t>(0, most - before_ - gradients);
    cpu_reset_peak();
  }

  Moments moments_;
  bool checkpointed_;
  std::vector<FeedForward> blocks_;
  Tensor x_;
  std::vector<Tensor> parameters_;
  std::vector<std::int64_t> seen_;
  std::int64_t before_ = 0;
};

// The model, and what peal plans of it.
class Planned {
 public:
  explicit Planned(const MemoryViewOptions& options)
      : options_(options), moments_{options.blocks}, model_(nn::Sequential()) {
    for (const FeedForward& block : blocks_of(options)) model_.push_back(block);
    optimizer_ = std::make_unique<nn::Adam>(model_.named_parameters());
  }
  std::int64_t elements() const {
    std::int64_t count = 0;
    for (const Tensor& p : optimizer_->parameters()) count += p.numel();
    return count;
  }
  std::vector<nn::MemoryEstimate> estimate(nn::Sharded sharded) const {
    return nn::estimate_memory(*optimizer_, sharded, options_.ranks);
  }
  std::vector<nn::MemoryEstimate> estimate_fsdp() const {
    return nn::estimate_memory(*optimizer_, model_, wrap(), options_.ranks);
  }

  Ledger replicated(nn::Sharded sharded, const std::vector<std::int64_t>& activations) const;
  Ledger fsdp(const std::vector<std::int64_t>& activations) const;

 private:
  nn::WrapPolicy wrap() const {
    std::vector<std::string> paths;
    for (std::int64_t b = 0; b < options_.blocks; ++b) paths.push_back(fmt::format("{}", b));
    return nn::wrap_by_name(paths);
  }
  // Of a parameter, by its number: when backward has its gradient.
  std::size_t arrival(std::size_t parameter) const {
    const auto per_block =
        optimizer_->parameters().size() / static_cast<std::size_t>(options_.blocks);
    return moments_.backward(static_cast<std::int64_t>(parameter / per_block));
  }
  std::vector<nn::Bucket> buckets(nn::Sharded sharded) const;
  void hold(const nn::Bucket& bucket, bool kept, RankLedger& mine) const;

  MemoryViewOptions options_;
  Moments moments_;
  nn::Sequential model_;
  std::unique_ptr<nn::Adam> optimizer_;
};

std::vector<nn::Bucket> Planned::buckets(nn::Sharded sharded) const {
  const NamedTensors named = model_.named_parameters();
  std::vector<std::int64_t> counts;
  for (const auto& [name, parameter] : named) counts.push_back(parameter.numel());
  const nn::Placement placement = nn::place_greedily(counts, options_.ranks);
  std::vector<nn::ParameterSpec> specs;
  for (std::size_t p = 0; p < named.size(); ++p) {
    specs.push_back(
        {.name = named[p].first,
         .shape = named[p].second.shape(),
         .dtype = named[p].second.dtype(),
         .owner = sharded == nn::Sharded::gradients ? placement.owners[p] : nn::everyone});
  }
  return nn::plan_buckets(specs,
                          {.first_bytes = options_.bucket_bytes, .bytes = options_.bucket_bytes});
}

// A bucket that a rank keeps is there all the time, and fills. Gradients of another's have memory
// of their own, and a bucket while they are sent.
void Planned::hold(const nn::Bucket& bucket, bool kept, RankLedger& mine) const {
  const auto size = static_cast<std::int64_t>(size_of(bucket.dtype));
  std::size_t full = 0;
  for (const auto& entry : bucket.entries) {
    full = std::max(full, arrival(static_cast<std::size_t>(entry.parameter)));
  }
  for (std::size_t moment = 0; moment < mine.size(); ++moment) {
    std::int64_t arrived = 0;
    for (const auto& entry : bucket.entries) {
      const auto p = static_cast<std::size_t>(entry.parameter);
      if (arrival(p) <= moment) arrived += optimizer_->parameters()[p].numel() * size;
    }
    Held& here = mine[moment];
    if (kept) {
      here.gradients += arrived;
      here.buckets += bucket.count * size - arrived;
    } else if (moment <= full) {
      here.gradients += arrived;
      if (moment == full) here.buckets += bucket.count * size;
    }
  }
}

Ledger Planned::replicated(nn::Sharded sharded,
                           const std::vector<std::int64_t>& activations) const {
  const auto estimates = estimate(sharded);
  Ledger ledger;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    RankLedger& mine = ledger.emplace_back(moments_.count());
    for (std::size_t moment = 0; moment < mine.size(); ++moment) {
      mine[moment].parameters = estimates[static_cast<std::size_t>(rank)].parameters;
      mine[moment].state = estimates[static_cast<std::size_t>(rank)].state;
      mine[moment].activations = activations[moment];
    }
    for (const nn::Bucket& bucket : buckets(sharded)) {
      hold(bucket, bucket.owner == nn::everyone || bucket.owner == rank, mine);
    }
  }
  return ledger;
}

// As the schedule of units says: a moment is that at which its block computes.
Ledger Planned::fsdp(const std::vector<std::int64_t>& activations) const {
  using What = nn::UnitAction::What;
  const auto units = nn::plan_units(nn::outline_of(model_, nn::Members(model_, {}).list()), wrap(),
                                    options_.ranks);
  std::vector<nn::UnitSchedule::Unit> scheduled;
  std::vector<std::int64_t> chunks;  // bytes of a rank
  for (const nn::UnitPlan& unit : units) {
    scheduled.push_back({.trained = unit.trained(), .frozen = unit.frozen()});
    auto& bytes = chunks.emplace_back(0);
    for (const auto& flat : unit.flats) {
      bytes += flat.chunk * static_cast<std::int64_t>(size_of(flat.dtype));
    }
  }
  const auto estimates = estimate_fsdp();
  Held now;
  RankLedger whole(moments_.count());
  std::size_t moment = 0;
  for (const auto& [what, unit] : nn::plan_step(scheduled, {})) {
    const std::int64_t chunk = chunks[static_cast<std::size_t>(unit)];
    if (what == What::gather) now.gathered += chunk * options_.ranks;
    if (what == What::free) now.gathered -= chunk * options_.ranks;
    if (what == What::settle) now.gradients += chunk - chunk * options_.ranks;
    if (what != What::use || unit == 0) continue;
    ++moment;
    if (moment >= moments_.backward(options_.blocks - 1)) now.gradients += chunk * options_.ranks;
    whole[moment] = now;
  }
  whole.back() = now;
  Ledger ledger;
  for (const nn::MemoryEstimate& estimate : estimates) {
    RankLedger mine = whole;
    for (std::size_t m = 0; m < mine.size(); ++m) {
      mine[m].parameters = estimate.parameters;
      mine[m].state = estimate.state;
      mine[m].activations = activations[m];
    }
    ledger.push_back(std::move(mine));
  }
  return ledger;
}

json to_json(const Ledger& ledger) {
  json ranks = json::array();
  for (const RankLedger& mine : ledger) {
    json moments = json::array();
    for (const Held& h : mine) {
      moments.push_back({h.parameters, h.gathered, h.gradients, h.buckets, h.state, h.activations});
    }
    ranks.push_back(std::move(moments));
  }
  return ranks;
}

struct WayShown {
  std::string name, says, formula;
  double by_formula;  // bytes a parameter
};

void check(const MemoryViewOptions& options) {
  const auto within = [](const char* what, std::int64_t got, std::int64_t most) {
    PEAL_CHECK(got >= 1 && got <= most, "view memory: ", what, ": expected 1 to ", most, ", got ",
               got);
  };
  within("--blocks", options.blocks, most_blocks);
  within("--width", options.width, most_width);
  within("--batch", options.batch, most_batch);
  within("--ranks", options.ranks, most_ranks);
  within("--bucket-bytes", options.bucket_bytes, std::int64_t{1} << 40);
}

}  // namespace

json memory_json(const MemoryViewOptions& options) {
  check(options);
  const Planned planned(options);
  const auto plain = MeasuredStep(options, false).activations();
  const auto again = MeasuredStep(options, true).activations();
  const double n = options.ranks;
  json ways = json::array();
  const auto add = [&](const WayShown& way, const std::vector<nn::MemoryEstimate>& estimates,
                       const Ledger& ledger) {
    const auto most = *std::ranges::max_element(estimates, {}, &nn::MemoryEstimate::total);
    ways.push_back({{"name", way.name},
                    {"says", way.says},
                    {"formula", way.formula},
                    {"by_formula", way.by_formula * static_cast<double>(planned.elements())},
                    {"estimate", most.total()},
                    {"ranks", to_json(ledger)}});
  };
  using nn::Sharded;
  add({"DDP",
       "Every rank has all of it. Gradients live in their buckets, which are there all the "
       "time: what is empty fills in backward.",
       "4 + 4 + 8 = 16", 16},
      planned.estimate(Sharded::nothing), planned.replicated(Sharded::nothing, plain));
  add({"DDP, checkpoint",
       "Of a block only what goes in is kept; in backward it is computed again, "
       "for a second forward in time.",
       "16", 16},
      planned.estimate(Sharded::nothing), planned.replicated(Sharded::nothing, again));
  add({"ZeRO-1", "Each rank steps the parameters that it owns, and has state for those alone.",
       "8 + 8 / N", 8 + 8 / n},
      planned.estimate(Sharded::state), planned.replicated(Sharded::state, plain));
  add({"ZeRO-2",
       "A gradient goes to its owner, and is freed on the others once its bucket is full "
       "and sent.",
       "4 + 12 / N", 4 + 12 / n},
      planned.estimate(Sharded::gradients), planned.replicated(Sharded::gradients, plain));
  add({"ZeRO-3, FSDP",
       "A rank keeps an N-th of everything. A block is gathered just before it "
       "computes, the next one meanwhile, and freed behind it.",
       "16 / N", 16 / n},
      planned.estimate_fsdp(), planned.fsdp(plain));
  return {{"kind", "memory"},
          {"title", fmt::format("Memory ledger: {} parameters in {} blocks, Adam, {} ranks",
                                planned.elements(), options.blocks, options.ranks)},
          {"intro",
           "What each rank holds over one step of training. Above, the rank that has the most, "
           "moment by moment, all ways on one scale; below, all ranks at the moment of the slider. "
           "Left and right step, space plays."},
          {"elements", planned.elements()},
          {"world", options.ranks},
          {"moments", Moments{options.blocks}.names()},
          {"ways", std::move(ways)}};
}

}  // namespace peal::launch
