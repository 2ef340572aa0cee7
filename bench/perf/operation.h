// SPDX-License-Identifier: Apache-2.0
// Operations: what each of the programs measures, as a table. A row says how a size is cut into
// what a rank gives and gets, where both lie in place, what must have come, which call it is, and
// what its bandwidth is compared with. All but `traffic` is nccl-tests'. Thread safety: values.
#pragma once

#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace peal::bench {

// Elements of one call on one rank.
struct Layout {
  std::int64_t send = 0, recv = 0;
  std::int64_t count = 0;  // as the table of results shows it
  // In place both lie in one buffer: this many elements from its start, for each rank.
  std::int64_t send_at = 0, recv_at = 0;
  std::int64_t whole() const { return send > recv ? send : recv; }
};

// A part of what a rank gets: elements from `at` on are those from `first` on that `source` gave.
struct Expected {
  static constexpr int reduction = -1;  // the source: all ranks, reduced
  std::int64_t at, count;
  int source;
  std::int64_t first;
};

// The memory of one call.
struct Place {
  View send, recv;
};

struct Operation {
  std::string_view name;                   // "all_reduce"
  std::string_view osu;                    // what OSU's benchmarks call it
  std::optional<comm::Collective> what{};  // nothing: messages
  bool reduces = false, rooted = false, has_in_place = true;
  bool shares = false;  // a size is cut into a share for each rank
  // `each`: elements of a rank's share, or of all.
  Layout (*layout)(std::int64_t each, int ranks);
  std::vector<Expected> (*expected)(const Layout& layout, int rank, int ranks, int root);
  // Bus bandwidth over algorithm bandwidth.
  double (*bus_factor)(int ranks);
  // Bytes that all ranks of a node have to load and store at least, over the size.
  double (*traffic)(int ranks);
};

const Operation& operation_named(std::string_view name);

// Of so many elements in all. Shares begin at multiples of 16 bytes.
Layout layout_of(const Operation& operation, std::int64_t count, std::int64_t element_size,
                 int ranks);

// Starts one call, by the group's own functions.
comm::Work start(const comm::ProcessGroup& group, const Operation& operation, const Place& place,
                 bool in_place, comm::ReduceOp op, int root);

}  // namespace peal::bench
