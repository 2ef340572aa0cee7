// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/simulate/round_shapes.h>
#include <peal/comm/verify/verify.h>
#include <peal/launch/tools/schedule/commands.h>
#include <peal/launch/tools/schedule/story.h>

#include <set>

namespace peal::launch {
namespace {

using comm::Program;

void print_opening(const comm::Entry& entry, const World& world,
                   const std::vector<Program>& programs) {
  const comm::ClosedForm form = entry.costs(world.problem());
  fmt::print("{}.\n", world.text(entry));
  fmt::print(
      "At most {} rounds with a message for a rank, in which it sends {} elements and adds {}.\n",
      form.most.rounds, form.most.sent, form.most.reduced);
  comm::RoundShapes shapes(world.ranks);
  std::set<int> plans;
  for (int r = 0; r < world.ranks; ++r) {
    plans.insert(shapes.plan(r, programs[static_cast<std::size_t>(r)]));
  }
  if (world.ranks > 1 && plans.size() == 1) {
    fmt::print(
        "All ranks do the same, each with the neighbours that it sees from where it stands.\n");
  }
  if (const auto verdict = verify(world.problem(), programs, comm::Aliasing::out_of_place);
      verdict.ok) {
    fmt::print("The verifier proves it right{}.\n",
               verdict.one_tree ? ", with one tree of additions for all elements" : "");
  }
}

}  // namespace

int explain(comm::Collective what, const ShowOptions& options, int only) {
  const comm::Entry entry = entry_named(what, options.algorithm);
  check_supports(entry, options.ranks);
  PEAL_CHECK(options.ranks <= Story::most_ranks, "explain: expected at most ", Story::most_ranks,
             " ranks, got ", options.ranks);
  PEAL_CHECK(only < options.ranks, "explain: there is no rank ", only, " among ", options.ranks);
  const World world = options.world(what);
  const auto programs = world.programs(entry);
  print_opening(entry, world, programs);
  Story story(world, programs);
  std::size_t last = 0;
  for (const Program& program : programs) last = std::max(last, program.rounds.size());
  for (std::size_t round = 0; round < last; ++round) {
    fmt::print("\nRound {}\n", round);
    for (int r = 0; r < world.ranks; ++r) {
      const Program& program = programs[static_cast<std::size_t>(r)];
      if ((only >= 0 && r != only) || round >= program.rounds.size()) continue;
      fmt::print("  rank {} {}.\n", r, words(program.rounds[round]));
      if (const std::string& held = story.after(r, round); !held.empty()) {
        fmt::print("    Then it has {}.\n", held);
      }
    }
  }
  return 0;
}

}  // namespace peal::launch
