// SPDX-License-Identifier: Apache-2.0
#pragma once

// A schedule is a value. What one rank does in a collective is a Program: rounds of steps, in
// elements and ranks, without pointers, bytes or types. So a program can be printed, verified,
// costed, hashed, cached and replayed on any buffer; an Algorithm is a pure function that makes one
// from a Problem.
//
// Rounds. The steps of a round are concurrent: a round begins when the one before is complete on
// this rank, starts all its messages and local work at once, and is complete when all of them are
// (MPI_Waitall; one ncclGroup). So no step may touch elements that another step of the same round
// writes; copies and reductions run concurrently with the messages of their round like everything
// else. Rounds are local: ranks may have different numbers of rounds, and no barrier stands between
// them.
//
// Messages. Sends are rendezvous (unbuffered): a send completes only when its receive has. Between
// two ranks the messages of a direction match in order of (round, place in the round), and both
// sides name the same count. Empty messages exist in a barrier only; elsewhere neither side has the
// step.
//
// One-sided steps. A copy or reduce may name memory of another rank of the node, if its ranks share
// memory. Nothing but signals orders such accesses, messages do not: what stands in rounds before
// signal(b) of rank a happens before what stands in rounds after the matching await(a) of rank b,
// and so do a program's beginning before everything in it, and its end after. A signal never waits;
// signals and awaits between two ranks match in order, and none is left over. Rank r's `in`, `out`
// and `scratch` may be touched by others between r's beginning and end only. In a program with such
// steps each rank ends with a chain of signals from every other one of its node.
//
// Buffers. `in` is never written. `scratch` is the program's own, of Program::scratch elements of
// the accumulation type, undefined at the start. `room` is memory that each rank has for its node,
// and that lives on: Program::room elements of the buffers' type, undefined at the start, which
// others may touch at any time. A group's operations use two halves of it in turn. So it needs no
// meeting at the end: who begins an operation has finished the one before, in which it heard from
// its whole node that all had begun that, and so had finished the one that used this half.
//
// In the table, n = counts[0]; sum is of all counts, and
// offset of those before `rank`; (root) stands for 0 elements on the other ranks.
//
//   collective      counts            in             out            in place
//   all_reduce      {n}               n              n              in == out
//   reduce          {n}               n              n (root)       in == out
//   broadcast       {n}               n (root)       n              in == out
//   all_gather      one a rank        counts[rank]   sum            in == out + offset
//   reduce_scatter  one a rank        sum            counts[rank]   out == in + offset
//   gather          one a rank        counts[rank]   sum (root)     in == out + offset
//   scatter         one a rank        sum (root)     counts[rank]   out == in + offset
//   all_to_all      world x world     row sum        column sum     never
//   barrier         {}                0              0              nothing to place
//
// counts of all_to_all: row `s`, column `d` is what rank s sends to rank d.
//
// Every program is right in place and out of place: it never reads an element of `in` after writing
// the element of `out` that may share its memory. A copy onto itself (in place) moves nothing and
// touches nothing.
//
// Thread safety: plain values. Everything here throws std::invalid_argument, and only that.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace peal::comm {

enum class Collective : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  barrier
};
inline constexpr Collective all_collectives[] = {
    Collective::all_reduce, Collective::reduce,         Collective::broadcast,
    Collective::all_gather, Collective::reduce_scatter, Collective::gather,
    Collective::scatter,    Collective::all_to_all,     Collective::barrier};
enum class Buffer : std::uint8_t { in, out, scratch, room };
inline constexpr int buffer_kinds = 4;
enum class Kind : std::uint8_t { send, recv, recv_reduce, copy, reduce, signal, await };

// As it is written in errors and on command lines.
std::string_view name(Collective what);
std::string_view name(Buffer buffer);
std::string_view name(Kind kind);
// broadcast, reduce, gather, scatter.
bool has_root(Collective what);
// all_reduce, reduce, reduce_scatter.
bool is_reduction(Collective what);
// All but all_to_all: one buffer may be both `in` and `out`.
bool has_in_place(Collective what);
// Needs no other rank. What is not may have `nobody` as its peer too: a receive from any source.
constexpr bool is_local(Kind kind) { return kind == Kind::copy || kind == Kind::reduce; }

inline constexpr int self = -1;    // Span::owner: memory of the rank that runs the program
inline constexpr int nobody = -1;  // Step::peer of a step without one

// Of a message between two ranks.
enum class Direction : std::uint8_t { send, recv };
inline constexpr int any_source =
    -1;  // the peer of a receive that takes what comes (MPI_ANY_SOURCE)

// Elements at .. at + count - 1 of a buffer, never bytes. Another owner than `self` is one-sided
// access and needs memory that the two share.
struct Span {
  int owner = self;
  Buffer buffer = Buffer::in;
  std::int64_t at = 0;
  std::int64_t count = 0;
  bool operator==(const Span&) const = default;
};

// A part of a buffer, before one says which buffer.
struct Block {
  std::int64_t at = 0;
  std::int64_t count = 0;
  bool operator==(const Block&) const = default;
};

// A block of the rank's own `in`, `out`, scratch or room, in elements.
constexpr Span in(Block b) { return {self, Buffer::in, b.at, b.count}; }
constexpr Span out(Block b) { return {self, Buffer::out, b.at, b.count}; }
constexpr Span scratch(Block b) { return {self, Buffer::scratch, b.at, b.count}; }
constexpr Span room(Block b) { return {self, Buffer::room, b.at, b.count}; }
// That of rank `owner`, for a program of rank `rank`.
constexpr Span of(int owner, int rank, Span span) {
  span.owner = owner == rank ? self : owner;
  return span;
}

