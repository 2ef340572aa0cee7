// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/schedule/flat_program.h>

#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

[[noreturn]] void refuse_to_flatten(const std::string& what) {
  throw std::invalid_argument("a program to be flattened has " + what);
}

// A step with its spans.
struct Draft {
  FlatStep step{};
  std::vector<FlatSpan> spans;  // targets first
};

bool moves(const Draft& draft) {
  return draft.step.kind == FlatStep::Kind::copy || draft.step.kind == FlatStep::Kind::combine;
}

// The parts of the problem that a rank has in a buffer, one after the other.
std::vector<int> parts_of(const Problem& problem, int owner, Buffer buffer) {
  const int p = problem.world;
  std::vector<int> all(static_cast<std::size_t>(p));
  std::iota(all.begin(), all.end(), 0);
  switch (problem.what) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
      return {0};
    case Collective::all_gather:
    case Collective::gather:
      return buffer == Buffer::in ? std::vector<int>{owner} : all;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return buffer == Buffer::in ? all : std::vector<int>{owner};
    case Collective::all_to_all:
      for (int& part : all) part = buffer == Buffer::in ? owner * p + part : part * p + owner;
      return all;
    case Collective::barrier:
      break;
  }
  return {};
}

class Flattening {
 public:
  Flattening(const Problem& problem, std::int64_t align) : problem_(problem) {
    flat_.align = align;
    if (problem.world > FlatProgram::most_ranks) {
      refuse_to_flatten(std::to_string(problem.world) + " ranks, at most " +
                        std::to_string(FlatProgram::most_ranks) + " can be");
    }
  }

  // The steps of rounds first .. of a plan.
  std::vector<Draft> draft(const StripPlan& made, std::size_t first, std::size_t last);
  // Puts them behind the others, and what comes again into loops.
  void put(std::vector<Draft> drafts);
  void put_choice() { put_step({.kind = FlatStep::Kind::choose}); }
  void stop() { put_step({.kind = FlatStep::Kind::stop}); }
  // What the choice goes on with begins here.
  void land(int choice) { flat_.step[choice].next = static_cast<std::uint16_t>(flat_.steps); }
  int steps() const { return flat_.steps; }
  FlatProgram finish(std::int64_t room) {
    if (room > std::numeric_limits<std::int32_t>::max()) refuse_to_flatten("too large a room");
    flat_.room = room;
    return flat_;
  }

 private:
  void put_step(const FlatStep& step) {
    if (flat_.steps == FlatProgram::most_steps) refuse_to_flatten("too many steps");
    flat_.step[flat_.steps++] = step;
  }
  void put_draft(const Draft& draft);
  Draft draft_move(const std::vector<Span>& targets, const std::vector<Span>& sources,
                   std::int64_t strip);
  void hear(Draft& meeting);
  std::uint16_t number_of(int part);

  const Problem& problem_;
  FlatProgram flat_{};
  std::vector<int> parts_;  // of the problem, by number
  unsigned told_ = 0;       // ranks that were signalled, and not heard since
};

std::uint16_t Flattening::number_of(int part) {
  const auto found = std::ranges::find(parts_, part);
  const auto number = static_cast<std::uint16_t>(found - parts_.begin());
  if (found == parts_.end()) {
    if (flat_.parts == FlatProgram::most_parts) refuse_to_flatten("too many parts");
    parts_.push_back(part);
    flat_.count[flat_.parts++] = problem_.counts[static_cast<std::size_t>(part)];
  }
  return number;
}

