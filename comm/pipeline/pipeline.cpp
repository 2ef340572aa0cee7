// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/pipeline/orders.h>
#include <peal/comm/pipeline/pipeline.h>
#include <peal/comm/pipeline/simulate.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace peal::comm::pipeline {
namespace {

constexpr std::string_view kind_names[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};

[[noreturn]] void refuse(const Problem& problem, const std::string& expected, int got) {
  throw std::invalid_argument("pipeline " + std::string(name(problem.kind)) + ": expected " +
                              expected + ", got " + std::to_string(got));
}

// A result that another rank needs. Its places are counted in actions of a rank: it is sent before
// the sender's action `sent`, and needed by the receiver's action `needed`.
struct Message {
  Action action;
  int from, to, skip;
  double made;
  std::size_t sent, needed;
};

// The part that a result is for.
int other_end(const Action& action, int skip) {
  if (skip != no_part) return skip;
  return action.part + (action.pass == Pass::forward ? 1 : -1);
}

// The action that the result is for; backward in two or in one, as the schedule has it.
Action consumer(const Problem& problem, const Action& made, int skip) {
  Action next = made;
  next.part = other_end(made, skip);
  if (made.pass != Pass::forward) {
    next.pass = splits_backward(problem.kind) ? Pass::input : Pass::backward;
  }
  return next;
}

// In the order in which they are made: in that order both sides post them, so no two ranks wait for
// each other. Times are those of nominal costs, for some such order must be agreed upon.
std::vector<Message> messages(const Problem& problem, const std::vector<Program>& programs) {
  const Run nominal = simulate(problem, programs, Costs{});
  std::map<std::tuple<Pass, int, int>, std::size_t> place;  // of an action in its rank's program
  const auto key = [](const Action& a) { return std::tuple(a.pass, a.part, a.micro_batch); };
  for (const Program& program : programs) {
    for (std::size_t k = 0; k < program.size(); ++k) place[key(program[k].action)] = k;
  }
  std::vector<Message> all;
  for (int rank = 0; rank < problem.stages; ++rank) {
    const auto& times = nominal.ranks[static_cast<std::size_t>(rank)];
    for (std::size_t k = 0; k < times.size(); ++k) {
      const Action& action = times[k].action;
      for (const int skip : takers(problem, action)) {
        const int to = receiver(problem, action, skip);
        if (to == no_rank) continue;
        all.push_back({action, rank, to, skip, times[k].end, k + 1,
                       place.at(key(consumer(problem, action, skip)))});
      }
    }
  }
  std::ranges::stable_sort(all, {}, &Message::made);
  return all;
}

// The messages of two ranks, in their order, into the program of one: before which of its actions
// each is posted. Sends follow what makes them; a receive stands before the action before the one
// that needs it, but not past the next send, nor ahead of the last.
std::vector<std::size_t> places(const std::vector<const Message*>& queue, int rank) {
  std::vector<std::size_t> at(queue.size());
  for (std::size_t i = queue.size(); i-- > 0;) {
    const Message& message = *queue[i];
    const bool sends = message.from == rank;
    at[i] = sends ? message.sent : message.needed - std::min<std::size_t>(1, message.needed);
    if (!sends && i + 1 < queue.size()) at[i] = std::min(at[i], at[i + 1]);
  }
  for (std::size_t i = 1; i < at.size(); ++i) at[i] = std::max(at[i], at[i - 1]);
  return at;
}

}  // namespace

std::string_view name(Kind kind) { return kind_names[static_cast<std::size_t>(kind)]; }

Kind kind_named(std::string_view name) {
  const auto found = std::ranges::find(kind_names, name);
  if (found != std::end(kind_names)) return all_kinds[found - std::begin(kind_names)];
  std::string known;
  for (const std::string_view one : kind_names) known += " " + std::string(one);
  throw std::invalid_argument("there is no pipeline schedule '" + std::string(name) +
                              "'; there are:" + known);
}

int Problem::rank_of(int part) const {
  if (kind == Kind::zb_v) return std::min(part, last_part() - part);
  return part % stages;
}

