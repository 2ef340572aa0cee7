// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/verify/happens_before.h>
#include <peal/comm/verify/reduction_trees.h>
#include <peal/comm/verify/verify.h>
#include <peal/comm/verify/well_formed.h>

#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

using Index = std::int64_t;

struct Cell {
  Index element = 0;
  int tree = ReductionTrees::none;
};

constexpr int everyone = -1;

// `count` elements from `element` on, with the contribution of one rank or of everyone.
struct Run {
  Index element, count;
  int contributor;
};

// What belongs into `out`, in order. Elements are numbered through the whole result, or, for
// all_to_all, through the sender's `in`.
std::vector<Run> expected(const Problem& problem) {
  const Index size = out_count(problem);
  if (size == 0) return {};
  const int rank = problem.rank, world = problem.world;
  const Blocks block(problem.counts);
  std::vector<Run> runs;
  switch (problem.what) {
    case Collective::all_reduce:
    case Collective::reduce:
      return {{0, size, everyone}};
    case Collective::broadcast:
      return {{0, size, problem.root}};
    case Collective::reduce_scatter:
      return {{block[rank].at, size, everyone}};
    case Collective::scatter:
      return {{block[rank].at, size, problem.root}};
    case Collective::all_gather:
    case Collective::gather:
      for (int r = 0; r < world; ++r) runs.push_back({block[r].at, block[r].count, r});
      return runs;
    case Collective::all_to_all:
      for (int r = 0; r < world; ++r) {
        const Block& b = block[r * world + rank];
        runs.push_back({b.at - block[r * world].at, b.count, r});
      }
      return runs;
    case Collective::barrier:
      break;
  }
  return {};
}

struct Channel {
  std::deque<Place> sends, recvs;  // posted, not yet met
};

// Signals and awaits that have not met.
struct Flag {
  std::deque<std::pair<Place, std::vector<Index>>> signals;  // with their clocks
  std::deque<Place> awaits;
};

class SymbolicRun {
 public:
  SymbolicRun(const Problem& problem, std::span<const Program> programs, Aliasing aliasing)
      : problem_(problem),
        programs_(programs),
        trees_(problem.world),
        order_(programs, problem.nodes) {
    for (int r = 0; r < problem.world; ++r) {
      const bool in_place = aliasing == Aliasing::in_place;
      layouts_.push_back(lay_out(problem_of(r), program_of(r), in_place));
    }
    for (int r = 0; r < problem.world; ++r) {
      check_well_formed(problem_of(r), program_of(r), layouts_);
      cells_.emplace_back(static_cast<std::size_t>(layout(r).total));
      fill(r);
    }
  }

  Verdict run();  // throws Rejected
  Contents contents();

 private:
  Problem problem_of(int rank) const {
    Problem problem = problem_;
    problem.rank = rank;
    return problem;
  }
  const Program& program_of(int rank) const { return programs_[static_cast<std::size_t>(rank)]; }
  const Step& step(const Place& p) const { return program_of(p.rank).rounds[p.round][p.step]; }
  std::string where(const Place& p) const { return comm::where(program_of(p.rank), p); }
  const Layout& layout(int rank) const { return layouts_[static_cast<std::size_t>(rank)]; }
  Cell* cells(int rank, const Span& span) {
    return cells_[static_cast<std::size_t>(rank)].data() + layout(rank).start(span);
  }

  void fill(int rank);
  void touch(const Place& p, int owner, const Span& span, bool write) {
    order_.touch(p, owner, layout(owner).start(span), span.count, write,
                 span.buffer == Buffer::room);
  }
  void move(const Place& to, int from_rank, const Span& src);
  void begin_round(int rank);
  void post(const Place& p);
  void meet(Channel& channel);
  void hear(int rank, int from);
  void post_flag(const Place& p);
  void simulate();
  [[noreturn]] void reject_waiting();

  Verdict check_results();
  void check_heard();

  const Problem& problem_;
  std::span<const Program> programs_;
  ReductionTrees trees_;
  HappensBefore order_;
  std::vector<Layout> layouts_;           // by rank
  std::vector<std::vector<Cell>> cells_;  // of a rank's buffers