// Every span in a buffer names the part and the place in its strip; all must name the same.
Draft Flattening::draft_move(const std::vector<Span>& targets, const std::vector<Span>& sources,
                             std::int64_t strip) {
  Draft draft;
  draft.step.kind = FlatStep::Kind::combine;
  draft.step.targets = static_cast<std::uint8_t>(targets.size());
  draft.step.sources = static_cast<std::uint8_t>(sources.size());
  draft.step.count = sources.front().count;
  std::optional<std::pair<int, std::int64_t>> elements;  // part, and where in its strip
  const auto put = [&](const Span& span, bool target) {
    const int owner = span.owner == self ? problem_.rank : span.owner;
    if (span.buffer == Buffer::scratch)
      refuse_to_flatten("a step in scratch outside of a combination");
    if (target && span.buffer == Buffer::in) refuse_to_flatten("a step that writes `in`");
    const auto by = static_cast<std::uint8_t>(owner);
    if (span.buffer == Buffer::room) {
      draft.spans.push_back({span.at, static_cast<std::int32_t>(span.at), by, span.buffer});
      return;
    }
    const std::vector<int> parts = parts_of(problem_, owner, span.buffer);
    const auto which = static_cast<std::size_t>(span.at / strip);
    const std::int64_t at = span.at % strip;
    if (which >= parts.size() || at + span.count > strip) refuse_to_flatten("a span of two parts");
    const std::pair here{parts[which], at};
    if (elements && *elements != here)
      refuse_to_flatten("a step that moves elements to others' places");
    elements = here;
    std::int64_t before = 0;
    for (std::size_t i = 0; i < which; ++i) {
      before += problem_.counts[static_cast<std::size_t>(parts[i])];
    }
    draft.spans.push_back({before, 0, by, span.buffer});
  };
  for (const Span& span : targets) put(span, true);
  for (const Span& span : sources) put(span, false);
  if (!elements) refuse_to_flatten("a step from room to room");
  draft.step.part = number_of(elements->first);
  draft.step.at = elements->second;
  return draft;
}

std::vector<Draft> Flattening::draft(const StripPlan& made, std::size_t first, std::size_t last) {
  const Plan& plan = *made.plan;
  std::vector<Draft> all;
  const auto meet = [&](const Round& round, bool signals, bool awaits) {
    Draft meeting;
    meeting.step.kind = FlatStep::Kind::meet;
    for (const Step& step : round) {
      const unsigned bit = step.peer < 0 ? 0 : 1u << step.peer;
      if (signals && step.kind == Kind::signal) {
        if ((told_ & bit) != 0)
          refuse_to_flatten("two signals to a rank without an await of it between");
        told_ |= bit;
        meeting.step.signals = static_cast<std::uint16_t>(meeting.step.signals | bit);
      }
    }
    for (const Step& step : round) {
      if (!awaits || step.kind != Kind::await) continue;
      told_ &= ~(1u << step.peer);
      meeting.step.awaits = static_cast<std::uint16_t>(meeting.step.awaits | 1u << step.peer);
    }
    if (meeting.step.signals != 0 || meeting.step.awaits != 0) all.push_back(meeting);
  };
  std::size_t combination = 0;
  for (std::size_t r = first; r < last;) {
    while (combination < plan.combinations.size() && plan.combinations[combination].first < r) {
      ++combination;
    }
    if (combination < plan.combinations.size() && plan.combinations[combination].first == r) {
      const Plan::Combination& each = plan.combinations[combination];
      all.push_back(draft_move(each.targets, each.sources, made.strip));
      all.back().step.fresh = true;
      r += each.rounds;
      continue;
    }
    const Round& round = plan.program.rounds[r++];
    std::vector<Draft> copies;
    for (const Step& step : round) {
      if (step.kind == Kind::signal || step.kind == Kind::await) continue;
      if (step.kind != Kind::copy)
        refuse_to_flatten("a " + std::string(name(step.kind)) + " by itself");
      copies.push_back(draft_move({step.dst}, {step.src}, made.strip));
      copies.back().step.kind = FlatStep::Kind::copy;
    }
    meet(round, true, copies.empty());
    if (copies.empty()) continue;
    copies.front().step.fresh = true;
    all.insert(all.end(), copies.begin(), copies.end());
    meet(round, false, true);
  }
  if (told_ != 0 && last == plan.program.rounds.size()) {
    refuse_to_flatten("a signal to a rank that it does not hear of again");
  }
  return all;
}

void Flattening::put_draft(const Draft& draft) {
  FlatStep step = draft.step;
  step.first = static_cast<std::uint16_t>(flat_.spans);
  for (const FlatSpan& span : draft.spans) {
    if (flat_.spans == FlatProgram::most_spans) refuse_to_flatten("too many spans");
    flat_.span[flat_.spans++] = span;
  }
  put_step(step);
}

