// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/data/bad_samples.h>

#include <cstddef>
#include <exception>
#include <optional>

namespace peal::data {
namespace {

// Why it cannot be had alone; nothing where it can.
std::optional<std::string> failure_of(const Dataset& dataset, std::int64_t sample,
                                      const Draws& draws) {
  try {
    dataset.augmented(std::span(&sample, 1), draws);
    return std::nullopt;
  } catch (...) {
    if (ran_out_of_memory()) throw;
    return words_of_failure();
  }
}

// A walk over the samples of a plan, from one of them.
class Walk {
 public:
  Walk(const PlannedBatches& plan, std::int64_t batch, std::size_t place)
      : plan_(plan), batch_(batch), place_(place), samples_(plan[batch]) {}

  std::optional<std::int64_t> next() {
    while (place_ + 1 >= samples_.size()) {
      if (batch_ + 1 >= plan_.size()) return std::nullopt;
      samples_ = plan_[++batch_];
      place_ = static_cast<std::size_t>(-1);
    }
    return samples_[++place_];
  }
  std::optional<std::int64_t> previous() {
    while (place_ == 0) {
      if (batch_ == 0) return std::nullopt;
      samples_ = plan_[--batch_];
      place_ = samples_.size();
    }
    return samples_[--place_];
  }

 private:
  const PlannedBatches& plan_;
  std::int64_t batch_;
  std::size_t place_;
  std::vector<std::int64_t> samples_;
};

std::int64_t good_one_for(const Dataset& dataset, const PlannedBatches& plan, std::int64_t batch,
                          std::size_t place, const Draws& draws, std::int64_t most) {
  std::int64_t failed = 0;
  for (const bool forward : {true, false}) {
    Walk walk(plan, batch, place);
    while (const auto sample = forward ? walk.next() : walk.previous()) {
      if (!failure_of(dataset, *sample, draws)) return *sample;
      if (++failed > most) break;
    }
    if (failed > most) break;
  }
  fail(concat("[data] sample ", plan[batch][place], " (batch ", batch, " of epoch ", draws.epoch,
              ") cannot be had, nor can ", failed, " others that would stand in for it: ",
              failure_of(dataset, plan[batch][place], draws).value_or("now it can")));
}

}  // namespace

void name_the_sample(const Dataset& dataset, std::int64_t batch,
                     std::span<const std::int64_t> samples, const Draws& draws) {
  const std::string where = concat("batch ", batch, " of epoch ", draws.epoch);
  const std::string failure = words_of_failure();
  for (const std::int64_t sample : samples) {
    const auto words =
        samples.size() == 1 ? std::optional(failure) : failure_of(dataset, sample, draws);
    if (!words) continue;
    std::throw_with_nested(Error(concat("[data] sample ", sample, " (", where, "): ", *words)));
  }
  std::throw_with_nested(
      Error(concat("[data] ", where, ", each of whose samples can be had alone: ", failure)));
}

std::vector<BadSample> replace_bad(const Dataset& dataset, const PlannedBatches& plan,
                                   std::int64_t batch, std::vector<std::int64_t>& samples,
                                   const Draws& draws, std::int64_t most) {
  std::vector<BadSample> bad;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto words = failure_of(dataset, samples[i], draws);
    if (!words) continue;
    bad.push_back({samples[i], -1, batch, *words, static_cast<std::int64_t>(i)});
    if (std::ssize(bad) > most) break;
    bad.back().replaced_by = good_one_for(dataset, plan, batch, i, draws, most);
    samples[i] = bad.back().replaced_by;
  }
  return bad;
}

}  // namespace peal::data
