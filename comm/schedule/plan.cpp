// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/schedule/plan.h>

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

namespace peal::comm {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("a program has a " + what);
}

bool in_scratch(const Span& span) {
  return span.owner == self && span.buffer == Buffer::scratch && span.count > 0;
}
bool overlap(const Span& a, const Span& b) {
  return in_scratch(a) && in_scratch(b) && a.at < b.at + b.count && b.at < a.at + a.count;
}

// Whether a round from `round` on may read what stands in scratch there.
bool is_read_later(const Program& program, std::size_t round, Span sum) {
  for (; round < program.rounds.size() && sum.count > 0; ++round) {
    for (const Step& step : program.rounds[round]) {
      const bool adds = step.kind == Kind::reduce || step.kind == Kind::recv_reduce;
      if (overlap(step.src, sum) || (adds && overlap(step.dst, sum))) return true;
    }
    for (const Step& step : program.rounds[round]) {  // what is overwritten from its begin on
      if (!overlap(step.dst, sum) || step.dst.at > sum.at) continue;
      const std::int64_t end = sum.at + sum.count;
      sum.at = std::min(end, step.dst.at + step.dst.count);
      sum.count = end - sum.at;
    }
  }
  return false;
}

// The combination that begins with this round; without rounds if none does.
Plan::Combination combination_at(const Program& program, std::size_t first) {
  const auto& rounds = program.rounds;
  const auto alone = [&](std::size_t round, Kind kind) {
    return round < rounds.size() && rounds[round].size() == 1 && rounds[round][0].kind == kind;
  };
  if (!alone(first, Kind::copy) || !in_scratch(rounds[first][0].dst)) return {};
  const Span sum = rounds[first][0].dst;
  Plan::Combination found{.targets = {}, .sources = {rounds[first][0].src}, .first = first};
  std::size_t round = first + 1;
  for (; alone(round, Kind::reduce) && rounds[round][0].dst == sum; ++round) {
    found.sources.push_back(rounds[round][0].src);
  }
  if (round == rounds.size() || rounds[round].empty()) return {};
  for (const Step& step : rounds[round]) {
    if (step.kind != Kind::copy || step.src != sum) return {};
    found.targets.push_back(step.dst);
  }
  // Those of one owner may share memory, in part too where buffers are in place: that is seen when
  // they are there.
  for (std::size_t t = 0; t < found.targets.size(); ++t) {
    const Span& target = found.targets[t];
    if (in_scratch(target)) return {};
    for (std::size_t s = 0; s < found.sources.size(); ++s) {
      const Span& source = found.sources[s];
      if (overlap(source, sum)) return {};
      if (source.owner == target.owner) found.aliased.emplace_back(t, s);
    }
  }
  found.rounds = round + 1 - first;
  return is_read_later(program, round + 1, sum) ? Plan::Combination{} : found;
}

std::string text_of(Kind kind) { return std::string(name(kind)); }

}  // namespace

Plan::Plan(Program made, std::string name) : program(std::move(made)), name(std::move(name)) {
  std::set<int> shares;
  for (const Round& round : program.rounds) {
    std::int64_t sum = 0;
    for (const Step& step : round) {
      if (step.kind == Kind::recv_reduce) sum += step.dst.count;
      const bool local = is_local(step.kind);
      if (!local && step.peer < 0 && !(step.kind == Kind::recv && step.peer == any_source)) {
        refuse(text_of(step.kind) + " with rank " + std::to_string(step.peer));
      }
      if (local && step.dst.count != step.src.count) {
        refuse(text_of(step.kind) + " of " + std::to_string(step.src.count) + " elements to " +
               std::to_string(step.dst.count));
      }
      highest_peer = std::max(highest_peer, step.peer);
      from_any = from_any || (!local && step.peer == any_source);
      one_sided = one_sided || is_one_sided(step);
      sends = sends || step.kind == Kind::send || step.kind == Kind::recv ||
              step.kind == Kind::recv_reduce;
      if (step.kind == Kind::signal || step.kind == Kind::await) shares.insert(step.peer);
      for (const Span& span : {step.dst, step.src}) {
        if (span.at < 0 || span.count < 0 ||
            span.at > std::numeric_limits<std::int64_t>::max() - span.count) {
          refuse("span of " + std::to_string(span.count) + " elements at " +
                 std::to_string(span.at));
        }
        reaches_others = reaches_others || (span.owner != self && span.buffer != Buffer::room);
        if (span.owner < self) refuse("span of rank " + std::to_string(span.owner));
        if (span.owner != self) shares.insert(span.owner);
        highest_peer = std::max(highest_peer, span.owner);
        // How large others' buffers are, only all programs together show.
        if (span.owner != self && span.buffer != Buffer::room) continue;
        std::int64_t& extent_of = extent[static_cast<int>(span.buffer)];
        if (span.count > 0) extent_of = std::max(extent_of, span.at + span.count);
      }
    }
    arriving = std::max(arriving, sum);
  }
  sharers.assign(shares.begin(), shares.end());
  find_combinations();
}

// A sum has each rank's element once, so one of as many sources as ranks is of nothing but inputs,
// and complete.
void Plan::sum_at_once(int world) {
  const auto whole = [&](const Combination& each) {
    return each.sources.size() == static_cast<std::size_t>(world);
  };
  if (!all_combined || !std::ranges::all_of(combinations, whole)) {
    refuse("reduction that is not of all " + std::to_string(world) + " ranks at once");
  }
  at_once = true;
}

void Plan::send_room_with_signals() {
  std::vector<int> told;
  for (const Round& round : program.rounds) {
    for (const Step& step : round) {
      if (step.kind == Kind::signal) told.push_back(step.peer);
    }
    for (const Step& step : round) {
      if (step.dst.buffer == Buffer::room && (step.dst.owner != self || !told.empty())) return;
    }
  }
  std::ranges::sort(told);
  const bool once = std::ranges::adjacent_find(told) == told.end();
  inline_room = program.room > 0 && once && !reaches_others;
}

void Plan::find_combinations() {
  scratch = 0;
  all_combined = true;
  for (std::size_t round = 0; round < program.rounds.size();) {
    Combination found = combination_at(program, round);
    if (found.rounds > 0) {
      round += found.rounds;
      combinations.push_back(std::move(found));
      continue;
    }
    for (const Step& step : program.rounds[round]) {
      if (in_scratch(step.dst) || in_scratch(step.src)) scratch = program.scratch;
      if (step.kind == Kind::reduce || step.kind == Kind::recv_reduce) all_combined = false;
    }
    ++round;
  }
}

}  // namespace peal::comm