// `later` is `earlier` with elements that lie `stride` behind; spans in rooms may lie elsewhere
// where `rooms` is false.
bool follows(const Draft& earlier, const Draft& later, std::int64_t stride, bool rooms) {
  const FlatStep &a = earlier.step, &b = later.step;
  if (a.kind != b.kind || a.part != b.part || a.signals != b.signals || a.awaits != b.awaits ||
      a.targets != b.targets || a.sources != b.sources || a.count != b.count ||
      a.at + (moves(earlier) ? stride : 0) != b.at) {
    return false;
  }
  for (std::size_t i = 0; i < earlier.spans.size(); ++i) {
    const FlatSpan &x = earlier.spans[i], &y = later.spans[i];
    const bool room = x.buffer == Buffer::room;
    if (x.owner != y.owner || x.buffer != y.buffer || (x.at != y.at && (rooms || !room))) {
      return false;
    }
  }
  return true;
}

// How often `length` drafts from `first` on come one after the other.
std::size_t times(const std::vector<Draft>& drafts, std::size_t first, std::size_t length,
                  std::int64_t stride) {
  std::size_t k = 1;
  const auto comes_again = [&] {
    for (std::size_t j = 0; j < length; ++j) {
      const std::size_t at = first + k * length + j;
      if (at >= drafts.size() || !follows(drafts[at - length], drafts[at], stride, false)) {
        return false;
      }
      if (k >= 2 && !follows(drafts[at - 2 * length], drafts[at], 2 * stride, true)) return false;
    }
    return true;
  };
  while (comes_again()) ++k;
  return k;
}

void Flattening::put(std::vector<Draft> drafts) {
  for (std::size_t i = 0; i < drafts.size();) {
    std::size_t best = 0, often = 1;
    std::int64_t stride = 0;
    const std::size_t most =
        std::min<std::size_t>((drafts.size() - i) / 2, FlatProgram::most_steps);
    for (std::size_t length = 1; length <= most; ++length) {
      std::int64_t by = 0;
      for (std::size_t j = i; j < i + length && by == 0; ++j) {
        if (moves(drafts[j])) by = drafts[j + length].step.at - drafts[j].step.at;
      }
      if (by <= 0 || (flat_.stride != 0 && by != flat_.stride)) continue;
      const std::size_t k = times(drafts, i, length, by);
      if ((k - 1) * length > (often - 1) * best) {
        best = length;
        often = k;
        stride = by;
      }
    }
    if (often == 1) {
      put_draft(drafts[i++]);
      continue;
    }
    flat_.stride = stride;
    const int begin = flat_.steps;
    for (std::size_t j = i; j < i + best; ++j) {
      Draft& each = drafts[j];
      const Draft& odd = drafts[j + best];
      for (std::size_t s = 0; s < each.spans.size(); ++s) each.spans[s].odd = odd.spans[s].odd;
      each.step.fresh = each.step.fresh || odd.step.fresh;
      put_draft(each);
    }
    put_step({.kind = FlatStep::Kind::again,
              .next = static_cast<std::uint16_t>(begin),
              .count = static_cast<std::int64_t>(often)});
    i += best * often;
  }
}

}  // namespace

FlatProgram flatten(const Problem& problem, std::int64_t align, const StripPlan& plan,
                    const StripPlan& otherwise) {
  Flattening flat(problem, align);
  const std::size_t rounds = plan.plan->program.rounds.size();
  std::int64_t room = plan.plan->program.room;
  if (otherwise.plan == nullptr) {
    flat.put(flat.draft(plan, 0, rounds));
    flat.stop();
    return flat.finish(room);
  }
  if (rounds == 0 || otherwise.plan->program.rounds.empty() ||
      plan.plan->program.rounds[0] != otherwise.plan->program.rounds[0]) {
    refuse_to_flatten("another first round than what goes on instead");
  }
  flat.put(flat.draft(plan, 0, 1));
  const int choice = flat.steps();
  flat.put_choice();
  flat.put(flat.draft(plan, 1, rounds));
  flat.stop();
  flat.land(choice);
  flat.put(flat.draft(otherwise, 1, otherwise.plan->program.rounds.size()));
  flat.stop();
  room = std::max(room, otherwise.plan->program.room);
  return flat.finish(room);
}

}  // namespace peal::comm
