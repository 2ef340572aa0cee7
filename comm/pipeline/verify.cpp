// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/pipeline/simulate.h>
#include <peal/comm/pipeline/verify.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace peal::comm::pipeline {
namespace {

struct Refused {
  std::string why;
};

// What has happened to one micro-batch in one part. Its rank alone touches it, but for what comes.
struct Cell {
  bool forward = false, gradient = false, weight = false;  // done
  bool backward_in_one = false;
};

// What leads from a part to the next, or to that of a skip.
struct Link {
  int from, to;
};

// How far one micro-batch has come on a link: an activation one way, a gradient the other.
struct Passage {
  bool here = false, sent = false, asked = false;
};

class Proof {
 public:
  Proof(const Problem& problem, std::span<const Program> programs)
      : problem_(problem),
        programs_(programs),
        cells_(static_cast<std::size_t>(problem.parts() * problem.micro_batches)),
        links_(links_of(problem)),
        ways_(links_.size() * static_cast<std::size_t>(2 * problem.micro_batches)),
        into_(static_cast<std::size_t>(problem.parts())),
        out_of_(into_.size()),
        queues_(static_cast<std::size_t>(problem.stages * problem.stages)),
        next_(static_cast<std::size_t>(problem.stages)),
        stash_(next_.size()) {
    for (Index link = 0; link < links_.size(); ++link) {
      into_[index(links_[link].to)].push_back(link);
      out_of_[index(links_[link].from)].push_back(link);
    }
  }

  void prove() {
    if (programs_.size() != next_.size()) {
      throw Refused{"expected a program for each of " + std::to_string(problem_.stages) +
                    " stages, got " + std::to_string(programs_.size())};
    }
    for (int rank = 0; rank < problem_.stages; ++rank) wake_.push_back(rank);
    while (!wake_.empty()) {
      const int rank = wake_.front();
      wake_.pop_front();
      go_on(rank);
    }
    check_ended();
  }

 private:
  using Index = std::size_t;
  static Index index(int i) { return static_cast<Index>(i); }

  bool is_action(const Action& a) const {
    return a.pass <= Pass::weight && a.part >= 0 && a.part < problem_.parts() &&
           a.micro_batch >= 0 && a.micro_batch < problem_.micro_batches;
  }
  Cell& cell(int part, int micro_batch) {
    return cells_[index(part * problem_.micro_batches + micro_batch)];
  }
  Cell& cell(const Action& a) { return cell(a.part, a.micro_batch); }
  static std::vector<Link> links_of(const Problem& problem) {
    std::vector<Link> links;
    for (int part = 0; part < problem.last_part(); ++part) links.push_back({part, part + 1});
    for (const Skip& skip : problem.skips) links.push_back({skip.from, skip.to});
    return links;
  }
  Passage& passage(Index link, const Action& a, bool forward) {
    return ways_[(2 * link + (forward ? 1 : 0)) * index(problem_.micro_batches) +
                 index(a.micro_batch)];
  }
  bool all_here(const std::vector<Index>& links, const Action& a, bool forward) {
    return std::ranges::all_of(links, [&](Index link) { return passage(link, a, forward).here; });
  }
  // Which the step's message goes along; none where there is no such skip.
  std::optional<Index> link_of(const Step& step) const {
    const bool forward = step.action.pass == Pass::forward;
    const int mine = step.action.part;
    const int other = step.skip != no_part ? step.skip : mine + (forward ? 1 : -1);
    for (Index link = 0; link < links_.size(); ++link) {
      const bool skips = link >= index(problem_.last_part());
      const auto [from, to] = links_[link];
      if (skips == (step.skip != no_part) && from == (forward ? mine : other) &&
          to == (forward ? other : mine)) {
        return link;
      }
    }
    return {};
  }
  // The messages that `rank` has posted to `peer` and that have not moved.
  std::deque<Step>& queue(int rank, int peer) {
    return queues_[index(rank * problem_.stages + peer)];
  }

  std::string where(int rank) const {
    const Index step = next_[index(rank)];
    return "rank " + std::to_string(rank) + ", step " + std::to_string(step) + " (" +
           text(programs_[index(rank)][step]) + ")";
  }
  [[noreturn]] void refuse(int rank, const std::string& expected) const {
    throw Refused{where(rank) + ": expected " + expected};
  }

  void go_on(int rank) {
    const Program& program = programs_[index(rank)];
    for (Index& step = next_[index(rank)]; step < program.size(); ++step) {
      if (!is_action(program[step].action)) {
        refuse(rank, "one of " + std::to_string(problem_.parts()) + " parts and of " +
                         std::to_string(problem_.micro_batches) + " micro-batches");
      }
      if (program[step].verb == Verb::run) {
        if (program[step].peer != no_rank) refuse(rank, "an action without a peer");
        if (program[step].skip != no_part) refuse(rank, "an action for no skip");
        if (!run(rank, program[step].action)) return;
      } else if (program[step].verb > Verb::recv) {
        refuse(rank, "a step that is one of run, send and recv");
      } else {
        post(rank, program[step]);
      }
    }
  }

