// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/draw/rows.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <stdexcept>
#include <utility>

namespace peal::comm {
namespace {

class Clock {
 public:
  explicit Clock(std::span<const Program> programs)
      : programs_(programs), ranks_(programs.size()) {}

  Rows run(Stuck stuck) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      ready_.push_back(static_cast<int>(rank));
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      begin_rounds(rank);
    }
    if (stuck == Stuck::show) {
      note_waiting();
      std::ranges::stable_sort(rows_.waiting, {}, &RowWaiting::rank);
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (stuck == Stuck::refuse && ranks_[r].round < programs_[r].rounds.size()) {
        throw std::invalid_argument("draw: rank " + std::to_string(r) + " never ends its round " +
                                    std::to_string(ranks_[r].round) +
                                    "; verify the programs first");
      }
    }
    std::ranges::stable_sort(rows_.events, {}, &RowEvent::time);
    return std::move(rows_);
  }

 private:
  struct Rank {
    std::size_t round = 0;
    int begin = 0, end = 0;  // rows of that round
    int open = 0;            // messages under way
  };
  struct Channel {
    std::deque<std::pair<int, const Step*>> sends, recvs;  // rank and step
  };

  void note_waiting() {
    for (const auto& [ranks, channel] : channels_) {
      for (const auto* posted : {&channel.sends, &channel.recvs}) {
        for (const auto& [r, step] : *posted) {
          rows_.waiting.push_back({rank(r).begin, r, step});
          rows_.count = std::max(rows_.count, rank(r).begin + 1);
        }
      }
    }
  }

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }

  void happen(int time, int from, int to, const Step* sends, const Step* receives) {
    rows_.events.push_back({time, from, to, sends, receives, from});
    rows_.count = std::max(rows_.count, time + 1);
    rank(from).end = std::max(rank(from).end, time);
    rank(to).end = std::max(rank(to).end, time);
  }

  void next_round(Rank& r) {
    ++r.round;
    r.begin = r.end = r.end + 1;
  }

  void act(int me, int time, const Step& step) {
    const auto owner = [me](const Span& span) { return span.owner == self ? me : span.owner; };
    rows_.events.push_back({time, owner(step.src), owner(step.dst), &step, &step, me});
    rows_.count = std::max(rows_.count, time + 1);
    rank(me).end = std::max(rank(me).end, time);
  }

  void begin_rounds(int me) {
    const auto& rounds = programs_[static_cast<std::size_t>(me)].rounds;
    for (Rank& r = rank(me); r.round < rounds.size(); next_round(r)) {
      const Round& round = rounds[r.round];
      r.open = 0;
      for (const Step& step : round) r.open += step.peer != nobody;
      const bool waits = r.open > 0;
      for (const Step& step : round) {
        if (step.peer == nobody) {
          act(me, r.begin, step);
        } else {
          post(me, step);
        }
      }
      if (waits) return;
    }
  }

  void post(int me, const Step& step) {
    const bool sends = step.kind == Kind::send || step.kind == Kind::signal;
    Channel& channel = channels_[sends ? std::pair(me, step.peer) : std::pair(step.peer, me)];
    (sends ? channel.sends : channel.recvs).emplace_back(me, &step);
    if (channel.sends.empty() || channel.recvs.empty()) return;
    const auto [from, send] = channel.sends.front();
    const auto [to, receive] = channel.recvs.front();
    channel.sends.pop_front();
    channel.recvs.pop_front();
    happen(std::max(rank(from).begin, rank(to).begin), from, to, send, receive);
    for (const int side : {from, to}) {
      if (--rank(side).open > 0) continue;
      next_round(rank(side));
      ready_.push_back(side);
    }
  }

  std::span<const Program> programs_;
  std::vector<Rank> ranks_;
  std::vector<int> ready_;
  std::map<std::pair<int, int>, Channel> channels_;
  Rows rows_;
};

}  // namespace

Rows rows(std::span<const Program> programs, Stuck stuck) { return Clock(programs).run(stuck); }

BlockNames::BlockNames(std::span<const Program> programs) {
  for (const Program& program : programs) {
    for (const Round& round : program.rounds) {
      for (const Step& step : round) {
        for (const Span* span : {&step.src, &step.dst}) {
          if (span->count == 0) continue;
          auto& cuts = cuts_[static_cast<int>(span->buffer)];
          cuts.insert({span->at, span->at + span->count});
        }
      }
    }
  }
}

int BlockNames::blocks(Buffer buffer) const {
  return std::max(0, static_cast<int>(cuts_[static_cast<int>(buffer)].size()) - 1);
}

std::string BlockNames::operator()(const Span& span) const {
  if (span.count == 0) return "";
  const std::string whose = span.owner == self ? "" : "@" + std::to_string(span.owner);
  if (blocks(span.buffer) == 1) return std::string(name(span.buffer)) + whose;
  const int begin = first(span), end = index(span.buffer, span.at + span.count);
  const std::string prefix = span.buffer == Buffer::in        ? "in"
                             : span.buffer == Buffer::scratch ? "s"
                             : span.buffer == Buffer::room    ? "room"
                                                              : "";
  return prefix + std::to_string(begin) + (end - begin > 1 ? "-" + std::to_string(end - 1) : "") +
         whose;
}

std::string BlockNames::local(const Step& step) const {
  return (*this)(step.dst) + (step.kind == Kind::reduce ? "+=" : "=") + (*this)(step.src);
}

int BlockNames::index(Buffer buffer, std::int64_t at) const {
  const auto& cuts = cuts_[static_cast<int>(buffer)];
  return static_cast<int>(std::distance(cuts.begin(), cuts.find(at)));
}

}  // namespace peal::comm