  std::vector<std::size_t> at_round_, open_messages_;  // by rank
  std::unordered_map<Index, Channel> channels_;        // sender * world + receiver
  std::unordered_map<Index, Flag> flags_;              // the same
  std::vector<int> ready_;                             // ranks whose round is complete
  std::vector<std::vector<bool>> heard_, hearing_;     // barrier: at the round's begin; so far
};

// Puts the problem's elements, numbered through, into the rank's `in`.
void SymbolicRun::fill(int rank) {
  const Problem problem = problem_of(rank);
  const bool numbered_through =
      problem.what == Collective::all_gather || problem.what == Collective::gather;
  const Index first = numbered_through ? Blocks(problem.counts)[rank].at : 0;
  const Block all{0, in_count(problem)};
  for (Index i = 0; i < all.count; ++i) cells(rank, in(all))[i] = {first + i, rank};
}

// The effect of a step that writes: p's own, with its source in from_rank's memory.
void SymbolicRun::move(const Place& p, int from_rank, const Span& src) {
  const Step& s = step(p);
  const bool combines = s.kind == Kind::reduce || s.kind == Kind::recv_reduce;
  const int to_rank = owner_of(s.dst, p.rank);
  const Cell* from = cells(from_rank, src);
  Cell* to = cells(to_rank, s.dst);
  if (to == from && !combines) return;
  if (!is_message(s.kind)) touch(p, from_rank, src, false);
  touch(p, to_rank, s.dst, true);
  for (Index i = 0; i < src.count; ++i) {
    const Cell& got = from[i];
    Cell& cell = to[i];
    if (got.tree == ReductionTrees::none) {
      reject(where(p), ": expected data, got undefined ", name(src.buffer), "[", src.at + i,
             "] of rank ", from_rank);
    }
    if (!combines) {
      cell = got;
      continue;
    }
    const std::string_view buffer = name(s.dst.buffer);
    if (cell.tree == ReductionTrees::none) {
      reject(where(p), ": expected data to add to, got undefined ", buffer, "[", s.dst.at + i, "]");
    }
    if (cell.element != got.element) {
      reject(where(p), ": expected element ", cell.element, " for ", buffer, "[", s.dst.at + i,
             "], got element ", got.element);
    }
    const int combined = trees_.combine(cell.tree, got.tree);
    if (combined == ReductionTrees::none) {
      int twice = 0;
      while (!trees_.has(cell.tree, twice) || !trees_.has(got.tree, twice)) ++twice;
      reject(where(p), ": expected each contribution once, got that of rank ", twice,
             " a second time in ", buffer, "[", s.dst.at + i, "]");
    }
    cell.tree = combined;
  }
}

void SymbolicRun::meet(Channel& channel) {
  const Place sender = channel.sends.front(), receiver = channel.recvs.front();
  channel.sends.pop_front();
  channel.recvs.pop_front();
  const Span& src = step(sender).src;
  if (step(receiver).dst.count != src.count) {
    reject(where(receiver), ": expected ", step(receiver).dst.count, " elements from rank ",
           sender.rank, ", got ", src.count, " by ", where(sender));
  }
  touch(sender, sender.rank, src, false);
  move(receiver, sender.rank, src);
  hear(receiver.rank, sender.rank);
  for (const int rank : {sender.rank, receiver.rank}) {
    if (--open_messages_[static_cast<std::size_t>(rank)] == 0) ready_.push_back(rank);
  }
}

void SymbolicRun::hear(int rank, int from) {
  if (heard_.empty()) return;
  auto& hearing = hearing_[static_cast<std::size_t>(rank)];
  const auto& news = heard_[static_cast<std::size_t>(from)];
  for (std::size_t r = 0; r < news.size(); ++r) hearing[r] = hearing[r] || news[r];
}

// A signal never waits, so it takes its news along.
void SymbolicRun::post_flag(const Place& p) {
  const Step& s = step(p);
  const bool signals = s.kind == Kind::signal;
  Flag& flag = flags_[signals ? Index{p.rank} * problem_.world + s.peer
                              : Index{s.peer} * problem_.world + p.rank];
  if (signals) {
    flag.signals.emplace_back(p, order_.clock(p.rank));
  } else {
    flag.awaits.push_back(p);
  }
  if (flag.signals.empty() || flag.awaits.empty()) return;
  const int waiter = flag.awaits.front().rank;
  order_.hear(waiter, flag.signals.front().second);
  hear(waiter, flag.signals.front().first.rank);
  flag.signals.pop_front();
  flag.awaits.pop_front();
  if (--open_messages_[static_cast<std::size_t>(waiter)] == 0) ready_.push_back(waiter);
}

