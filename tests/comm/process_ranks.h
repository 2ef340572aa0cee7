// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes, which a store brings together.
#pragma once

#include <peal/comm/start/processes.h>

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "store_ranks.h"

namespace peal::testing {

// f on a process for each rank, of which each node has so many, or all. One that ends with an error
// says it in a file.
class Processes {
 public:
  Processes(int world, const comm::ProcessGroup::Options& options,
            const std::function<void(const comm::ProcessGroup&)>& f, int on_a_node = 0) {
    for (int rank = 0; rank < world; ++rank) {
      children_.push_back(in_process([&, rank] {
        if (on_a_node > 0) ::setenv("PEAL_NODE", concat(rank / on_a_node).c_str(), 1);
        const std::string error = error_of([&] {
          const auto ranks = files_in(folder_.path / "store")(rank, world);
          {
            const comm::ProcessGroup group = comm::processes_group(*ranks, options);
            f(group);
            group.barrier().wait();
          }
          ranks->exchange("the end");
        });
        std::ofstream(file(rank)) << error;
        PEAL_CHECK(error == "nothing", error);
      }));
    }
  }
  pid_t pid(int rank) const { return children_[static_cast<std::size_t>(rank)]; }
  // "nothing", an error, or how the process ended.
  std::vector<std::string> ends() {
    std::vector<std::string> said;
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      int status = 0;
      REQUIRE(waitpid(children_[rank], &status, 0) == children_[rank]);
      said.push_back(WIFSIGNALED(status) ? concat("signal ", WTERMSIG(status))
                                         : content_of(file(static_cast<int>(rank))));
    }
    return said;
  }

 private:
  std::string file(int rank) const { return folder_.path / concat("rank ", rank); }
  Folder folder_;
  std::vector<pid_t> children_;
};

}  // namespace peal::testing
