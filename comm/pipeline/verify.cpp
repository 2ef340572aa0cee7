// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/pipeline/simulate.h>
#include <peal/comm/pipeline/verify.h>

#include <algorithm>
#include <deque>
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
  bool activation_here = false, gradient_here = false;  // what F, and what B or I, waits for
  bool forward_sent = false, gradient_sent = false, activation_asked = false,
       gradient_asked = false;
};

class Proof {
 public:
  Proof(const Problem& problem, std::span<const Program> programs)
      : problem_(problem),
        programs_(programs),
        cells_(static_cast<std::size_t>(problem.parts() * problem.micro_batches)),
        queues_(static_cast<std::size_t>(problem.stages * problem.stages)),
        next_(static_cast<std::size_t>(problem.stages)),
        stash_(next_.size()) {}

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
        if (a.part > 0 && !c.activation_here) return false;
        c.forward = true;
        keep(rank);
        if (a.part < problem_.last_part()) hand_over(rank, a);
        return true;
      case Pass::backward:
      case Pass::input:
        if (c.gradient) refuse(rank, "an action that was not run before");
        if (!c.forward) refuse(rank, "its forward before it");
        if (a.part < problem_.last_part() && !c.gradient_here) return false;
        c.gradient = true;
        c.backward_in_one = a.pass == Pass::backward;
        if (c.backward_in_one) release(rank, c);
        if (a.part > 0) hand_over(rank, a);
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

  // To the next part on the same rank; what another rank needs has to be sent.
  void hand_over(int rank, const Action& a) {
    if (receiver(problem_, a) == no_rank) arrive(rank, a);
  }
  void arrive(int rank, const Action& a) {
    if (a.pass == Pass::forward) {
      cell(a.part + 1, a.micro_batch).activation_here = true;
    } else {
      cell(a.part - 1, a.micro_batch).gradient_here = true;
    }
    wake_.push_back(rank);
  }

  void post(int rank, const Step& step) {
    const Action& a = step.action;
    const bool sends = step.verb == Verb::send, forward = a.pass == Pass::forward;
    const int from = problem_.rank_of(a.part), to = receiver(problem_, a);
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
    bool& posted = forward ? (sends ? c.forward_sent : c.activation_asked)
                           : (sends ? c.gradient_sent : c.gradient_asked);
    if (posted) refuse(rank, "a message that was not posted before");
    posted = true;
    queue(rank, peer).push_back(step);
    move(rank, peer);
  }

  void move(int a, int b) {
    std::deque<Step>&mine = queue(a, b), &others = queue(b, a);
    while (!mine.empty() && !others.empty()) {
      const Step &one = mine.front(), &other = others.front();
      if (one.verb == other.verb || one.action != other.action) {
        throw Refused{where(a) + ": the messages of ranks " + std::to_string(a) + " and " +
                      std::to_string(b) + " do not meet: the first that rank " + std::to_string(a) +
                      " has posted is " + text(one) + ", that of rank " + std::to_string(b) + " " +
                      text(other)};
      }
      arrive(one.verb == Verb::recv ? a : b, one.action);
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