void SymbolicRun::post(const Place& p) {
  const Step& s = step(p);
  const bool sends = s.kind == Kind::send;
  const Index key =
      sends ? Index{p.rank} * problem_.world + s.peer : Index{s.peer} * problem_.world + p.rank;
  Channel& channel = channels_[key];
  (sends ? channel.sends : channel.recvs).push_back(p);
  if (!channel.sends.empty() && !channel.recvs.empty()) meet(channel);
}

// Steps of a round do not disturb each other, so local ones may as well come first.
void SymbolicRun::begin_round(int rank) {
  const auto r = static_cast<std::size_t>(rank);
  const auto& rounds = programs_[r].rounds;
  for (; at_round_[r] < rounds.size(); ++at_round_[r]) {
    const std::size_t round = at_round_[r];
    if (!heard_.empty()) heard_[r] = hearing_[r];
    order_.begin_round(rank, round);
    open_messages_[r] = 0;
    for (const Step& s : rounds[round]) {
      open_messages_[r] += is_message(s.kind) || s.kind == Kind::await;
    }
    const bool waits = open_messages_[r] > 0;
    for (std::size_t i = 0; i < rounds[round].size(); ++i) {
      const Place p{rank, round, i};
      if (is_message(step(p).kind)) {
        post(p);
      } else if (writes_dst(step(p).kind)) {
        move(p, owner_of(step(p).src, rank), step(p).src);
      } else {
        post_flag(p);
      }
    }
    if (waits) return;  // if its messages have met already, the rank stands in ready_
  }
  if (!heard_.empty()) heard_[r] = hearing_[r];
  order_.begin_round(rank, rounds.size());
}

void SymbolicRun::reject_waiting() {
  std::string all;
  for (const auto& [key, flag] : flags_) {
    for (const Place& p : flag.awaits) all += (all.empty() ? "" : "; ") + where(p);
  }
  for (int rank = 0; rank < problem_.world; ++rank) {
    for (const auto& [key, channel] : channels_) {
      for (const auto* posted : {&channel.sends, &channel.recvs}) {
        if (posted->empty() || posted->front().rank != rank) continue;
        const int peer = step(posted->front()).peer;
        const auto& rounds = programs_[static_cast<std::size_t>(peer)].rounds;
        const std::size_t stands = at_round_[static_cast<std::size_t>(peer)];
        all += (all.empty() ? "" : "; ") + where(posted->front()) + " waits for rank " +
               std::to_string(peer) + ", which " +
               (stands == rounds.size() ? "has finished" : "is in round " + std::to_string(stands));
      }
    }
  }
  reject("deadlock, expected every message to meet its partner: ", all);
}

void SymbolicRun::simulate() {
  const auto world = static_cast<std::size_t>(problem_.world);
  at_round_.assign(world, 0);
  open_messages_.assign(world, 0);
  if (problem_.what == Collective::barrier) {
    heard_.assign(world, std::vector<bool>(world, false));
    for (std::size_t r = 0; r < world; ++r) heard_[r][r] = true;
    hearing_ = heard_;
  }
  for (int r = 0; r < problem_.world; ++r) begin_round(r);
  while (!ready_.empty()) {
    const int rank = ready_.back();
    ready_.pop_back();
    ++at_round_[static_cast<std::size_t>(rank)];
    begin_round(rank);
  }
  for (std::size_t r = 0; r < world; ++r) {
    if (at_round_[r] < programs_[r].rounds.size()) reject_waiting();
  }
  for (const auto& [key, flag] : flags_) {
    if (flag.signals.empty()) continue;
    reject(where(flag.signals.front().first), ": expected an await to match, got none");
  }
  if (problem_.what == Collective::barrier) check_heard();
  order_.check_ends();
}