// Made only by the functions below. A field that a kind does not use keeps its default; anything
// else is illegal.
struct Step {
  Kind kind = Kind::copy;
  Span dst, src;
  int peer = nobody;
  bool operator==(const Step&) const = default;
};

// A message of src to another rank, and one from it that replaces dst; in elements.
constexpr Step send(int to, Span src) { return {Kind::send, {}, src, to}; }
constexpr Step recv(int from, Span dst) { return {Kind::recv, dst, {}, from}; }
// dst = dst (+) what comes.
constexpr Step recv_reduce(int from, Span dst) { return {Kind::recv_reduce, dst, {}, from}; }
// dst = src, of as many elements.
constexpr Step copy(Span dst, Span src) { return {Kind::copy, dst, src, nobody}; }
// dst = dst (+) src.
constexpr Step reduce(Span dst, Span src) { return {Kind::reduce, dst, src, nobody}; }
// One-sided steps of earlier rounds here happen before those after the matching await there.
constexpr Step signal(int to) { return {Kind::signal, {}, {}, to}; }
constexpr Step await(int from) { return {Kind::await, {}, {}, from}; }

// It lies in memory that ranks share.
constexpr bool is_shared(const Span& span) {
  return span.owner != self || span.buffer == Buffer::room;
}
// It touches such memory, or orders those who do.
constexpr bool is_one_sided(const Step& step) {
  return step.kind == Kind::signal || step.kind == Kind::await || is_shared(step.dst) ||
         is_shared(step.src);
}

using Round = std::vector<Step>;

struct Program {
  std::int64_t scratch = 0;  // elements
  std::vector<Round> rounds;
  std::int64_t room = 0;  // elements
  bool operator==(const Program&) const = default;
};

// Appends the round without its steps of no elements; a round that is then empty is left out. Both
// sides of a message know its count, so both drop it.
void add(Program& program, Round round);

// node[r] is the node that rank r runs on; nodes are numbered from 0.
struct Topology {
  std::vector<int> node;
};
// So many ranks on one node.
Topology single_node(int world);

// What a program is wanted for. A view: counts and nodes outlive it.
struct Problem {
  Collective what;
  int rank;
  int world;
  int root;  // reduce, broadcast, gather, scatter; else 0
  std::span<const std::int64_t> counts;
  const Topology& nodes;
  std::int64_t align = 1;  // where an algorithm cuts a buffer freely, it cuts at multiples of this
  std::int64_t chunk = 0;  // elements of a chunk in a pipeline; 0: as the algorithm likes
};

// Throws std::invalid_argument, naming the field, unless the problem is one of the table above.
void validate(const Problem& problem);
// How many elements `in` and `out` have on the problem's rank.
std::int64_t in_count(const Problem& problem);
std::int64_t out_count(const Problem& problem);
// In place, in == out + this many elements. Throws for all_to_all.
std::int64_t in_place_offset(const Problem& problem);

// REQUIRES a problem that validate() accepts, in a world that the algorithm supports.
using Algorithm = Program (*)(const Problem&);

// i modulo n, in 0 .. n-1 for negative i too: neighbours on a ring.
constexpr int wrap(int i, int n) {
  const int rest = i % n;
  return rest < 0 ? rest + n : rest;
}

// A buffer cut into blocks that lie one after the other. Indices wrap: block[-1] is the last one.
class Blocks {
 public:
  // Block i has counts[i] elements.
  explicit Blocks(std::span<const std::int64_t> counts);
  // `count` elements in `parts` blocks whose sizes differ by at most one; the larger ones come
  // first. With align > 1 this holds in units of `align` elements, and the last block that is not
  // empty may end in a broken unit.
  static Blocks balanced(std::int64_t count, int parts, std::int64_t align = 1);

  // How many blocks there are, and how many elements all have, and the largest.
  int size() const { return static_cast<int>(begin_.size()) - 1; }
  std::int64_t total() const { return begin_.back(); }
  std::int64_t largest() const;
  // Block i. REQUIRES 0 <= i < size().
  Block operator[](int i) const;
  // Blocks first .. first + n - 1 as one range, or as two where they run past the end. n <= size().
  std::vector<Block> run(int first, int n) const;
  // The same as one range. REQUIRES 0 <= first and first + n <= size().
  Block range(int first, int n) const;
  // All elements as one.
  Block all() const { return {0, total()}; }

 private:
  Blocks() = default;
  std::vector<std::int64_t> begin_;  // size() + 1 boundaries
};

// What a program costs its rank. Under latency a, b per element sent and c per element reduced:
// rounds * a + sent * b + reduced * c.
struct Cost {
  std::int64_t rounds = 0;  // those with a message or signal; others are free of latency
  std::int64_t sent = 0, received = 0, reduced = 0;  // elements
  bool operator==(const Cost&) const = default;
};
// What a rank's program costs it: rounds, and elements sent, received and reduced.
Cost cost(const Program& program);

// Equal programs have equal hashes on every machine. Ranks run different programs: to agree, they
// compare the hash of one rank's program, which each of them can make.
std::uint64_t hash(const Program& program);

}  // namespace peal::comm
