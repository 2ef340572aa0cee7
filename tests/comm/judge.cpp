// SPDX-License-Identifier: Apache-2.0
#include "judge.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace peal::comm::testing {
namespace {

using Rng = std::mt19937_64;
constexpr std::int64_t margin = 64;

struct Number {
  std::uint64_t sum, bits;
  bool operator==(const Number&) const = default;
};

std::uint64_t scramble(std::uint64_t x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185u;
  x ^= x >> 27;
  return x * 0x81dadef4bc2dd44du;
}

// Commutative, not associative, like the addition of floats.
Number combine(Number a, Number b) { return {a.sum + b.sum, scramble(a.bits + b.bits)}; }

struct Bad {
  std::string why;
};

// A buffer of a rank: where it begins in the rank's array, and how long it is.
struct Extent {
  std::int64_t at = 0, size = 0;
};

struct Rank {
  Extent buffers[buffer_kinds];  // of the room its first half
  // numbers: as they are; afterwards: as the user goes on with them in the end; and of each
  // operation, at_start: with the contribution; at_end: as the rank leaves them.
  std::vector<Number> numbers, afterwards;
  std::vector<std::vector<Number>> at_start, at_end;
  std::size_t operation = 0;
  bool began = false;
  std::size_t round = 0;
  std::size_t unfinished = 0;  // steps of the round
  bool entered = false;        // this round is under way
};

// A transfer of numbers from one array into the same or another one, going on piece by piece.
struct Move {
  int from, to;           // ranks whose memory it is
  int by;                 // the rank whose step it is: for a message, the receiver
  std::int64_t src, dst;  // places in their arrays
  std::int64_t count, done = 0;
  bool combines;
  std::vector<Number> read_ahead;  // the whole source, where the interleaving reads it first
  std::uint64_t urgency;
  bool sender_waits;  // rendezvous
};

struct Posted {
  int rank;
  std::int64_t at, count;
  bool combines;
};

struct Channel {
  std::deque<Posted> sends, recvs;
};

// How one run is interleaved.
struct Manner {
  bool by_urgency;   // the most urgent move runs to its end, instead of all by pieces
  bool reads_ahead;  // sources are read when a move begins (each with a chance of one half)
  bool eager;        // empty messages: the sender does not wait
  std::optional<int> absent;  // a rank that does not come before all others stand still
  std::optional<int> slow;    // a rank whose moves go on when nothing else can
};

class Machine {
 public:
  // Runs the programs so many times, one operation after the other, which ranks begin and end as
  // they come to it.
  Machine(const Problem& problem, std::span<const Program> programs, bool in_place, Manner manner,
          std::size_t operations, std::uint64_t seed)
      : problem_(problem),
        programs_(programs),
        manner_(manner),
        operations_(operations),
        rng_(seed) {
    for (int r = 0; r < problem.world; ++r) ranks_.push_back(lay_out(r, in_place));
    for (int r = 0; r < problem.world; ++r) {
      while (rounds(r).empty() && !finished(r)) begin(r), end(r);
    }
  }

  void run() {  // throws Bad
    bool came = !manner_.absent;
    for (;;) {
      if (advance(came)) continue;
      if (came) break;
      for (int r = 0; r < problem_.world; ++r) {
        if (problem_.what == Collective::barrier && r != *manner_.absent && finished(r)) {
          throw Bad{"rank " + std::to_string(r) + " left before one had come"};
        }
      }
      came = true;
    }
    for (int r = 0; r < problem_.world; ++r) {
      if (!finished(r)) throw Bad{"deadlock of rank " + std::to_string(r)};
    }
    look();
  }

 private:
  std::uint64_t draw(std::uint64_t below) { return rng_() % below; }
  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  const std::vector<Round>& rounds(int r) const {
    return programs_[static_cast<std::size_t>(r)].rounds;
  }
  bool finished(int r) { return rank(r).operation == operations_; }

  Rank lay_out(int r, bool in_place) {
    const Problem p{
        problem_.what, r, problem_.world, problem_.root, problem_.counts, problem_.nodes,
        problem_.align};
    const std::int64_t ins = in_count(p), outs = out_count(p);
    Rank made;
    std::int64_t end = margin;
    if (in_place) {
      const std::int64_t shift = in_place_offset(p);
      made.buffers[0] = {margin + (shift > 0 ? shift : 0), ins};
      made.buffers[1] = {margin + (shift < 0 ? -shift : 0), outs};
      for (int b = 0; b < 2; ++b) end = std::max(end, made.buffers[b].at + made.buffers[b].size);
    } else {
      made.buffers[0] = {end, ins};
      made.buffers[1] = {end + ins + margin, outs};
      end = made.buffers[1].at + outs;
    }
    made.buffers[2] = {end + margin, programs_[static_cast<std::size_t>(r)].scratch};
    made.buffers[3] = {made.buffers[2].at + made.buffers[2].size + margin,
                       programs_[static_cast<std::size_t>(r)].room};
    made.numbers.resize(
        static_cast<std::size_t>(made.buffers[3].at + 2 * made.buffers[3].size + margin));
    for (Number& n : made.numbers) n = {rng_(), rng_()};
    come_to_next(made, r);
    return made;
  }

