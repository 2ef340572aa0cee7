// SPDX-License-Identifier: Apache-2.0
// What the page shows of a schedule, as JSON: nothing that the verifier, the drawing, the simulator
// and `explain` do not say themselves. Numbers in rows, one a thing, to keep pages small:
//
//   events    [row, kind, from, to, by, src buffer, cell, cells, dst buffer, cell, cells, src
//   round,
//             dst round]; a message goes from rank to rank, a local step from whose memory to
//             whose; `by` is who runs it, of a message the sender
//   waiting   [row, rank, peer, kind, buffer, cell, cells, round]
//   bars      [rank, kind, round, begin, waits, moves], in nanoseconds, the last two from there on
//   final     by rank and cell of `out`, what shall stand there: [element, contributors as a
//             hexadecimal number of bits]
//
// kinds are those of comm::Kind, buffers those of comm::Buffer, in their order. A barrier moves
// nothing but news: there `out` is one cell, which holds who is known to have come.
//
// Thread safety: pure functions.
#pragma once

#include <peal/comm/draw/timeline.h>
#include <peal/comm/schedule/schedule.h>
#include <peal/comm/verify/verify.h>
#include <peal/launch/tools/schedule/world.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace peal::launch {

struct ViewedSchedule {
  comm::Collective what = comm::Collective::all_reduce;
  std::string algorithm, title;
  std::vector<comm::Program> programs;
  // The problem that it solves, which the verifier then looks at; null: one that was measured, and
  // whose record does not say.
  const World* world = nullptr;
  std::string damage;  // what was done to it, in words
  // What shall stand in `out` at the end, where the schedule itself does not bring it about; null:
  // what it does.
  const comm::Contents* wanted = nullptr;
  std::vector<comm::NamedTimeline> timelines;
};

// At most Story::most_ranks ranks; Error otherwise.
nlohmann::json schedule_json(const ViewedSchedule& viewed);

}  // namespace peal::launch
