// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/tools/schedule/view/cells.h>

#include <algorithm>
#include <iterator>
#include <tuple>

namespace peal::launch {

using comm::Span;

namespace {

// Buffer and place of what is read, of what is written, and elements.
using Move = std::tuple<comm::Buffer, std::int64_t, comm::Buffer, std::int64_t, std::int64_t>;

// Cuts within [at, at + count) stand in the other buffer too, at the same distance from its place.
bool carried_over(const std::set<std::int64_t>& from, std::int64_t at, std::set<std::int64_t>& to,
                  std::int64_t place, std::int64_t count) {
  std::vector<std::int64_t> wanted;
  for (auto cut = from.upper_bound(at); cut != from.end() && *cut < at + count; ++cut) {
    wanted.push_back(*cut - at + place);
  }
  bool grown = false;
  for (const std::int64_t cut : wanted) grown = to.insert(cut).second || grown;
  return grown;
}

}  // namespace

void Cells::cut(comm::Buffer buffer, std::int64_t at) {
  cuts_[static_cast<int>(buffer)].insert(at);
}

void Cells::cut(const Span& span) {
  if (span.count == 0) return;
  cut(span.buffer, span.at);
  cut(span.buffer, span.at + span.count);
}

void Cells::cut(const comm::Rows& rows) {
  std::set<Move> moves;
  for (const comm::RowEvent& event : rows.events) {
    const Span &src = event.sends->src, &dst = event.receives->dst;
    cut(src);
    cut(dst);
    if (const auto count = std::min(src.count, dst.count); count > 0) {
      moves.emplace(src.buffer, src.at, dst.buffer, dst.at, count);
    }
  }
  for (const comm::RowWaiting& waiting : rows.waiting) cut(waiting.span());
  for (bool grown = true; grown;) {
    grown = false;
    for (const auto& [from, at, to, place, count] : moves) {
      auto &a = cuts_[static_cast<int>(from)], &b = cuts_[static_cast<int>(to)];
      grown = carried_over(a, at, b, place, count) || grown;
      grown = carried_over(b, place, a, at, count) || grown;
    }
  }
}

std::vector<std::int64_t> Cells::edges(comm::Buffer buffer) const {
  const auto& cuts = cuts_[static_cast<int>(buffer)];
  return {cuts.begin(), cuts.end()};
}

std::pair<int, int> Cells::of(const Span& span) const {
  const auto& cuts = cuts_[static_cast<int>(span.buffer)];
  const auto index = [&](std::int64_t at) {
    return static_cast<int>(std::distance(cuts.begin(), cuts.lower_bound(at)));
  };
  if (span.count == 0) return {0, 0};
  const int first = index(span.at);
  return {first, index(span.at + span.count) - first};
}

}  // namespace peal::launch
