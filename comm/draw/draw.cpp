// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/draw/draw.h>
#include <peal/comm/draw/rows.h>

#include <algorithm>
#include <vector>

namespace peal::comm {

std::string draw(std::span<const Program> programs, Stuck stuck) {
  const BlockNames block(programs);
  const Rows found = comm::rows(programs, stuck);
  const std::size_t world = programs.size();
  std::vector<std::vector<std::string>> rows(static_cast<std::size_t>(found.count) + 1,
                                             std::vector<std::string>(world + 1));
  rows[0][0] = "time";
  for (std::size_t r = 0; r < world; ++r) rows[0][r + 1] = "rank " + std::to_string(r);
  for (std::size_t t = 1; t < rows.size(); ++t) rows[t][0] = std::to_string(t - 1);
  const auto put = [&](const RowEvent& event, int rank, const std::string& text) {
    auto& row = rows[static_cast<std::size_t>(event.time) + 1];
    std::string& cell = row[static_cast<std::size_t>(rank) + 1];
    cell += (cell.empty() ? "" : " ") + text;
  };
  for (const RowEvent& e : found.events) {
    if (!e.message()) {
      put(e, e.by, block.local(*e.sends));
    } else {
      put(e, e.from, block(e.sends->src) + ">" + std::to_string(e.to));
    }
  }
  for (const RowEvent& e : found.events) {  // after all sends of the row
    if (!e.message()) continue;
    const bool adds = e.receives->kind == Kind::recv_reduce;
    put(e, e.to, block(e.receives->dst) + (adds ? "+<" : "<") + std::to_string(e.from));
  }
  for (const RowWaiting& w : found.waiting) {
    auto& row = rows[static_cast<std::size_t>(w.time) + 1];
    std::string& cell = row[static_cast<std::size_t>(w.rank) + 1];
    cell += (cell.empty() ? "" : " ") + block(w.span()) + (w.sends() ? ">" : "<") +
            std::to_string(w.step->peer) + "?";
  }

  std::string text;
  std::vector<std::size_t> width(world + 1, 0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line += row[c] + std::string(width[c] + 3 - row[c].size(), ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace peal::comm
