// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/simulate/round_shapes.h>
#include <peal/comm/verify/verify.h>
#include <peal/comm/verify/well_formed.h>
#include <peal/launch/tools/schedule/commands.h>

#include <deque>
#include <map>
#include <set>
#include <utility>

namespace peal::launch {
namespace {

using comm::Buffer;
using comm::Kind;
using comm::Program;
using comm::Span;
using comm::Step;

constexpr int most_ranks = 64;  // a contributor is a bit

std::string span_text(const Span& span) {
  if (span.count == 0) return "nothing";
  const std::string whose = span.owner == comm::self ? "" : fmt::format(" of rank {}", span.owner);
  return span.count == 1 ? fmt::format("{}[{}]{}", name(span.buffer), span.at, whose)
                         : fmt::format("{}[{}..{}]{}", name(span.buffer), span.at,
                                       span.at + span.count - 1, whose);
}

std::string ranks_text(std::uint64_t ranks) {
  std::string text;
  for (int r = 0; r < most_ranks; ++r) {
    if ((ranks >> r & 1) == 0) continue;
    int last = r;
    while (last + 1 < most_ranks && (ranks >> (last + 1) & 1) != 0) ++last;
    if (!text.empty()) text += ",";
    text += last == r ? fmt::format("{}", r) : fmt::format("{}-{}", r, last);
    r = last;
  }
  return text;
}

// Runs the programs on sets of contributors, and notes after each round of a rank what it holds.
class Story {
 public:
  Story(const World& world, const std::vector<Program>& programs)
      : world_(world), programs_(programs), ranks_(programs.size()) {
    for (int r = 0; r < world.ranks; ++r) {
      Rank& me = rank(r);
      const comm::Problem problem = world.problem(r);
      me.memory[0].assign(static_cast<std::size_t>(in_count(problem)), std::uint64_t{1} << r);
      me.memory[1].assign(static_cast<std::size_t>(out_count(problem)), 0);
      me.memory[2].assign(static_cast<std::size_t>(programs[static_cast<std::size_t>(r)].scratch),
                          0);
      me.memory[3].assign(static_cast<std::size_t>(programs[static_cast<std::size_t>(r)].room), 0);
    }
    for (int r = 0; r < world.ranks; ++r) ready_.push_back(r);
    while (!ready_.empty()) {  // in step, so that nobody sees what others do later
      const int r = ready_.front();
      ready_.pop_front();
      begin_round(r);
    }
  }

  const std::string& after(int r, std::size_t round) { return rank(r).held[round]; }

 private:
  struct Rank {
    std::vector<std::uint64_t> memory[comm::buffer_kinds];  // by Buffer
    std::size_t round = 0;
    int open = 0;
    std::vector<std::string> held;
  };
  using Posted = std::pair<int, const Step*>;

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }

  void move(int to, int from, const Span& dst, const Span& src, bool adds) {
    for (std::int64_t i = 0; i < src.count; ++i) {
      const auto got =
          rank(from).memory[static_cast<int>(src.buffer)][static_cast<std::size_t>(src.at + i)];
      auto& cell =
          rank(to).memory[static_cast<int>(dst.buffer)][static_cast<std::size_t>(dst.at + i)];
      cell = adds ? cell | got : got;
    }
  }

  void begin_round(int r) {
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

  void end_round(int r) {
    rank(r).held.push_back(holdings(rank(r)));
    ++rank(r).round;
    ready_.push_back(r);
  }

  void post(int r, const Step& step) {
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

  // What stands in out or, where there is no out, in scratch.
  std::string holdings(const Rank& me) const {
    const bool in_out = !me.memory[1].empty();
    const auto& cells = me.memory[in_out ? 1 : 2];
    std::string text;
    for (std::size_t i = 0; i < cells.size();) {
      std::size_t end = i;
      while (end < cells.size() && cells[end] == cells[i]) ++end;
      if (cells[i] != 0) {
        const Span span{comm::self, in_out ? Buffer::out : Buffer::scratch,
                        static_cast<std::int64_t>(i), static_cast<std::int64_t>(end - i)};
        const bool one = (cells[i] & (cells[i] - 1)) == 0;
        text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", span_text(span),
                            one ? "of rank" : "sum of", ranks_text(cells[i]));
      }
      i = end;
    }
    return text;
  }

  const World& world_;
  const std::vector<Program>& programs_;
  std::vector<Rank> ranks_;
  std::deque<int> ready_;  // to begin their next round
  std::map<std::pair<int, int>, std::pair<std::deque<Posted>, std::deque<Posted>>> channels_;
};

std::string words(const Step& step) {
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

void print_opening(const comm::Entry& entry, const World& world,
                   const std::vector<Program>& programs) {
  const comm::ClosedForm form = entry.costs(world.problem());
  fmt::print("{}.\n", world.text(entry));
  fmt::print(
      "At most {} rounds with a message for a rank, in which it sends {} elements and adds {}.\n",
      form.most.rounds, form.most.sent, form.most.reduced);
  comm::RoundShapes shapes(world.ranks);
  std::set<int> plans;
  for (int r = 0; r < world.ranks; ++r) {
    plans.insert(shapes.plan(r, programs[static_cast<std::size_t>(r)]));
  }
  if (world.ranks > 1 && plans.size() == 1) {
    fmt::print(
        "All ranks do the same, each with the neighbours that it sees from where it stands.\n");
  }
  if (const auto verdict = verify(world.problem(), programs, comm::Aliasing::out_of_place);
      verdict.ok) {
    fmt::print("The verifier proves it right{}.\n",
               verdict.one_tree ? ", with one tree of additions for all elements" : "");
  }
}

}  // namespace

int explain(comm::Collective what, const ShowOptions& options, int only) {
  const comm::Entry entry = entry_named(what, options.algorithm);
  check_supports(entry, options.ranks);
  PEAL_CHECK(options.ranks <= most_ranks, "explain: expected at most ", most_ranks, " ranks, got ",
             options.ranks);
  PEAL_CHECK(only < options.ranks, "explain: there is no rank ", only, " among ", options.ranks);
  const World world = options.world(what);
  const auto programs = world.programs(entry);
  print_opening(entry, world, programs);
  Story story(world, programs);
  std::size_t last = 0;
  for (const Program& program : programs) last = std::max(last, program.rounds.size());
  for (std::size_t round = 0; round < last; ++round) {
    fmt::print("\nRound {}\n", round);
    for (int r = 0; r < world.ranks; ++r) {
      const Program& program = programs[static_cast<std::size_t>(r)];
      if ((only >= 0 && r != only) || round >= program.rounds.size()) continue;
      std::string sentence;
      for (const Step& step : program.rounds[round]) {
        sentence += (sentence.empty() ? "" : "; ") + words(step);
      }
      fmt::print("  rank {} {}.\n", r, sentence);
      if (const std::string& held = story.after(r, round); !held.empty()) {
        fmt::print("    Then it has {}.\n", held);
      }
    }
  }
  return 0;
}

}  // namespace peal::launch
