// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/lone_ranks.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>

namespace peal {
namespace {

std::atomic<bool> joined{false};

// What launchers call a process's rank and the world.
struct Names {
  const char *rank, *world;
};
constexpr Names launchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                               {"PMI_RANK", "PMI_SIZE"},
                               {"RANK", "WORLD_SIZE"},
                               {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};

}  // namespace

void ranks_are_joined() { joined = true; }

std::string lone_ranks(const std::function<const char*(const char*)>& env) {
  for (const Names& names : launchers) {
    const char *rank = env(names.rank), *world = env(names.world);
    if (rank == nullptr || world == nullptr || std::atoi(world) < 2) continue;
    if (std::string_view(rank) != "0") return "";
    return concat(world, " ranks were started (", names.world,
                  "), but this program made no launch::Job: each rank trains by itself, on all "
                  "data. Make a Job (launch/job.h) to train together, or start it without a "
                  "launcher");
  }
  return "";
}

void warn_of_lone_ranks() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (joined) return;
    const std::string text = lone_ranks([](const char* name) { return std::getenv(name); });
    if (!text.empty()) log_warning(text);
  });
}

}  // namespace peal
