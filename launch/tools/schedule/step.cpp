// SPDX-License-Identifier: Apache-2.0
// peal-schedule trace --step: where the time of the buckets of one training step went.
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/tools/schedule/commands.h>

#include <algorithm>

namespace peal::launch {
namespace {

constexpr std::size_t most_steps = 20;

double most_exposed(const comm::TrainingStep& step) {
  double most = 0;
  for (const comm::StepRank& rank : step.ranks) most = std::max(most, rank.exposed());
  return most;
}

void print_rank(const comm::TrainingStep& step, const comm::StepRank& rank) {
  fmt::print("rank {}: exposed {}\n", rank.rank, seconds_text(rank.exposed()));
  fmt::print("{:>8} {:>10} {:>11} {:>11} {:>11} {:>11} {:>11}  {}\n", "bucket", "bytes", "queue",
             "copy-in", "slowest", "wire", "copy-out", "last");
  for (std::size_t b = 0; b < rank.buckets.size(); ++b) {
    const comm::StepBucket& bucket = rank.buckets[b];
    const comm::StepRank& last = step.ranks[step.last_rank(b)];
    fmt::print("{:>8} {:>10} {:>11} {:>11} {:>11} {:>11} {:>11}  rank {}, by {}\n", b, bucket.bytes,
               seconds_text(bucket.phases.queue), seconds_text(bucket.phases.copy_in),
               seconds_text(bucket.slowest), seconds_text(bucket.wire()),
               seconds_text(bucket.phases.copy_out), last.rank, last.buckets[b].held_by);
  }
}

}  // namespace

const comm::TrainingStep& step_chosen(const std::vector<comm::TrainingStep>& steps, int number) {
  PEAL_CHECK(!steps.empty(),
             "there is no step of data-parallel training in this trace: expected a run of "
             "nn::DistributedDataParallel");
  if (number == 0) return median_step(steps);
  const auto found = std::ranges::find_if(
      steps, [&](const auto& step) { return step.step == static_cast<std::uint64_t>(number); });
  PEAL_CHECK(found != steps.end(), "there is no step ", number, "; there are ", steps.front().step,
             " to ", steps.back().step);
  return *found;
}

void print_steps(const std::vector<comm::TrainingStep>& steps) {
  fmt::print("{:>4} {:>8} {:>6} {:>11} {:>11}\n", "step", "buckets", "ranks", "took", "exposed");
  for (std::size_t i = 0; i < std::min(steps.size(), most_steps); ++i) {
    const comm::TrainingStep& step = steps[i];
    fmt::print("{:>4} {:>8} {:>6} {:>11} {:>11}\n", step.step, step.ranks.front().buckets.size(),
               step.ranks.size(), seconds_text(step.end() - step.begin()),
               seconds_text(most_exposed(step)));
  }
  if (steps.size() > most_steps) fmt::print("     and {} more\n", steps.size() - most_steps);
  fmt::print(
      "took: forward and backward, from the first rank's begin to the last one's end. exposed: "
      "nothing but waiting for\ngradients, on the rank with most.\n");
}

std::string step_title(const comm::TrainingStep& step) {
  return fmt::format("step {}, {} ranks: forward and backward {}, exposed {}", step.step,
                     step.ranks.size(), seconds_text(step.end() - step.begin()),
                     seconds_text(most_exposed(step)));
}

void show_step(const std::vector<comm::TrainingStep>& steps, const TraceOptions& options) {
  const comm::TrainingStep& step = step_chosen(steps, options.step);
  const std::string said = step_title(step);
  fmt::print("{}\n", said);
  for (const comm::StepRank& rank : step.ranks) print_rank(step, rank);
  if (!options.draw.empty()) write_file(options.draw, svg(picture(step), said));
}

}  // namespace peal::launch