  // False where what it needs is not there yet.
  bool run(int rank, const Action& a) {
    const int owner = problem_.rank_of(a.part);
    if (owner != rank) refuse(rank, "a part of its own, got one of rank " + std::to_string(owner));
    Cell& c = cell(a);
    switch (a.pass) {
      case Pass::forward:
        if (c.forward) refuse(rank, "an action that was not run before");
        if (!all_here(into_[index(a.part)], a, true)) return false;
        c.forward = true;
        keep(rank);
        hand_over(rank, out_of_[index(a.part)], a, true);
        return true;
      case Pass::backward:
      case Pass::input:
        if (c.gradient) refuse(rank, "an action that was not run before");
        if (!c.forward) refuse(rank, "its forward before it");
        if (!all_here(out_of_[index(a.part)], a, false)) return false;
        c.gradient = true;
        c.backward_in_one = a.pass == Pass::backward;
        if (c.backward_in_one) release(rank, c);
        hand_over(rank, into_[index(a.part)], a, false);
        return true;
      case Pass::weight:
        if (c.weight) refuse(rank, "an action that was not run before");
        if (!c.gradient) refuse(rank, "the gradient of its input (I) before it");
        release(rank, c);
        return true;
    }
    return true;
  }

  void keep(int rank) {
    const int bound = stash_bound(problem_, rank);
    if (++stash_[index(rank)] > bound) {
      refuse(rank, "at most " + std::to_string(bound) + " in its stash");
    }
  }
  void release(int rank, Cell& c) {
    c.weight = true;
    --stash_[index(rank)];
  }

  // To parts on the same rank; what another rank needs has to be sent.
  void hand_over(int rank, const std::vector<Index>& links, const Action& a, bool forward) {
    for (const Index link : links) {
      const auto [from, to] = links_[link];
      if (problem_.rank_of(from) != problem_.rank_of(to)) continue;
      passage(link, a, forward).here = true;
      wake_.push_back(rank);
    }
  }

  void post(int rank, const Step& step) {
    const Action& a = step.action;
    const bool sends = step.verb == Verb::send, forward = a.pass == Pass::forward;
    const std::optional<Index> link = link_of(step);
    const int from = problem_.rank_of(a.part);
    const int to = link ? receiver(problem_, a, step.skip) : no_rank;
    if (to == no_rank) refuse(rank, "a result that another rank needs");
    const int me = sends ? from : to, peer = sends ? to : from;
    if (rank != me || step.peer != peer) {
      refuse(rank,
             "this step on rank " + std::to_string(me) + ", with rank " + std::to_string(peer));
    }
    Cell& c = cell(a);
    const bool made = forward ? c.forward : c.gradient;
    if (sends && !(made && (forward || c.backward_in_one == (a.pass == Pass::backward)))) {
      refuse(rank, "to have run it before");
    }
    Passage& way = passage(*link, a, forward);
    bool& posted = sends ? way.sent : way.asked;
    if (posted) refuse(rank, "a message that was not posted before");
    posted = true;
    queue(rank, peer).push_back(step);
    move(rank, peer);
  }

  void move(int a, int b) {
    std::deque<Step>&mine = queue(a, b), &others = queue(b, a);
    while (!mine.empty() && !others.empty()) {
      const Step &one = mine.front(), &other = others.front();
      if (one.verb == other.verb || one.action != other.action || one.skip != other.skip) {
        throw Refused{where(a) + ": the messages of ranks " + std::to_string(a) + " and " +
                      std::to_string(b) + " do not meet: the first that rank " + std::to_string(a) +
                      " has posted is " + text(one) + ", that of rank " + std::to_string(b) + " " +
                      text(other)};
      }
      passage(*link_of(one), one.action, one.action.pass == Pass::forward).here = true;
      wake_.push_back(one.verb == Verb::recv ? a : b);
      mine.pop_front();
      others.pop_front();
    }
  }

  void check_ended() {
    for (int rank = 0; rank < problem_.stages; ++rank) {
      if (next_[index(rank)] == programs_[index(rank)].size()) continue;
      throw Refused{"deadlock: " + where(rank) + " waits for what never comes"};
    }
    for (int rank = 0; rank < problem_.stages; ++rank) {
      for (int peer = 0; peer < problem_.stages; ++peer) {
        if (queue(rank, peer).empty()) continue;
        throw Refused{"rank " + std::to_string(rank) +
                      " never ends: " + text(queue(rank, peer).front()) + " meets nothing"};
      }
    }
    for (int part = 0; part < problem_.parts(); ++part) {
      for (int i = 0; i < problem_.micro_batches; ++i) {
        if (cell(part, i).weight) continue;
        throw Refused{"rank " + std::to_string(problem_.rank_of(part)) +
                      ": expected a whole backward of part " + std::to_string(part) +
                      " for micro-batch " + std::to_string(i)};
      }
    }
  }

  const Problem& problem_;
  std::span<const Program> programs_;
  std::vector<Cell> cells_;  // by part and micro-batch
  const std::vector<Link> links_;
  std::vector<Passage> ways_;                      // by link, direction and micro-batch
  std::vector<std::vector<Index>> into_, out_of_;  // links, by part
  std::vector<std::deque<Step>> queues_;
  std::vector<Index> next_;  // step, by rank
  std::vector<int> stash_;
  std::deque<int> wake_;  // ranks that may be able to go on
};

}  // namespace

Verdict verify(const Problem& problem, std::span<const Program> programs) {
  validate(problem);
  try {
    Proof(problem, programs).prove();
    return {true, {}};
  } catch (const Refused& refused) {
    return {false, refused.why};
  }
}

}  // namespace peal::comm::pipeline
