// SPDX-License-Identifier: Apache-2.0
// sharded_memory: the most bytes of tensors that a rank has in a step of a GPT in f32 with AdamW,
// under each way of sharding, beside what the formulas say (nn/parallel/sharded/memory_estimate.h,
// and below for activations). Start it with peal-run; each rank counts its own:
//
//   launch/tools/peal-mpirun -n 2 build/release/bench/sharded/sharded_memory
//
//   way          what is shared out
//   ddp          nothing
//   zero1        optimizer state
//   zero2        and gradients
//   fsdp         and parameters, a unit a block
//   checkpoint   the same, and blocks compute their forward again in backward
//
// The exit status is 1 where the two are further apart than --within.
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/requested_bytes.h>
#include <peal/launch/command_line.h>
#include <peal/launch/job.h>
#include <peal/nn/nn.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace peal;

struct Settings {
  std::int64_t layers = 8, width = 512, heads = 8, vocabulary = 1024, positions = 128, batch = 4;
  int steps = 2;
  double within = 0.05;
  std::vector<std::string> ways{"ddp", "zero1", "zero2", "fsdp", "checkpoint"};

  nn::GptSettings gpt() const {
    return {.vocabulary = vocabulary,
            .width = width,
            .heads = heads,
            .layers = layers,
            .positions = positions};
  }
  // Of elements in f32, one for each token.
  std::int64_t bytes(std::int64_t each) const { return batch * positions * each * 4; }
};

// What is kept for backward of a block: what goes into its two norms and comes out of them,
// queries, keys and values, what attention gives, and the wide layer before and after its gelu; the
// probabilities of attention, which are kept of sequences as short as these; and two numbers a row
// of each norm.
std::int64_t of_block(const Settings& s) {
  return s.bytes(16 * s.width + s.heads * s.positions + 4);
}

// Of the last norm and the head: logits, their gradient, and that of what goes into the head.
std::int64_t of_head(const Settings& s) { return s.bytes(3 * s.width + 2 + 2 * s.vocabulary); }

// Of activations when backward has come through the head, or is within the block that is so many
// before the last: then the wide layer's gradients after and before its gelu come on top.
std::int64_t in_head(const Settings& s, bool recomputed) {
  return s.layers * (recomputed ? s.bytes(s.width) : of_block(s)) + of_head(s);
}
std::int64_t in_block(const Settings& s, bool recomputed, std::int64_t done) {
  const std::int64_t left = s.layers - done;
  return (recomputed ? left * s.bytes(s.width) + of_block(s) : left * of_block(s)) +
         s.bytes(8 * s.width);
}

// The most where parameters, gradients and state stay where they are.
std::int64_t most_of_whole(const Settings& s, const nn::MemoryEstimate& kept) {
  return kept.total() + std::max(in_head(s, false), in_block(s, false, 0));
}

// The most of a unit a block: two blocks are there and the model's own unit, and of whole gradients
// that unit's, the block's and the one before it, which is being reduced. Pieces of gradients come
// with each block that is done.
std::int64_t most_of_units(const Settings& s, const nn::MemoryEstimate& kept, bool recomputed,
                           std::int64_t world) {
  const std::int64_t h = s.width, block = 4 * (12 * h * h + 13 * h),
                     own = 4 * (s.vocabulary + s.positions + 2) * h;
  std::int64_t most = 2 * own + block + in_head(s, recomputed);
  for (std::int64_t done = 0; done < s.layers; ++done) {
    const std::int64_t there = std::min<std::int64_t>(2, s.layers - done) * block,
                       gradients = std::min<std::int64_t>(2, done + 1) * block,
                       pieces = std::max<std::int64_t>(0, done - 1) * block / world;
    most = std::max(most, 2 * own + there + gradients + pieces + in_block(s, recomputed, done));
  }
  return kept.parameters + kept.state + most;
}

// Each once; of tensors whose memory is not the allocator's but a group's.
std::int64_t of_groups(const std::vector<Tensor>& parameters) {
  std::set<const Storage*> seen;
  std::int64_t bytes = 0;
  for (const Tensor& p : parameters) {
    if (!p.requires_grad() || !p.grad().defined()) continue;
    const Storage* const storage = p.grad().storage().get();
    if (storage->owned() || !seen.insert(storage).second) continue;
    bytes += static_cast<std::int64_t>(storage->bytes());
  }
  return bytes;
}

struct Found {
  std::int64_t measured, formula;
};

class Way {
 public:
  Way(const Settings& settings, const comm::ProcessGroup& group, std::string name)
      : settings_(settings), group_(group), name_(std::move(name)) {}

  Found steps() {
    manual_seed(0);
    const auto before = static_cast<std::int64_t>(cpu_requested_bytes().now);
    const std::int64_t tokens = settings_.batch * settings_.positions;
    const Tensor x = randint(0, settings_.vocabulary, {settings_.batch, settings_.positions}),
                 y = randint(0, settings_.vocabulary, {tokens});
    make();
    Found found{0, formula()};
    for (int step = 0; step < settings_.steps; ++step) {
      cpu_reset_peak();
      if (fsdp_) fsdp_->zero_grad();
      optimizer_->zero_grad();
      nn::Module& called = fsdp_ ? static_cast<nn::Module&>(*fsdp_) : *model_;
      cross_entropy(reshape(called(x), {tokens, settings_.vocabulary}), y).backward();
      optimizer_->step();
      found.measured = static_cast<std::int64_t>(cpu_requested_bytes().most) - before +
                       of_groups(optimizer_->parameters());
    }
    return found;
  }

