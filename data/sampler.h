// SPDX-License-Identifier: Apache-2.0
// Which samples a rank sees in an epoch, and in which order. The shard is a plan: a pure function
// of (size, world, rank, options), so it can be tested over thousands of sizes, and ranks need no
// word with each other to agree on it. The semantics are those of
// torch.utils.data.DistributedSampler:
//
//   order  = a permutation of 0..size-1 drawn from seed + epoch (or 0, 1, 2, ... without shuffle);
//            of sets too large for a rank to hold that, one whose elements are computed one by one
//   padded = order, and its head once more, as often as needed, up to a multiple of world
//   shard  = padded[rank], padded[rank + world], padded[rank + 2 world], ...
//
// As ranks take turns, what all of them saw after k samples each is the first k·world of `order`:
// global batches do not depend on the world size, and an epoch that was left in the middle can be
// taken up by another number of ranks (`consumed`). Thread safety: shard() is pure; a
// DistributedSampler is a value, written by one thread.
#pragma once

#include <peal/autograd/core/place.h>
#include <peal/autograd/core/safetensors.h>
#include <peal/data/planned.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal {
class StateReader;
}

namespace peal::data {

struct ShardOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  // equal on all ranks
  std::int64_t epoch = 0;
  // What happens where world does not divide the size. Neither: the head of the order is repeated,
  // and every rank has ceil(size / world). drop_last: the tail goes unseen, and every rank has
  // floor(size / world). exact: every sample once, so ranks differ by at most one, the lower ranks
  // having more. Evaluation wants exact: padding counts some samples twice.
  bool drop_last = false;
  bool exact = false;
  // How many samples all ranks together have seen of this epoch, under whatever world size.
  std::int64_t consumed = 0;
};

// The samples of `rank`, in order. Error: world < 1, rank outside of 0..world-1, a negative size,
// epoch or consumed, exact together with drop_last.
std::vector<std::int64_t> shard(std::int64_t size, int world, int rank,
                                const ShardOptions& options = {});

// How many samples shard() returns, without drawing the order.
std::int64_t shard_size(std::int64_t size, int world, int rank, const ShardOptions& options = {});

// Sets from this size on are ordered by a Permutation (permutation.h): shard() then takes memory
// and time for the samples of its rank alone.
inline constexpr std::int64_t huge = std::int64_t{1} << 24;

// What shard() returns, as a plan: of a set that is huge or not shuffled, a sample is worked out
// when it is asked for.
Order planned_shard(std::int64_t size, int world, int rank, const ShardOptions& options = {});
// The whole order, which ranks share (deal.h).
inline Order epoch_order(std::int64_t size, const ShardOptions& options = {}) {
  return planned_shard(size, 1, 0, options);
}

// A sampler of one's own for a loader: the samples of the coming epoch, in order.
class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual std::vector<std::int64_t> indices() const = 0;
  virtual std::int64_t size() const = 0;  // of indices()
  // The same, of which a loader asks for what it needs.
  virtual Order order() const { return indices(); }
  // Where the k-th of indices() stands among the samples of all ranks in this epoch; -1 where it
  // comes again, to make ranks equal. By default there is one rank.
  virtual std::int64_t place(std::int64_t k) const { return k; }
  // Which rank's share of them all indices() are. One rank's, by default.
  virtual Place whose() const { return {}; }
  // Whether every sample is to come once, as evaluation wants it: a loader then lets none stand in
  // for another.
  virtual bool exact() const { return false; }
  // Which epoch comes; loops may call it before each. Nothing by default: all epochs are alike.
  virtual void set_epoch(std::int64_t epoch) { static_cast<void>(epoch); }
  // The epoch that comes, of a sampler that has the say about it. By default the loader has, which
  // counts its passes: what is drawn to augment a sample is then another thing in each.
  virtual std::optional<std::int64_t> epoch() const { return std::nullopt; }
  // What its orders are drawn from, for the state of a loader, which another seed's order does not
  // fit. None by default.
  virtual std::optional<std::uint64_t> seed() const { return std::nullopt; }
  // What else its order hangs on, by name, for such a state too: within an epoch it does not fit a
  // sampler where one of these is another number. Nothing by default.
  virtual std::vector<std::pair<std::string, std::int64_t>> order_of() const { return {}; }
  // What resume() is given to go on after this rank took `taken` samples of indices(). Error for
  // taken > 0 by default, as for resume(): not every sampler can be taken up within an epoch.
  virtual std::int64_t consumed_after(std::int64_t taken) const;
  // The coming epoch, of which `consumed` has been seen; indices() are the rest.
  virtual void resume(std::int64_t epoch, std::int64_t consumed);
};

