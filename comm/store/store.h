// SPDX-License-Identifier: Apache-2.0
// Store: how the ranks of a group that is about to exist tell each other a few bytes (a segment's
// name, a process id, NCCL's unique id). There is one over MPI (the bootstrap in launch/ brings
// it), over files of a folder that all ranks see, and over TCP (comm/store/); threads need none.
// Thread safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace peal::comm {

class Store {
 public:
  virtual ~Store() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  // Everyone's text, by rank. Collective; texts may differ in length. An Error says which rank is
  // missing or what is wrong; the store is then of no further use.
  virtual std::vector<std::string> exchange(const std::string& mine) = 0;
};

// How long a store waits for the other ranks.
struct Patience {
  std::chrono::milliseconds deadline{600'000};  // of one exchange
  std::function<void()> hopeless = [] {};       // throws where waiting is of no more use
};

// The most bytes of one rank's text, over files and TCP: a stranger cannot fill the memory.
inline constexpr std::size_t most_store_bytes = std::size_t{64} << 20;

}  // namespace peal::comm
