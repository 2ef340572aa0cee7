// SPDX-License-Identifier: Apache-2.0
// Wire: a network model between ranks that are threads, a plain value: how long a message takes,
// which come late, which never come. So congestion, reordering and loss are seen on one machine.
//
// A link is an ordered pair of the world's ranks. It passes one message at a time, and so does a
// rank's port, which all its links share. A message leaves when both are free, and arrives latency,
// and what jitter and faults add, after its last byte has left. Messages overtake each other freely
// but for what transport.h promises: those of one channel between two ranks stay in order.
//
// What befalls a message is drawn from the seed and from what the message is (its group, operation,
// link, and place in the operation), never from when it comes: the same program under the same seed
// meets the same faults. Thread safety: values.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace peal::comm {

struct Wire {
  static constexpr int any = -1;             // rank
  static constexpr std::int64_t every = -1;  // message
  static constexpr double unlimited = std::numeric_limits<double>::infinity();

  double latency = 0;            // seconds
  double bandwidth = unlimited;  // bytes a second, of a link
  double port = unlimited;       // bytes a second, of all that a rank sends
  double jitter = 0;             // seconds: each message is late by 0 to jitter, drawn evenly
  std::uint64_t seed = 1;

  // A link that is unlike the others; of several that fit, the last.
  struct Link {
    int from = any, to = any;
    double latency = 0, bandwidth = unlimited;
  };
  std::vector<Link> links{};

  // Hits a share of a link's messages, or its nth, counted from 0 in the order in which the sender
  // posts them (which is the program's where one operation is in flight at a time). One that is
  // dropped leaves its sender content, and its receiver waiting; it occupies neither link nor port.
  struct Fault {
    int from = any, to = any;
    std::int64_t nth = every;
    double share = 1;  // drawn for each message
    double delay = 0;  // seconds
    bool drop = false;
  };
  std::vector<Fault> faults{};
};

}  // namespace peal::comm
