// SPDX-License-Identifier: Apache-2.0
// Pending buffers (MPI: the buffers of a nonblocking operation, which the program leaves alone
// until it is complete): the caller's memory that an operation in flight reads and writes. Who
// writes there meanwhile, the caller or another operation, has no order with it: what the ranks get
// depends on who was faster, and on the transport. That is an Error on all ranks where it is seen:
// of two operations by addresses, of a group's last 256; of what the caller writes in place (add_,
// copy_, an optimizer's step) by the version of the storage, where the buffer is the whole of that,
// for nobody knows which part was written. What is written through pointers (data()) is not seen.
//
// Of memory of a device what counts is until all of the operation is in the device's queues
// (Execution::handed_over()). Thread safety: the engine's lock.
#pragma once

#include <peal/comm/engine/call.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace peal::comm {

class PendingBuffers {
 public:
  // Of this rank of its group. REQUIRES: the call outlives it.
  PendingBuffers(const Call& call, int rank);

  // The operation is in flight from now on. `in_order`: behind another one that has this memory as
  // well, on the same queue of a device; what that one writes is counted later, and no mistake.
  void begin(bool in_order);
  // One of the two writes what the other uses.
  bool clash(const PendingBuffers& other) const;
  // What of it was written in place since: "256 f32"; empty: nothing that shows.
  std::string written() const;

 private:
  struct Use {
    const View* view;
    const std::byte *begin, *end;
    bool writes;
    std::optional<std::uint64_t> version = {};  // of the storage, when the operation began
  };
  void add(const View& view, bool writes);

  std::vector<Use> uses_;
};

}  // namespace peal::comm
