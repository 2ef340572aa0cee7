// SPDX-License-Identifier: Apache-2.0
// Network: the state of a Wire under way: until when each link and each rank's port is busy, and
// how many messages a link has passed. It says when a message that is posted now will be there;
// nothing moves by itself, so it needs no thread. Thread safety: all ranks of the world share one.
#pragma once

#include <peal/comm/transport/threads/wire.h>

#include <chrono>
#include <mutex>
#include <vector>

namespace peal::comm {

class Network {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point never = Clock::time_point::max();

  // Error as check() says.
  Network(Wire wire, int world);

  // When it arrives; `never` if it is dropped. Counts on_link itself.
  Clock::time_point send(Transfer transfer);

 private:
  struct Line {
    Clock::time_point free{};
    std::int64_t passed = 0;
  };
  Wire wire_;
  std::size_t world_;
  std::mutex mutex_;
  std::vector<Line> links_, ports_;
};

}  // namespace peal::comm
