// SPDX-License-Identifier: Apache-2.0
#include "pipeline_judge.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <utility>

namespace peal::comm::pipeline::testing {
namespace {

using Number = std::uint64_t;

struct Bad {
  std::string why;
};

Number weight_of(int part) { return 2 * static_cast<Number>(part) + 3; }
Number data_of(int i) { return 0x9e3779b97f4a7c15u * static_cast<Number>(i + 1); }
Number forward_of(int part, Number x) { return (x ^ (x >> 9)) * weight_of(part) + 1; }
Number loss_gradient(Number y, int i) { return 5 * y + static_cast<Number>(i); }
Number input_gradient(int part, Number x, Number g) { return g * weight_of(part) + (x >> 3); }
Number weight_gradient(Number x, Number g) { return x * (g ^ (g >> 5)); }

// What goes past parts, and what its gradient is.
Number skip_of(Number x) { return (x >> 1) + 13; }
Number with_skip(Number x, Number skip) { return x + 11 * skip; }
Number skip_gradient(Number input_gradient) { return 11 * (input_gradient ^ 5); }
Number with_skip_gradient(Number g, Number skip) { return g + 17 * skip; }

struct Result {
  std::map<int, Number> losses, input_gradients;  // by micro-batch
  std::map<int, Number> weight_gradients;         // by part
  bool operator==(const Result&) const = default;
};

Result expected(const Problem& problem) {
  Result result;
  for (int i = 0; i < problem.micro_batches; ++i) {
    std::vector<Number> x, to_input(static_cast<std::size_t>(problem.parts()));
    Number y = data_of(i);
    for (int part = 0; part < problem.parts(); ++part) {
      for (const Skip& skip : problem.skips) {
        if (skip.to == part) y = with_skip(y, skip_of(x[static_cast<std::size_t>(skip.from)]));
      }
      x.push_back(y);
      y = forward_of(part, y);
    }
    result.losses[i] = y;
    Number g = loss_gradient(y, i);
    for (int part = problem.parts() - 1; part >= 0; --part) {
      for (const Skip& skip : problem.skips) {
        if (skip.from != part) continue;
        g = with_skip_gradient(g, skip_gradient(to_input[static_cast<std::size_t>(skip.to)]));
      }
      const Number kept = x[static_cast<std::size_t>(part)];
      result.weight_gradients[part] += weight_gradient(kept, g);
      g = to_input[static_cast<std::size_t>(part)] = input_gradient(part, kept, g);
    }
    result.input_gradients[i] = g;
  }
  return result;
}

// An activation or a gradient, by the part that makes it, and that of the skip that it is for.
using Label = std::tuple<bool, int, int, int>;
Label label(const Action& a, int skip = no_part) {
  return {a.pass == Pass::forward, a.part, skip, a.micro_batch};
}

struct Entry {
  Number x = 0, g = 0;
  bool has_gradient = false;
};
struct Post {
  bool sends;
  Label label;
  Number value;
};
// What two ranks have posted to each other that has not moved: of the lower one, and of the other.
struct Line {
  std::deque<Post> low, high;
  bool can_move() const {
    return !low.empty() && !high.empty() && low.front().sends != high.front().sends;
  }
};
struct Rank {
  std::size_t next = 0;
  std::map<Label, Number> here, made;  // what came, or is its own; what it may send
  std::map<std::pair<int, int>, Entry> stash;
  int most = 0;
};

class World {
 public:
  World(const Problem& problem, std::span<const Program> programs, std::span<const int> room,
        bool one_queue)
      : problem_(problem), programs_(programs), room_(room), one_queue_(one_queue) {
    ranks_.resize(programs.size());
  }

  bool can_step(std::size_t rank) const {
    const Rank& r = ranks_[rank];
    if (r.next == programs_[rank].size()) return false;
    const Step& step = programs_[rank][r.next];
    if (step.verb != Verb::run) return true;
    const Action& a = step.action;
    if (a.pass == Pass::weight) return true;
    const bool forward = a.pass == Pass::forward;
    for (const Skip& skip : problem_.skips) {
      const auto [from, to] = skip;
      if (a.part == (forward ? to : from) &&
          !r.here.contains({forward, forward ? from : to, a.part, a.micro_batch})) {
        return false;
      }
    }
    if (forward) return a.part <= 0 || r.here.contains({true, a.part - 1, no_part, a.micro_batch});
    return a.part >= problem_.last_part() ||
           r.here.contains({false, a.part + 1, no_part, a.micro_batch});
  }

  void step(std::size_t rank) {
    Rank& r = ranks_[rank];
    const Step& step = programs_[rank][r.next++];
    if (step.verb != Verb::run) return post(static_cast<int>(rank), step);
    const Action& a = step.action;
    const bool exists = a.part >= 0 && a.part < problem_.parts() && a.micro_batch >= 0 &&
                        a.micro_batch < problem_.micro_batches;
    if (!exists || problem_.rank_of(a.part) != static_cast<int>(rank)) {
      throw Bad{"rank " + std::to_string(rank) + " has nothing to run for " + text(a)};
    }
    if (a.pass == Pass::forward) return forward(rank, a);
    const auto entry = r.stash.find({a.part, a.micro_batch});
    if (entry == r.stash.end()) throw Bad{text(a) + " has nothing in the stash"};
    Entry& e = entry->second;
    if (a.pass != Pass::weight) {
      const int last = problem_.last_part();
      e.g = a.part == last ? loss_gradient(forward_of(last, e.x), a.micro_batch)
                           : take(r, {false, a.part + 1, no_part, a.micro_batch});
      for (const Skip& skip : problem_.skips) {
        if (skip.from != a.part) continue;
        e.g = with_skip_gradient(e.g, take(r, {false, skip.to, a.part, a.micro_batch}));
      }
      e.has_gradient = true;
      const Number to_input = input_gradient(a.part, e.x, e.g);
      for (const Skip& skip : problem_.skips) {
        if (skip.to == a.part) give(r, a, skip_gradient(to_input), skip.from);
      }
      give(r, a, to_input);
    }
    if (a.pass == Pass::input) return;
    if (!e.has_gradient) throw Bad{text(a) + " has no gradient"};
    result_.weight_gradients[a.part] += weight_gradient(e.x, e.g);
    r.stash.erase(entry);
  }

