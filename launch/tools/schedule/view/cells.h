// SPDX-License-Identifier: Apache-2.0
// Cells: the buffers of a schedule cut so finely that every step moves whole cells, wherever what
// it moves has come from; so one cell stands for all its elements, which go the same way.
//
// Thread safety: a value.
#pragma once

#include <peal/comm/draw/rows.h>
#include <peal/comm/schedule/schedule.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace peal::launch {

class Cells {
 public:
  // A cut between the elements at - 1 and at of a buffer, of any rank's.
  void cut(comm::Buffer buffer, std::int64_t at);
  // Of all that the rows move or wait to move.
  void cut(const comm::Rows& rows);

  // The edges of the cells, ascending.
  std::vector<std::int64_t> edges(comm::Buffer buffer) const;
  // The first cell of a span, and how many it has.
  std::pair<int, int> of(const comm::Span& span) const;

 private:
  void cut(const comm::Span& span);

  std::set<std::int64_t> cuts_[comm::buffer_kinds];
};

}  // namespace peal::launch
