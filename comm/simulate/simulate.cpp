// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/schedule/mix.h>
#include <peal/comm/simulate/round_shapes.h>
#include <peal/comm/simulate/simulate.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>

namespace peal::comm {
namespace {

// A message that both sides are ready for. It is part of the rounds that both are in.
struct Event {
  std::int64_t count;
  std::int32_t from, to;
  Kind sends, receives;
};

// A queue of events by time, in which nothing is put before what has been taken: a radix heap. The
// bits of a positive double order like the number.
class EventQueue {
 public:
  void push(double at, const Event& event) {
    const auto key = std::bit_cast<std::uint64_t>(at);
    buckets_[bucket(key)].push_back({key, event});
    ++size_;
  }
  bool empty() const { return size_ == 0; }
  double now() const { return std::bit_cast<double>(last_); }

  Event pop() {
    if (buckets_[0].empty()) refill();
    const Event event = buckets_[0].back().second;
    buckets_[0].pop_back();
    --size_;
    return event;
  }

 private:
  using Entry = std::pair<std::uint64_t, Event>;

  std::size_t bucket(std::uint64_t key) const {
    return static_cast<std::size_t>(std::bit_width(key ^ last_));
  }
  void refill() {
    std::size_t first = 1;
    while (buckets_[first].empty()) ++first;
    moving_.swap(buckets_[first]);
    last_ = std::ranges::min_element(moving_, {}, &Entry::first)->first;
    // Last in, first out: turned round, so that what came first goes first.
    for (auto entry = moving_.rbegin(); entry != moving_.rend(); ++entry) {
      buckets_[bucket(entry->first)].push_back(*entry);
    }
    moving_.clear();
  }

  std::array<std::vector<Entry>, 65> buckets_;
  std::vector<Entry> moving_;
  std::uint64_t last_ = 0;
  std::size_t size_ = 0;
};

class Simulator {
 public:
  Simulator(int world, const std::function<Program(int)>& program_of, int bytes_per_element,
            const Machine& machine, Record record)
      : machine_(machine),
        world_(world),
        bytes_(bytes_per_element),
        records_(record == Record::timeline),
        shapes_(world),
        ranks_(static_cast<std::size_t>(world)) {
    if (machine.nodes.node.size() != static_cast<std::size_t>(world)) {
      throw std::invalid_argument("simulate: expected a machine of " + std::to_string(world) +
                                  " ranks, got one of " +
                                  std::to_string(machine.nodes.node.size()));
    }
    const int nodes = world == 0 ? 0 : std::ranges::max(machine.nodes.node) + 1;
    bus_.assign(static_cast<std::size_t>(nodes), 0);
    adapter_out_ = adapter_in_ = bus_;
    const auto ports = static_cast<std::size_t>(std::max(1, machine.ports));
    for (int r = 0; r < world; ++r) {
      Rank& me = rank(r);
      me.plan = shapes_.plan(r, program_of(r));
      me.arithmetic = machine.start;
    }
    out_.assign(ranks_.size() * ports, 0);
    in_ = out_;
    for (const Straggler& s : machine.stragglers) {
      if (s.rank < 0 || s.rank >= world) {
        throw std::invalid_argument("simulate: there is no rank " + std::to_string(s.rank) +
                                    " to be a straggler");
      }
      rank(s.rank).arithmetic += s.late;
      rank(s.rank).slowdown = s.slowdown;
    }
  }

  Simulation run() {
    for (int r = 0; r < world_; ++r) begin_rounds(r, rank(r).arithmetic);
    while (!queue_.empty()) {
      const Event event = queue_.pop();
      const double start = earliest(event);
      if (start > queue_.now()) {
        queue_.push(start, event);
      } else {
        transmit(event);
      }
    }
    result_.finish.reserve(ranks_.size());
    for (int r = 0; r < world_; ++r) {
      if (rank(r).round < plan_of(r).size()) {
        throw std::invalid_argument("simulate: rank " + std::to_string(r) +
                                    " never ends its round " + std::to_string(rank(r).round) +
                                    "; verify the programs first");
      }
      result_.finish.push_back(rank(r).round_end);
      result_.seconds = std::max(result_.seconds, rank(r).round_end);
    }
    result_.timeline.world = world_;
    return std::move(result_);
  }

 private:
  struct Posted {
    std::int64_t count;
    std::int32_t peer;
    Kind kind;
  };
  struct Rank {
    int plan = 0;
    std::size_t round = 0;
    int open = 0;  // messages of the round that are not over
    double round_begin = 0;
    double round_end = 0;   // as far as it is known
    double arithmetic = 0;  // when its copies and reductions are done
    double slowdown = 1;
    std::uint64_t sent = 0;       // messages
    std::vector<Posted> waiting;  // for their partners
  };

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  std::size_t node(int r) const {
    return static_cast<std::size_t>(machine_.nodes.node[static_cast<std::size_t>(r)]);
  }
  std::span<const std::int32_t> plan_of(int r) { return shapes_.shapes_of(rank(r).plan); }

  void note(int r, Kind kind, int peer, double bytes, double moves, double end,
            std::int64_t message = -1) {
    if (!records_) return;
    result_.timeline.activities.push_back({r, kind, peer, static_cast<std::int64_t>(rank(r).round),
                                           static_cast<std::int64_t>(bytes), rank(r).round_begin,
                                           moves, end, message});
  }

  // Copies or adds when the rank's arithmetic is free, and at `ready` at the earliest. Says when
  // that began.
  double compute(int r, bool adds, double bytes, double ready) {
    Rank& me = rank(r);
    const double begin = std::max(ready, me.arithmetic);
    const Rate& rate = adds ? machine_.reduce : machine_.copy;
    me.arithmetic = begin + rate.seconds(bytes) * me.slowdown;
    me.round_end = std::max(me.round_end, me.arithmetic);
    return begin;
  }