// In a state: what augmentation is drawn from, where orders are not drawn from the same.
inline constexpr const char* augmentation = "augmentation";

// What a state says of the order that it is a place in, so that no other goes on there.
struct HowOrdered {
  std::string_view whose;                                     // "loader", for errors
  std::optional<std::uint64_t> seed;                          // where it is drawn
  std::vector<std::pair<std::string, std::int64_t>> numbers;  // what else it hangs on
  bool any_seed = false;                                      // it takes the state's
};
void put_order(NamedTensors& state, const HowOrdered& mine);
// Notes what is wrong with a state where it is a place within an epoch; returns its seed. Older
// states lack some of it or all.
std::optional<std::uint64_t> check_order(StateReader& reader, const HowOrdered& mine, bool within);

class DistributedSampler : public Sampler {
 public:
  // Errors as of shard().
  DistributedSampler(std::int64_t size, int world, int rank, ShardOptions options = {});

  // Which epoch comes. A loader that comes to the end of one sets the next by itself; who calls
  // indices() calls it before each, or all epochs have the same order.
  void set_epoch(std::int64_t epoch) override { resume(epoch, 0); }
  std::optional<std::int64_t> epoch() const override { return options_.epoch; }
  std::optional<std::uint64_t> seed() const override {
    return options_.shuffle ? std::optional(options_.seed) : std::nullopt;
  }
  std::vector<std::pair<std::string, std::int64_t>> order_of() const override {
    return {{"samples", size_}};
  }
  // Takes up an epoch of which all ranks together have seen `consumed` samples. Error where it has
  // fewer.
  void resume(std::int64_t epoch, std::int64_t consumed) override;
  // What a checkpoint stores as `consumed` after every rank took `taken` samples of indices(). At
  // the end of an exact epoch ranks may differ by one: rank 0, which has the most, counts.
  std::int64_t consumed_after(std::int64_t taken) const override;
  // "epoch" and "consumed" (i64), as resume() takes them, "seed" where orders are drawn, and
  // order_of(), which is "samples". Error within an epoch whose order was another.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

  std::vector<std::int64_t> indices() const override;
  std::int64_t size() const override;
  Order order() const override { return planned_shard(size_, world_, rank_, options_); }
  std::int64_t place(std::int64_t k) const override {
    const std::int64_t at = options_.consumed + rank_ + k * world_;
    return at < size_ ? at : -1;
  }
  Place whose() const override { return {rank_, world_}; }
  bool exact() const override { return options_.exact; }
  const ShardOptions& options() const { return options_; }

 private:
  std::int64_t size_;
  int world_, rank_;
  ShardOptions options_;
};

// All samples in an order of each epoch's own, drawn from seed + epoch and from nothing else, so
// that it is the same wherever a run is taken up (Accelerate). Of one rank; batch_shard() and
// DistributedSampler serve several.
class SeedableRandomSampler : public DistributedSampler {
 public:
  explicit SeedableRandomSampler(std::int64_t size, std::uint64_t seed = 0)
      : DistributedSampler(size, 1, 0, {.seed = seed}) {}
};

// All samples as they stand, of one rank; shard() without shuffle serves several.
class SequentialSampler : public DistributedSampler {
 public:
  explicit SequentialSampler(std::int64_t size)
      : DistributedSampler(size, 1, 0, {.shuffle = false}) {}
};

}  // namespace peal::data