  void come_to_next(Rank& me, int r) {
    me.at_start.push_back(me.numbers);
    // What a rank contributes must not depend on the interleaving's draws.
    Rng own(static_cast<std::uint64_t>(r) + 1 + 1000 * me.operation);
    const auto [at, size] = me.buffers[0];
    for (std::int64_t i = at; i < at + size; ++i) {
      me.at_start.back()[static_cast<std::size_t>(i)] = {own(), own()};
    }
  }

  static bool in_room(const Rank& me, std::int64_t i) {
    return i >= me.buffers[3].at && i < me.buffers[3].at + 2 * me.buffers[3].size;
  }

  // Before a rank comes, its user has not written its numbers yet; what others have changed by then
  // stands beside them.
  void begin(int r) {
    Rank& me = rank(r);
    if (std::exchange(me.began, true)) return;
    const auto first = me.buffers[0].at, size = me.buffers[0].size;
    std::copy_n(me.at_start.back().begin() + first, size, me.numbers.begin() + first);
  }

  // After it has left, its user reads the result and uses the memory for something else; but not
  // the room.
  void end(int r) {
    Rank& me = rank(r);
    me.at_end.push_back(me.numbers);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(me.numbers.size()); ++i) {
      if (!in_room(me, i)) me.numbers[static_cast<std::size_t>(i)] = {rng_(), rng_()};
    }
    me.round = 0;
    me.began = false;
    ++me.operation;
    if (finished(r)) {
      me.afterwards = me.numbers;
    } else {
      come_to_next(me, r);
    }
  }

  Number given(std::size_t operation, int r, std::int64_t i) const {
    const Rank& from = ranks_[static_cast<std::size_t>(r)];
    return from.at_start[operation][static_cast<std::size_t>(from.buffers[0].at + i)];
  }

  // Inside the array, if not always inside the buffer: the canaries see to the rest.
  int owner(int r, const Span& span) const {
    if (span.owner == self) return r;
    if (span.owner < 0 || span.owner >= problem_.world) throw Bad{"memory of a rank that is none"};
    same_node(r, span.owner);
    return span.owner;
  }

  void same_node(int r, int other) const {
    const auto& node = problem_.nodes.node;
    const bool same = node[static_cast<std::size_t>(r)] == node[static_cast<std::size_t>(other)];
    if (!same) throw Bad{"memory of another node"};
  }

  // Of rank r's memory, for a rank that stands in this operation.
  std::int64_t place(int r, const Span& span, std::size_t operation) {
    const Extent& buffer = rank(r).buffers[static_cast<int>(span.buffer)];
    const bool second_half = span.buffer == Buffer::room && operation % 2 == 1;
    const std::int64_t at = buffer.at + (second_half ? buffer.size : 0) + span.at;
    const auto end = static_cast<std::int64_t>(rank(r).numbers.size());
    if (span.count < 0 || at < 0 || at + span.count > end) throw Bad{"far outside any buffer"};
    return at;
  }

  void begin_move(Move move) {
    move.urgency = rng_();
    if (manner_.reads_ahead && draw(2) == 0) {
      const auto first = rank(move.from).numbers.begin() + move.src;
      move.read_ahead.assign(first, first + move.count);
    }
    moves_.push_back(std::move(move));
  }

  void meet(Channel& channel) {
    while (!channel.sends.empty() && !channel.recvs.empty()) {
      const Posted s = channel.sends.front(), d = channel.recvs.front();
      channel.sends.pop_front();
      channel.recvs.pop_front();
      if (s.count != d.count) throw Bad{"a message of another size than its receive"};
      begin_move(
          {s.rank, d.rank, d.rank, s.at, d.at, s.count, 0, d.combines, {}, 0, !manner_.eager});
    }
  }

