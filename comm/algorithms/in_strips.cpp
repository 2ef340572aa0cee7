// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/algorithms/in_strips.h>
#include <peal/comm/algorithms/staged_slices.h>
#include <peal/comm/algorithms/table.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {
namespace {

// What a rank has in its room of a strip each: one of its own, or one for every other.
std::int64_t pieces_of(const Problem& problem) {
  const bool each_other = problem.what == Collective::reduce_scatter ||
                          problem.what == Collective::scatter ||
                          problem.what == Collective::all_to_all;
  return each_other ? problem.world : 1;
}

std::int64_t longest_strip(const Problem& problem, const Workers& workers) {
  return strip_of(longest_of(problem), workers.count, workers.align);
}

// The same collective with parts of one strip each.
Plan plan_of_strips(std::string_view algorithm, const Problem& problem, std::int64_t strip,
                    std::int64_t align, std::int64_t chunk) {
  const std::vector<std::int64_t> counts(problem.counts.size(), strip);
  Problem strips = problem;
  strips.counts = counts;
  strips.align = align;
  strips.chunk = chunk;
  Plan made(plan(*find(problem.what, algorithm), strips), std::string(algorithm));
  made.sum_at_once(problem.world);
  return made;
}

}  // namespace

bool fits_slots(const Problem& problem, const Workers& workers) {
  return problem.world == 1 || longest_strip(problem, workers) * pieces_of(problem) <= workers.room;
}

FlatProgram slots_in_strips(const Problem& problem, const Workers& workers) {
  const std::string_view algorithm = problem.what == Collective::barrier ? "signals" : "slots";
  const std::int64_t strip = longest_strip(problem, workers);
  const Plan plan = plan_of_strips(algorithm, problem, strip, workers.align, 0);
  return flatten(problem, workers.align, {&plan, strip});
}

FlatProgram slices_in_strips(const Problem& problem, const Workers& workers) {
  const std::int64_t align = workers.align, strip = longest_strip(problem, workers);
  const Plan direct = plan_of_strips("direct_slices", problem, strip, align, 0);
  // Two slots a room; as few chunks as that makes, and equal ones.
  const std::int64_t most = workers.room / 2 / pieces_of(problem) / align * align;
  const std::int64_t chunks = std::max<std::int64_t>((strip + most - 1) / most, 1);
  const std::int64_t piece = std::max(strip_of(strip, static_cast<int>(chunks), align), align);
  const Plan staged =
      plan_of_strips("staged_slices", problem, piece * chunks, align, piece * pieces_of(problem));
  return flatten(problem, align, {&direct, strip}, {&staged, piece * chunks});
}

}  // namespace peal::comm
