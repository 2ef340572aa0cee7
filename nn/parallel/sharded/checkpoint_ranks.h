// SPDX-License-Identifier: Apache-2.0
// What saving and loading a sharded checkpoint have in common (sharded_checkpoint.h): ranks that do
// something together, and fail together. Thread safety: as of the group.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/nn/checkpoint.h>

#include <filesystem>
#include <string>
#include <vector>

namespace peal::nn::checkpointed {

// All ranks, or one process.
struct Ranks {
  const comm::ProcessGroup& group;
  std::string what;

  int rank() const { return group ? group.rank() : 0; }
  int world() const { return group ? group.world() : 1; }
  // f(), whatever its time; what goes wrong on a rank is an Error on all. `mine` after it is the
  // same on all.
  template <class F>
  void together(F&& f, const std::string& advice = {}) const {
    std::string mine;
    const auto attempt = [&] { mine = f(); };
    if (group) {
      const std::string wrong = comm::failure_while(group, "a checkpoint of shards", attempt);
      return comm::agree_unless(group, what, mine, wrong, advice);
    }
    const std::string wrong = failure_in(attempt);
    PEAL_CHECK(wrong.empty(), what, ": ", wrong);
  }
};

// Error for a part that comes twice, and for metadata with a name of peal's own.
void check_names(const std::vector<Part>& parts, const Metadata& metadata);
// "model, optimizer"
std::string list_of(const std::vector<std::string>& names);
// All of a file. Error where it cannot be read.
std::string text_of(const std::filesystem::path& path);

}  // namespace peal::nn::checkpointed