  void enter(int r) {
    begin(r);
    Rank& me = rank(r);
    const Round& round = rounds(r)[me.round];
    me.entered = true;
    me.unfinished = round.size();
    for (const Step& s : round) {
      const bool combines = s.kind == Kind::reduce || s.kind == Kind::recv_reduce;
      switch (s.kind) {
        case Kind::send:
        case Kind::recv:
        case Kind::recv_reduce: {
          if (s.peer < 0 || s.peer >= problem_.world) throw Bad{"a peer that does not exist"};
          const bool sends = s.kind == Kind::send;
          const Span& span = sends ? s.src : s.dst;
          if (owner(r, span) != r) throw Bad{"a message in the memory of another rank"};
          Channel& channel = channels_[sends ? std::pair(r, s.peer) : std::pair(s.peer, r)];
          (sends ? channel.sends : channel.recvs)
              .push_back({r, place(r, span, me.operation), span.count, combines});
          if (sends && manner_.eager) --me.unfinished;
          break;
        }
        case Kind::copy:
        case Kind::reduce: {
          if (s.src.count != s.dst.count) throw Bad{"source and destination differ in size"};
          const int from = owner(r, s.src), to = owner(r, s.dst);
          const std::int64_t src = place(from, s.src, me.operation);
          const std::int64_t dst = place(to, s.dst, me.operation);
          if (s.kind == Kind::copy && from == to && src == dst) {
            --me.unfinished;
          } else {
            begin_move({from, to, r, src, dst, s.src.count, 0, combines, {}, 0, false});
          }
          break;
        }
        case Kind::signal:
        case Kind::await:
          if (s.peer < 0 || s.peer >= problem_.world) throw Bad{"a peer that does not exist"};
          same_node(r, s.peer);
          if (s.kind == Kind::signal) {
            ++flags_[{r, s.peer}].raised;
            --me.unfinished;
          } else {
            ++flags_[{s.peer, r}].awaited;
          }
          break;
      }
    }
    for (auto& [ranks, channel] : channels_) meet(channel);
    for (auto& [ranks, flag] : flags_) {
      for (; flag.raised > 0 && flag.awaited > 0; --flag.raised, --flag.awaited) {
        --rank(ranks.second).unfinished;
        if (ranks.second != r) leave_if_done(ranks.second);
      }
    }
    leave_if_done(r);
  }

  void leave_if_done(int r) {
    Rank& me = rank(r);
    if (!me.entered || me.unfinished > 0) return;
    me.entered = false;
    if (++me.round == rounds(r).size()) end(r);
  }

  // Copies a piece of a move, or all that is left of it.
  void go_on(std::size_t which) {
    Move& m = moves_[which];
    const std::int64_t left = m.count - m.done;
    std::int64_t piece = left;
    if (!manner_.by_urgency && left > 0)
      piece = 1 + static_cast<std::int64_t>(
                      draw(std::min<std::uint64_t>(4, static_cast<std::uint64_t>(left))));
    for (std::int64_t i = m.done; i < m.done + piece; ++i) {
      const Number got = m.read_ahead.empty()
                             ? rank(m.from).numbers[static_cast<std::size_t>(m.src + i)]
                             : m.read_ahead[static_cast<std::size_t>(i)];
      Number& to = rank(m.to).numbers[static_cast<std::size_t>(m.dst + i)];
      to = m.combines ? combine(to, got) : got;
    }
    m.done += piece;
    if (m.done < m.count) return;
    const Move over = m;
    moves_.erase(moves_.begin() + static_cast<std::ptrdiff_t>(which));
    --rank(over.by).unfinished;
    leave_if_done(over.by);
    if (over.sender_waits) {
      --rank(over.from).unfinished;
      leave_if_done(over.from);
    }
  }

  // One thing that can happen now, at random; false if nothing can.
  bool advance(bool all_may_enter) {
    std::vector<int> enterable;
    for (int r = 0; r < problem_.world; ++r) {
      const bool may = all_may_enter || r != *manner_.absent;
      if (may && !rank(r).entered && !finished(r)) enterable.push_back(r);
    }
    const std::size_t choices = enterable.size() + moves_.size();
    if (choices == 0) return false;
    std::size_t choice = draw(choices);
    if (manner_.slow && choice >= enterable.size()) {  // another one, if there is
      for (std::size_t i = 0; i < choices; ++i) {
        const bool enters = choice < enterable.size();
        if (enters || moves_[choice - enterable.size()].by != *manner_.slow) break;
        choice = (choice + 1) % choices;
      }
    }
    if (choice < enterable.size()) {
      enter(enterable[choice]);
    } else if (manner_.by_urgency) {
      const auto most = std::ranges::max_element(moves_, {}, &Move::urgency);
      go_on(static_cast<std::size_t>(most - moves_.begin()));
    } else {
      go_on(choice - enterable.size());
    }
    return true;
  }

  Number right(std::size_t operation, int r, std::int64_t i) const;
  void look();
  void look(std::size_t operation, int r);

  const Problem& problem_;
  std::span<const Program> programs_;
  Manner manner_;
  std::size_t operations_;
  Rng rng_;
  std::vector<Rank> ranks_;
  std::vector<Move> moves_;
  std::map<std::pair<int, int>, Channel> channels_;
  struct Flag {
    int raised = 0, awaited = 0;
  };
  std::map<std::pair<int, int>, Flag> flags_;  // of a pair: signaller, awaiter
};