void SymbolicRun::check_heard() {
  for (int r = 0; r < problem_.world; ++r) {
    for (int other = 0; other < problem_.world; ++other) {
      if (!heard_[static_cast<std::size_t>(r)][static_cast<std::size_t>(other)]) {
        reject("rank ", r, " leaves the barrier: expected all ranks to have come, got no word of ",
               "rank ", other);
      }
    }
  }
}

Verdict SymbolicRun::check_results() {
  bool one_tree = true;
  int first_tree = ReductionTrees::none;
  std::vector<int> tree_of(static_cast<std::size_t>(Blocks(problem_.counts).total()),
                           ReductionTrees::none);  // of reduced elements, which may have replicas
  for (int rank = 0; rank < problem_.world; ++rank) {
    const Cell* result = cells(rank, out({}));
    Index at = 0;
    for (const Run& run : expected(problem_of(rank))) {
      int known_right = ReductionTrees::none;
      for (Index i = 0; i < run.count; ++i, ++at) {
        const Cell& cell = result[at];
        const auto fail = [&](const auto&... parts) {
          reject("rank ", rank, " ends with a wrong out[", at, "]: expected ", parts...);
        };
        const Index element = run.element + i;
        if (cell.tree == ReductionTrees::none) fail("element ", element, ", got nothing");
        if (cell.element != element) fail("element ", element, ", got element ", cell.element);
        for (int r = 0; cell.tree != known_right && r < problem_.world; ++r) {
          const bool wanted = run.contributor == everyone || run.contributor == r;
          if (wanted == trees_.has(cell.tree, r)) continue;
          fail(wanted ? "the" : "no", " contribution of rank ", r, ", got ",
               wanted ? "none" : "it");
        }
        known_right = cell.tree;
        if (run.contributor != everyone) continue;
        int& tree = tree_of[static_cast<std::size_t>(element)];
        if (tree == ReductionTrees::none) tree = cell.tree;
        if (tree != cell.tree) fail("the reduction tree of the ranks before, got another one");
        if (first_tree == ReductionTrees::none) first_tree = cell.tree;
        one_tree = one_tree && cell.tree == first_tree;
      }
    }
  }
  const bool reduced = one_tree && first_tree != ReductionTrees::none;
  return {
      .ok = true, .why = {}, .one_tree = one_tree, .tree = reduced ? trees_.hash(first_tree) : 0};
}

Verdict SymbolicRun::run() {
  simulate();
  return check_results();
}

Contents SymbolicRun::contents() {
  Contents all;
  for (int rank = 0; rank < problem_.world; ++rank) {
    std::vector<Held>& mine = all.emplace_back();
    const Cell* result = cells(rank, out({}));
    for (Index at = 0; at < out_count(problem_of(rank)); ++at) {
      Held& held = mine.emplace_back();
      if (result[at].tree == ReductionTrees::none) continue;
      held.element = result[at].element;
      for (int r = 0; r < problem_.world; ++r) {
        if (trees_.has(result[at].tree, r)) held.contributors.push_back(r);
      }
    }
  }
  return all;
}

Verdict verified(const Problem& problem, std::span<const Program> programs, Aliasing aliasing,
                 Contents* contents) {
  Problem first = problem;
  first.rank = 0;
  validate(first);
  if (aliasing == Aliasing::in_place) in_place_offset(first);
  std::optional<SymbolicRun> run;
  Verdict verdict;
  try {
    if (programs.size() != static_cast<std::size_t>(problem.world)) {
      reject("expected ", problem.world, " programs, one a rank, got ", programs.size());
    }
    verdict = run.emplace(problem, programs, aliasing).run();
  } catch (const Rejected& rejected) {
    verdict = {.ok = false, .why = rejected.why};
  }
  if (contents != nullptr) *contents = run ? run->contents() : Contents{};
  return verdict;
}

}  // namespace

Verdict verify(const Problem& problem, std::span<const Program> programs, Aliasing aliasing) {
  return verified(problem, programs, aliasing, nullptr);
}

Verdict verify(const Problem& problem, std::span<const Program> programs, Aliasing aliasing,
               Contents& contents) {
  return verified(problem, programs, aliasing, &contents);
}

}  // namespace peal::comm