  std::vector<Line*> movable() {
    std::vector<Line*> all;
    for (auto& [ends, line] : lines_) {
      if (line.can_move()) all.push_back(&line);
    }
    return all;
  }

  // To where it goes, under the label that the receiver has for it.
  void move(Line& line) {
    const Post low = line.low.front(), high = line.high.front();
    line.low.pop_front();
    line.high.pop_front();
    const auto ends = std::ranges::find_if(lines_, [&](auto& l) { return &l.second == &line; });
    const auto [a, b, way] = ends->first;
    const int to = low.sends ? b : a;
    const Post &sent = low.sends ? low : high, &asked = low.sends ? high : low;
    ranks_[static_cast<std::size_t>(to)].here[asked.label] = sent.value;
  }

  void check_ended() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].next < programs_[r].size()) {
        throw Bad{"rank " + std::to_string(r) + " is stuck before " +
                  text(programs_[r][ranks_[r].next])};
      }
    }
    for (const auto& [ends, line] : lines_) {
      if (!line.low.empty() || !line.high.empty()) throw Bad{"a message never moves"};
    }
    if (result_ != expected(problem_)) throw Bad{"wrong losses or gradients"};
  }

  std::vector<int> stash() const {
    std::vector<int> all;
    for (const Rank& rank : ranks_) all.push_back(rank.most);
    return all;
  }

 private:
  void forward(std::size_t rank, const Action& a) {
    Rank& r = ranks_[rank];
    const int i = a.micro_batch;
    Number x = a.part == 0 ? data_of(i) : take(r, {true, a.part - 1, no_part, i});
    for (const Skip& skip : problem_.skips) {
      if (skip.to == a.part) x = with_skip(x, take(r, {true, skip.from, a.part, i}));
    }
    r.stash[{a.part, i}] = {x};
    r.most = std::max(r.most, static_cast<int>(r.stash.size()));
    if (!room_.empty() && r.most > room_[rank]) {
      throw Bad{"rank " + std::to_string(rank) + " is out of memory"};
    }
    for (const Skip& skip : problem_.skips) {
      if (skip.from == a.part) give(r, a, skip_of(x), skip.to);
    }
    give(r, a, forward_of(a.part, x));
  }

  static Number take(Rank& r, const Label& label) {
    const Number value = r.here.at(label);
    r.here.erase(label);
    return value;
  }

  void give(Rank& r, const Action& a, Number value, int skip = no_part) {
    const bool forward = a.pass == Pass::forward;
    const int next = skip != no_part ? skip : a.part + (forward ? 1 : -1);
    if (next > problem_.last_part()) {
      result_.losses[a.micro_batch] = value;
    } else if (next < 0) {
      result_.input_gradients[a.micro_batch] = value;
    } else if (problem_.rank_of(next) == problem_.rank_of(a.part)) {
      r.here[label(a, skip)] = value;
    } else {
      r.made[label(a, skip)] = value;
    }
  }

  void post(int rank, const Step& step) {
    const bool sends = step.verb == Verb::send;
    if (step.peer < 0 || step.peer >= problem_.stages || step.peer == rank) {
      throw Bad{text(step) + ": there is no such peer"};
    }
    Post post{sends, label(step.action, step.skip), 0};
    if (sends) {
      auto& made = ranks_[static_cast<std::size_t>(rank)].made;
      const auto found = made.find(post.label);
      if (found == made.end()) throw Bad{text(step) + ": there is nothing to send"};
      post.value = found->second;
      made.erase(found);
    }
    const auto [a, b] = std::minmax({rank, step.peer});
    const bool upwards = sends == (rank == a);
    Line& line = lines_[{a, b, !one_queue_ && upwards}];
    (rank == a ? line.low : line.high).push_back(post);
  }

  const Problem& problem_;
  std::span<const Program> programs_;
  std::span<const int> room_;
  bool one_queue_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, bool>, Line> lines_;
  Result result_;
};

std::vector<int> run(World& world, std::size_t ranks, std::mt19937_64& random, bool late) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (;;) {
    std::vector<std::size_t> ready;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (world.can_step(r)) ready.push_back(r);
    }
    const std::vector<Line*> lines = world.movable();
    if (ready.empty() && lines.empty()) break;
    const std::size_t of_lines = late && !ready.empty() ? 0 : lines.size();
    const std::size_t chosen = below(ready.size() + of_lines);
    if (chosen < ready.size()) {
      world.step(ready[chosen]);
    } else {
      world.move(*lines[chosen - ready.size()]);
    }
  }
  world.check_ended();
  return world.stash();
}

}  // namespace

Judgement judge(const Problem& problem, std::span<const Program> programs, std::uint64_t seed,
                std::span<const int> room) {
  std::mt19937_64 random(seed);
  Judgement judgement{true, {}, {}};
  for (const bool one_queue : {true, false}) {
    for (const bool late : {false, true}) {
      World world(problem, programs, room, one_queue);
      try {
        judgement.stash = run(world, programs.size(), random, late);
      } catch (const Bad& bad) {
        return {false, bad.why, {}};
      }
    }
  }
  return judgement;
}

}  // namespace peal::comm::pipeline::testing