  void begin_rounds(int r, double at) {
    Rank& me = rank(r);
    me.round_end = at;
    const auto plan = plan_of(r);
    for (; me.round < plan.size(); ++me.round) {
      me.round_begin = me.round_end;
      const auto moves = shapes_.moves_of(plan[me.round]);
      me.open = 0;
      for (const Move& move : moves) me.open += move.distance != 0;
      const bool waits = me.open > 0;
      for (const Move& move : moves) {
        if (move.distance != 0) continue;
        const double bytes = static_cast<double>(move.count) * bytes_;
        const double begin = compute(r, move.kind == Kind::reduce, bytes, me.round_begin);
        note(r, move.kind, nobody, bytes, begin, me.arithmetic);
      }
      for (const Move& move : moves) {
        if (move.distance != 0) post(r, move);
      }
      if (waits) return;
    }
  }

  void post(int r, const Move& move) {
    const int peer = move.distance < world_ - r ? r + move.distance : r + move.distance - world_;
    const bool sends = move.kind == Kind::send || move.kind == Kind::signal;
    auto& theirs = rank(peer).waiting;
    const auto partner = std::ranges::find_if(theirs, [&](const Posted& p) {
      return p.peer == r && (p.kind == Kind::send || p.kind == Kind::signal) != sends;
    });
    if (partner == theirs.end()) {
      rank(r).waiting.push_back({move.count, peer, move.kind});
      return;
    }
    const Event event = sends ? Event{move.count, r, peer, move.kind, partner->kind}
                              : Event{move.count, peer, r, partner->kind, move.kind};
    if (move.count != partner->count) {
      throw std::invalid_argument("simulate: rank " + std::to_string(event.to) + " expects " +
                                  std::to_string(sends ? partner->count : move.count) +
                                  " elements from rank " + std::to_string(event.from) + ", got " +
                                  std::to_string(sends ? move.count : partner->count) +
                                  "; verify the programs first");
    }
    theirs.erase(partner);
    queue_.push(std::max(rank(r).round_begin, rank(peer).round_begin), event);
  }

  // When the first of a rank's ports is free.
  double& soonest(std::vector<double>& ports, int r) {
    const std::size_t each = ports.size() / ranks_.size();
    double* first = ports.data() + static_cast<std::size_t>(r) * each;
    return each == 1 ? *first : *std::min_element(first, first + each);
  }

  double earliest(const Event& e) {
    double start = std::max({queue_.now(), soonest(out_, e.from), soonest(in_, e.to)});
    if (node(e.from) == node(e.to)) {
      start = std::max(start, bus_[node(e.from)]);
    } else {
      start = std::max({start, adapter_out_[node(e.from)], adapter_in_[node(e.to)]});
    }
    return start;
  }

  void transmit(const Event& e) {
    const double start = queue_.now(), bytes = static_cast<double>(e.count) * bytes_;
    const bool inside = node(e.from) == node(e.to);
    const Link& link = inside ? machine_.inside : machine_.between;
    const double slowdown = std::max(rank(e.from).slowdown, rank(e.to).slowdown);
    const double on_ports = (link.gap + link.rate.seconds(bytes)) * slowdown;
    const double on_wire = (inside ? machine_.bus : machine_.adapter).seconds(bytes);
    const double moved = start + std::max(on_ports, on_wire);
    soonest(out_, e.from) = moved;
    soonest(in_, e.to) = moved;
    if (inside) {
      bus_[node(e.from)] = start + on_wire;
    } else {
      adapter_out_[node(e.from)] = adapter_in_[node(e.to)] = start + on_wire;
    }
    ++result_.messages;
    (inside ? result_.bytes_inside : result_.bytes_between) += bytes;
    const double arrived = moved + link.latency * slowdown * jitter(e);
    double ended = arrived;
    if (e.receives == Kind::recv_reduce) {
      compute(e.to, true, bytes, arrived);
      ended = rank(e.to).arithmetic;
    }
    note(e.from, e.sends, e.to, bytes, start, arrived, result_.messages);
    note(e.to, e.receives, e.from, bytes, start, ended, result_.messages);
    complete(e.from, arrived);
    complete(e.to, ended);
  }

  void complete(int r, double at) {
    Rank& me = rank(r);
    me.round_end = std::max(me.round_end, at);
    if (--me.open > 0) return;
    ++me.round;
    begin_rounds(r, me.round_end);
  }

  // Drawn from who sends and the how manieth message it is, so that it does not depend on the order
  // of simulation.
  double jitter(const Event& e) {
    if (machine_.jitter == 0) return 1;
    std::uint64_t x = machine_.seed;
    for (const std::uint64_t word : {static_cast<std::uint64_t>(e.from), rank(e.from).sent++}) {
      mix(x, word);
    }
    const double uniform = (static_cast<double>(x >> 11) + 0.5) * 0x1p-53;
    return 1 - machine_.jitter * std::log(uniform);
  }

  const Machine& machine_;
  int world_;
  double bytes_;
  bool records_;
  RoundShapes shapes_;
  std::vector<Rank> ranks_;
  std::vector<double> out_, in_;                        // when each rank's ports are free
  std::vector<double> bus_, adapter_out_, adapter_in_;  // when each node's is free
  EventQueue queue_;
  Simulation result_;
};

}  // namespace

Simulation simulate(int world, const std::function<Program(int)>& program_of, int bytes_per_element,
                    const Machine& machine, Record record) {
  return Simulator(world, program_of, bytes_per_element, machine, record).run();
}

}  // namespace peal::comm
