// SPDX-License-Identifier: Apache-2.0
// Store: how the ranks of a group that is about to exist tell each other a few bytes (a segment's
// name, a process id, NCCL's unique id). The bootstrap in launch/ brings one over MPI; threads need
// none. Thread safety: one thread at a time.
#pragma once

#include <string>
#include <vector>

namespace peal::comm {

class Store {
 public:
  virtual ~Store() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  // Everyone's text, by rank. Collective; texts may differ in length.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
};

}  // namespace peal::comm