// What rank r's out[i] must be in an operation, said again in the judge's own words; for a
// reduction only its sum.
Number Machine::right(std::size_t operation, int r, std::int64_t i) const {
  const auto& counts = problem_.counts;
  std::int64_t before = 0;
  switch (problem_.what) {
    case Collective::broadcast:
      return given(operation, problem_.root, i);
    case Collective::scatter:
    case Collective::reduce_scatter:
      for (int k = 0; k < r; ++k) before += counts[static_cast<std::size_t>(k)];
      if (problem_.what == Collective::scatter) return given(operation, problem_.root, before + i);
      break;
    case Collective::all_gather:
    case Collective::gather:
      for (int k = 0;; i -= counts[static_cast<std::size_t>(k++)]) {
        if (i < counts[static_cast<std::size_t>(k)]) return given(operation, k, i);
      }
    case Collective::all_to_all:
      for (int k = 0;; ++k) {
        const auto row = static_cast<std::size_t>(k) * static_cast<std::size_t>(problem_.world);
        const std::int64_t mine = counts[row + static_cast<std::size_t>(r)];
        if (i >= mine) {
          i -= mine;
          continue;
        }
        for (int to = 0; to < r; ++to) before += counts[row + static_cast<std::size_t>(to)];
        return given(operation, k, before + i);
      }
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::barrier:
      break;
  }
  Number total{0, 0};
  for (int k = 0; k < problem_.world; ++k) total.sum += given(operation, k, before + i).sum;
  return total;
}

void Machine::look() {
  for (int r = 0; r < problem_.world; ++r) {
    const Rank& me = rank(r);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(me.numbers.size()); ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (!in_room(me, i) && me.numbers[at] != me.afterwards[at]) {
        throw Bad{"the memory of rank " + std::to_string(r) + " was written after it had left"};
      }
    }
    for (std::size_t k = 0; k < operations_; ++k) look(k, r);
  }
}

void Machine::look(std::size_t operation, int r) {
  const bool reduces = problem_.what == Collective::all_reduce ||
                       problem_.what == Collective::reduce ||
                       problem_.what == Collective::reduce_scatter;
  const auto inside = [](const Extent& e, std::int64_t i) {
    return i >= e.at && i < e.at + e.size;
  };
  const Rank &me = rank(r), &first = rank(0);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(me.numbers.size()); ++i) {
    const Number got = me.at_end[operation][static_cast<std::size_t>(i)];
    if (inside(me.buffers[1], i)) {
      const std::int64_t at = i - me.buffers[1].at;
      const Number want = right(operation, r, at);
      if (got.sum != want.sum || (!reduces && got.bits != want.bits)) {
        throw Bad{"rank " + std::to_string(r) + " has a wrong out[" + std::to_string(at) + "]"};
      }
      const auto same = static_cast<std::size_t>(first.buffers[1].at + at);
      if (problem_.what == Collective::all_reduce &&
          got.bits != first.at_end[operation][same].bits) {
        throw Bad{"ranks 0 and " + std::to_string(r) + " differ in the bits of out[" +
                  std::to_string(at) + "]"};
      }
    } else if (!inside(me.buffers[2], i) && !in_room(me, i) &&
               got != me.at_start[operation][static_cast<std::size_t>(i)]) {
      throw Bad{"rank " + std::to_string(r) + " has changed in, or what lies around its buffers"};
    }
  }
}

}  // namespace

Judgement judge(const Problem& problem, std::span<const Program> programs, bool in_place,
                std::uint64_t seed) {
  Rng rng(seed);
  std::vector<Manner> manners;
  for (const bool by_urgency : {false, true, true}) {
    for (const bool reads_ahead : {false, true})
      manners.push_back({by_urgency, reads_ahead, false, {}, {}});
  }
  bool one_sided = false;
  for (const Program& program : programs) {
    for (const Round& round : program.rounds) {
      one_sided = one_sided || std::ranges::any_of(round, [](const Step& s) {
                    return s.dst.owner != self || s.src.owner != self ||
                           s.dst.buffer == Buffer::room || s.src.buffer == Buffer::room;
                  });
    }
  }
  const bool barrier = problem.what == Collective::barrier;
  for (int r = 0; (barrier || one_sided) && r < problem.world; ++r) {
    manners.push_back({false, false, barrier, r, {}});
    if (one_sided) manners.push_back({false, false, false, {}, r});
  }
  for (const Manner& manner : manners) {
    try {
      Machine(problem, programs, in_place, manner, one_sided ? 3 : 1, rng()).run();
    } catch (const Bad& bad) {
      return {false, bad.why};
    }
  }
  return {true, {}};
}

}  // namespace peal::comm::testing
