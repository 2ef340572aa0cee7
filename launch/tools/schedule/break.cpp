// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/comm/draw/draw.h>
#include <peal/launch/tools/schedule/commands.h>
#include <peal/launch/tools/schedule/damage.h>

namespace peal::launch {

int break_schedule(comm::Collective what, const ShowOptions& options, const std::string& how,
                   std::uint64_t seed) {
  const comm::Entry entry = entry_named(what, options.algorithm);
  check_supports(entry, options.ranks);
  const World world = options.world(what);
  const Damaged broken = damaged(world, world.programs(entry), how, seed);
  fmt::print("{}\n\ndamage:   {}\nverifier: {}\n\n{}", world.text(entry), broken.damage,
             broken.verdict.why, draw(broken.programs, comm::Stuck::show));
  if (!options.draw.empty()) {
    write_file(options.draw,
               svg(broken.programs, world.text(entry) + ", damaged",
                   {.stuck = comm::Stuck::show,
                    .note = broken.damage + ". The verifier: " + broken.verdict.why}));
  }
  return 0;
}

}  // namespace peal::launch
