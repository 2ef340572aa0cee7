// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/comm/verify/well_formed.h>
#include <peal/launch/tools/schedule/story.h>

namespace peal::launch {

using comm::Buffer;
using comm::Kind;
using comm::Program;
using comm::Span;
using comm::Step;

namespace {

std::string span_text(const Span& span) {
  if (span.count == 0) return "nothing";
  const std::string whose = span.owner == comm::self ? "" : fmt::format(" of rank {}", span.owner);
  return span.count == 1 ? fmt::format("{}[{}]{}", name(span.buffer), span.at, whose)
                         : fmt::format("{}[{}..{}]{}", name(span.buffer), span.at,
                                       span.at + span.count - 1, whose);
}

std::string contributors_text(std::uint64_t ranks) {
  std::string text;
  for (int r = 0; r < Story::most_ranks; ++r) {
    if ((ranks >> r & 1) == 0) continue;
    int last = r;
    while (last + 1 < Story::most_ranks && (ranks >> (last + 1) & 1) != 0) ++last;
    if (!text.empty()) text += ",";
    text += last == r ? fmt::format("{}", r) : fmt::format("{}-{}", r, last);
    r = last;
  }
  return text;
}

std::string step_text(const Step& step) {
  switch (step.kind) {
    case Kind::send:
      return fmt::format("sends {} to {}", span_text(step.src), step.peer);
    case Kind::recv:
      return fmt::format("receives {} from {}", span_text(step.dst), step.peer);
    case Kind::recv_reduce:
      return fmt::format("adds what comes from {} to {}", step.peer, span_text(step.dst));
    case Kind::copy:
      return fmt::format("copies {} to {}", span_text(step.src), span_text(step.dst));
    case Kind::reduce:
      return fmt::format("adds {} to {}", span_text(step.src), span_text(step.dst));
    case Kind::signal:
      return fmt::format("signals {}", step.peer);
    case Kind::await:
      return fmt::format("awaits {}", step.peer);
  }
  return "";
}

// What stands in out or, where there is no out, in scratch.
std::string holdings(const std::vector<std::uint64_t>& out,
                     const std::vector<std::uint64_t>& scratch) {
  const auto& cells = out.empty() ? scratch : out;
  std::string text;
  for (std::size_t i = 0; i < cells.size();) {
    std::size_t end = i;
    while (end < cells.size() && cells[end] == cells[i]) ++end;
    if (cells[i] != 0) {
      const Span span{comm::self, out.empty() ? Buffer::scratch : Buffer::out,
                      static_cast<std::int64_t>(i), static_cast<std::int64_t>(end - i)};
      const bool one = (cells[i] & (cells[i] - 1)) == 0;
      text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", span_text(span),
                          one ? "of rank" : "sum of", contributors_text(cells[i]));
    }
    i = end;
  }
  return text;
}

}  // namespace

std::string words(const comm::Round& round) {
  std::string sentence;
  for (const Step& step : round) sentence += (sentence.empty() ? "" : "; ") + step_text(step);
  return sentence;
}

Story::Story(const World& world, const std::vector<Program>& programs)
    : programs_(programs), ranks_(programs.size()) {
  for (int r = 0; r < world.ranks; ++r) {
    Rank& me = rank(r);
    const comm::Problem problem = world.problem(r);
    me.memory[0].assign(static_cast<std::size_t>(in_count(problem)), std::uint64_t{1} << r);
    me.memory[1].assign(static_cast<std::size_t>(out_count(problem)), 0);
    me.memory[2].assign(static_cast<std::size_t>(programs[static_cast<std::size_t>(r)].scratch), 0);
    me.memory[3].assign(static_cast<std::size_t>(programs[static_cast<std::size_t>(r)].room), 0);
  }
  for (int r = 0; r < world.ranks; ++r) ready_.push_back(r);
  while (!ready_.empty()) {  // in step, so that nobody sees what others do later
    const int r = ready_.front();
    ready_.pop_front();
    begin_round(r);
  }
}

void Story::move(int to, int from, const Span& dst, const Span& src, bool adds) {
  for (std::int64_t i = 0; i < src.count; ++i) {
    const auto got =
        rank(from).memory[static_cast<int>(src.buffer)][static_cast<std::size_t>(src.at + i)];
    auto& cell =
        rank(to).memory[static_cast<int>(dst.buffer)][static_cast<std::size_t>(dst.at + i)];
    cell = adds ? cell | got : got;
  }
}

void Story::begin_round(int r) {
  Rank& me = rank(r);
  const auto& rounds = programs_[static_cast<std::size_t>(r)].rounds;
  if (me.round == rounds.size()) return;
  const auto& round = rounds[me.round];
  for (const Step& step : round) me.open += step.peer != comm::nobody;
  for (const Step& step : round) {
    if (step.peer != comm::nobody) continue;
    move(owner_of(step.dst, r), owner_of(step.src, r), step.dst, step.src,
         step.kind == Kind::reduce);
  }
  if (me.open == 0) end_round(r);
  for (const Step& step : round) {
    if (step.peer != comm::nobody) post(r, step);
  }
}

void Story::end_round(int r) {
  rank(r).held.push_back(holdings(rank(r).memory[1], rank(r).memory[2]));
  ++rank(r).round;
  ready_.push_back(r);
}

void Story::post(int r, const Step& step) {
  const bool sends = step.kind == Kind::send || step.kind == Kind::signal;
  auto& [out, in] = channels_[sends ? std::pair(r, step.peer) : std::pair(step.peer, r)];
  (sends ? out : in).emplace_back(r, &step);
  if (out.empty() || in.empty()) return;
  const auto [from, sent] = out.front();
  const auto [to, received] = in.front();
  out.pop_front();
  in.pop_front();
  move(to, from, received->dst, sent->src, received->kind == Kind::recv_reduce);
  for (const int side : {from, to}) {
    if (--rank(side).open == 0) end_round(side);
  }
}

}  // namespace peal::launch
