// SPDX-License-Identifier: Apache-2.0
// DrawnSampler: what samplers share that draw a number of samples an epoch, with which ranks take
// turns as in sampler.h, and which can be taken up anywhere in one. Thread safety: a value, written
// by one thread.
#pragma once

#include <peal/autograd/core/place.h>
#include <peal/data/sampler.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace peal::data {

class DrawnSampler : public Sampler {
 public:
  std::vector<std::int64_t> indices() const override {
    const std::vector<std::int64_t> all = drawn(places_.epoch().value_or(0));
    std::vector<std::int64_t> mine = places_.indices();
    for (std::int64_t& place : mine) place = all[static_cast<std::size_t>(place)];
    return mine;
  }
  std::int64_t size() const override { return places_.size(); }
  std::int64_t place(std::int64_t k) const override { return places_.place(k); }
  Place whose() const override { return places_.whose(); }
  bool exact() const override { return places_.exact(); }
  void set_epoch(std::int64_t epoch) override { places_.set_epoch(epoch); }
  std::optional<std::int64_t> epoch() const override { return places_.epoch(); }
  std::int64_t consumed_after(std::int64_t taken) const override {
    return places_.consumed_after(taken);
  }
  void resume(std::int64_t epoch, std::int64_t consumed) override {
    places_.resume(epoch, consumed);
  }
  std::optional<std::uint64_t> seed() const override { return places_.options().seed; }
  // "samples", "num_samples" and "replacement".
  std::vector<std::pair<std::string, std::int64_t>> order_of() const override {
    return {{"samples", samples_},
            {"num_samples", places_.order_of()[0].second},
            {"replacement", std::int64_t{replacement_}}};
  }

 protected:
  // `count` draws an epoch from so many samples, of all ranks together; `how` is the options of
  // the one that draws. Errors: as of shard().
  template <class Options>
  DrawnSampler(std::int64_t samples, std::int64_t count, const Options& how)
      : places_(count, how.place.world, how.place.rank,
                {.shuffle = false, .seed = how.seed, .exact = how.exact}),
        samples_(samples),
        replacement_(how.replacement) {}
  // All draws of an epoch, of all ranks: a pure function.
  virtual std::vector<std::int64_t> drawn(std::int64_t epoch) const = 0;

 private:
  DistributedSampler places_;  // which of the draws are this rank's
  std::int64_t samples_;
  bool replacement_;
};

}  // namespace peal::data