void validate(const Problem& problem) {
  if (problem.stages < 1) refuse(problem, "at least one stage", problem.stages);
  if (problem.micro_batches < 1) {
    refuse(problem, "at least one micro-batch", problem.micro_batches);
  }
  switch (problem.kind) {
    case Kind::interleaved:
      if (problem.chunks < 2) {
        refuse(problem, "at least 2 chunks of a stage (1f1b has one)", problem.chunks);
      }
      break;
    case Kind::zb_v:
      if (problem.chunks != 2) refuse(problem, "2 chunks of a stage", problem.chunks);
      break;
    default:
      if (problem.chunks != 1) {
        refuse(problem, "one chunk of a stage (interleaved and zb-v have several)", problem.chunks);
      }
  }
  for (const Skip& skip : problem.skips) {
    const std::string one = "a skip from part " + std::to_string(skip.from);
    if (skip.from < 0) refuse(problem, "skips from part 0 on", skip.from);
    if (skip.to < skip.from + 2 || skip.to > problem.last_part()) {
      refuse(
          problem,
          one + " to go past the next, to part " + std::to_string(problem.last_part()) + " at most",
          skip.to);
    }
    const auto times = std::ranges::count(problem.skips, skip);
    if (times > 1) {
      refuse(problem, one + " to part " + std::to_string(skip.to) + " once",
             static_cast<int>(times));
    }
  }
}

Problem make_problem(Kind kind, int stages, int micro_batches, int chunks) {
  const int least = kind == Kind::interleaved || kind == Kind::zb_v ? 2 : 1;
  const Problem problem{kind, stages, micro_batches, chunks == 0 ? least : chunks};
  validate(problem);
  return problem;
}

std::string text(const Action& action) {
  constexpr std::string_view letters = "FBIW";
  const auto pass = static_cast<std::size_t>(action.pass);
  return std::to_string(action.part) + (pass < letters.size() ? letters[pass] : '?') +
         std::to_string(action.micro_batch);
}

std::string text(const Action& action, const Problem& problem) {
  const std::string whole = text(action);
  return problem.chunks > 1 ? whole : whole.substr(whole.find_first_of("FBIW?"));
}

std::string text(const Step& step) {
  const std::string action = text(step.action);
  const std::string skip = step.skip == no_part ? "" : " for " + std::to_string(step.skip);
  switch (step.verb) {
    case Verb::run:
      return action;
    case Verb::send:
      return "send " + action + " to " + std::to_string(step.peer) + skip;
    case Verb::recv:
      return "recv " + action + " from " + std::to_string(step.peer) + skip;
  }
  return action;
}

std::vector<int> takers(const Problem& problem, const Action& action) {
  if (action.pass == Pass::weight) return {};
  std::vector<int> all{no_part};
  for (const Skip& skip : problem.skips) {
    const bool forward = action.pass == Pass::forward;
    if ((forward ? skip.from : skip.to) == action.part)
      all.push_back(forward ? skip.to : skip.from);
  }
  return all;
}

int receiver(const Problem& problem, const Action& action, int skip) {
  if (action.pass == Pass::weight) return no_rank;
  const int next = other_end(action, skip);
  if (next < 0 || next > problem.last_part()) return no_rank;
  const int to = problem.rank_of(next);
  return to == problem.rank_of(action.part) ? no_rank : to;
}

std::vector<Program> schedule(const Problem& problem) {
  validate(problem);
  std::vector<Program> runs;
  for (int rank = 0; rank < problem.stages; ++rank) {
    Program& program = runs.emplace_back();
    for (const Action& action : order(problem, rank)) program.push_back({Verb::run, action});
  }
  const std::vector<Message> all = messages(problem, runs);
  std::map<std::pair<int, int>, std::vector<const Message*>> queues;
  for (const Message& message : all)
    queues[std::minmax(message.from, message.to)].push_back(&message);

  std::vector<Program> programs;
  for (int rank = 0; rank < problem.stages; ++rank) {
    const Program& actions = runs[static_cast<std::size_t>(rank)];
    std::vector<Program> before(actions.size() + 1);
    for (const auto& [ranks, queue] : queues) {
      if (ranks.first != rank && ranks.second != rank) continue;
      const int peer = ranks.first == rank ? ranks.second : ranks.first;
      const std::vector<std::size_t> at = places(queue, rank);
      for (std::size_t i = 0; i < queue.size(); ++i) {
        const Verb verb = queue[i]->from == rank ? Verb::send : Verb::recv;
        before[at[i]].push_back({verb, queue[i]->action, peer, queue[i]->skip});
      }
    }
    Program& program = programs.emplace_back();
    for (std::size_t k = 0; k <= actions.size(); ++k) {
      program.insert(program.end(), before[k].begin(), before[k].end());
      if (k < actions.size()) program.push_back(actions[k]);
    }
  }
  return programs;
}

}  // namespace peal::comm::pipeline