 private:
  void make() {
    nn::GPT gpt(settings_.gpt());
    const nn::AdamWOptions options{.lr = 1e-3};
    formula_ = estimate(gpt, nn::AdamW(gpt.named_parameters(), options));
    if (name_ == "checkpoint") nn::apply_activation_checkpointing(gpt, {"GptBlock"});
    if (name_ == "fsdp" || name_ == "checkpoint") {
      fsdp_.emplace(gpt, group_, nn::FSDPOptions{.wrap = nn::wrap_by_type({"GptBlock"})});
      optimizer_ = std::make_unique<nn::AdamW>(fsdp_->local_parameters(), options);
    } else if (name_ == "ddp") {
      model_ = nn::DistributedDataParallel(gpt, group_);
      optimizer_ = std::make_unique<nn::AdamW>(gpt.named_parameters(), options);
    } else {
      auto optimizer = std::make_unique<nn::ZeroRedundancyOptimizer<nn::AdamW>>(
          group_, nn::Parameters(gpt.named_parameters()), options);
      if (name_ == "zero1") model_ = nn::DistributedDataParallel(gpt, group_);
      if (name_ == "zero2") model_ = nn::ShardedDDP(gpt, *optimizer);
      optimizer_ = std::move(optimizer);
    }
  }
  nn::MemoryEstimate estimate(const nn::Module& model, const nn::Optimizer& optimizer) const {
    const auto rank = static_cast<std::size_t>(group_.rank());
    if (name_ == "fsdp" || name_ == "checkpoint") {
      return nn::estimate_memory(optimizer, model, nn::wrap_by_type({"GptBlock"}),
                                 group_.world())[rank];
    }
    const auto sharded = name_ == "ddp"     ? nn::Sharded::nothing
                         : name_ == "zero1" ? nn::Sharded::state
                                            : nn::Sharded::gradients;
    return nn::estimate_memory(optimizer, sharded, group_.world())[rank];
  }
  std::int64_t formula() const {
    if (!fsdp_) return most_of_whole(settings_, formula_);
    return most_of_units(settings_, formula_, name_ == "checkpoint", group_.world());
  }

  const Settings& settings_;
  const comm::ProcessGroup& group_;
  std::string name_;
  nn::MemoryEstimate formula_;
  std::optional<nn::Module> model_;
  std::optional<nn::FullyShardedDataParallel> fsdp_;
  std::unique_ptr<nn::Optimizer> optimizer_;
};

// Of the rank that is furthest from its formula.
bool report(const Settings& settings, const comm::ProcessGroup& group, const std::string& name) {
  const Found mine = Way(settings, group, name).steps();
  double worst = 0;
  Found shown = mine;
  for (const std::string& text :
       group.all_gather_object(fmt::format("{} {}", mine.measured, mine.formula))) {
    const Found each{std::stoll(text), std::stoll(text.substr(text.find(' ')))};
    const double apart = static_cast<double>(each.measured) / static_cast<double>(each.formula) - 1;
    if (std::abs(apart) < std::abs(worst)) continue;
    worst = apart;
    shown = each;
  }
  constexpr double mebibyte = 1 << 20;
  if (group.rank() == 0) {
    fmt::print("{:<11} {:>5} {:>13.2f} {:>13.2f} {:>+8.2f} %\n", name, group.world(),
               static_cast<double>(shown.measured) / mebibyte,
               static_cast<double>(shown.formula) / mebibyte, worst * 100);
    std::fflush(stdout);
  }
  return std::abs(worst) <= settings.within;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  launch::CommandLine line("What a rank has in memory in a step, beside the formulas.");
  line.option("--ways", &settings.ways, "some of these")
      .one_of({"ddp", "zero1", "zero2", "fsdp", "checkpoint"});
  line.option("--layers", &settings.layers).positive();
  line.option("--width", &settings.width).positive();
  line.option("--batch", &settings.batch, "of a rank").positive();
  line.option("--steps", &settings.steps).positive();
  line.option("--within", &settings.within, "how far the two may be apart").positive();
  if (const auto status = line.parse(argc, argv)) return *status;

  bool right = true;
  const int status = launch::run_main([&](launch::Job& job) {
    if (job.is_main()) {
      std::int64_t elements = 0;
      for (const Tensor& p : nn::GPT(settings.gpt()).parameters()) elements += p.numel();
      fmt::print("{} parameters, {} tokens a rank\n{:<11} {:>5} {:>13} {:>13}\n", elements,
                 settings.batch * settings.positions, "MiB", "ranks", "measured", "by formula");
    }
    for (const std::string& way : settings.ways) {
      right = report(settings, job.group(), way) && right;
    }
  });
  return status != 0 ? status : (right ? 0 : 1);
}
