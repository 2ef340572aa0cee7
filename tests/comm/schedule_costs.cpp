// SPDX-License-Identifier: Apache-2.0
// What schedules cost is what the books say: closed forms where the world divides the count, bounds
// by the largest block elsewhere.
#include "schedule_worlds.h"

#include <doctest/doctest.h>
#include <peal/comm/algorithms/double_tree.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/verify/verify.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace peal::comm {
namespace {

int log2_up(int p) { return std::bit_width(static_cast<unsigned>(p - 1)); }
int log2_down(int p) { return std::bit_width(static_cast<unsigned>(p)) - 1; }

std::vector<Cost> costs(Collective what, std::string_view name, int p,
                        std::vector<std::int64_t> counts, int root = 0) {
  const Entry* entry = find(what, name);
  REQUIRE(entry != nullptr);
  std::vector<Cost> all;
  const World world{what, p, root, std::move(counts)};
  for (const Program& program : world.programs(*entry)) all.push_back(cost(program));
  return all;
}

TEST_CASE("the cost of a program counts messages and elements") {
  const Program program{3,
                        {{copy(out({0, 9}), in({0, 9}))},
                         {send(1, out({0, 2})), recv(1, scratch({0, 3}))},
                         {reduce(out({0, 3}), scratch({0, 3}))},
                         {recv_reduce(2, out({0, 4})), send(2, out({4, 5}))}}};
  CHECK(cost(program) == Cost{2, 7, 7, 7});
}

TEST_CASE("all_reduce by blocks: 2n(p-1)/p sent, n(p-1)/p reduced, by every rank") {
  for (int p = 1; p <= 33; ++p) {
    const std::int64_t block = 3, n = block * p;
    const Cost ring{2 * (p - 1), 2 * block * (p - 1), 2 * block * (p - 1), block * (p - 1)};
    for (const Cost& c : costs(Collective::all_reduce, "ring", p, {n})) CHECK(c == ring);
    Cost circulant = ring;
    circulant.rounds = 2 * log2_up(p);
    for (const Cost& c : costs(Collective::all_reduce, "circulant", p, {n})) CHECK(c == circulant);
  }
}

TEST_CASE("all_reduce by blocks, any count: bounded by the largest block") {
  for (int p = 2; p <= 17; ++p) {
    for (const std::int64_t n : {1, p - 1, p + 1, 97}) {
      const std::int64_t ceil = (n + p - 1) / p;
      for (const char* name : {"ring", "circulant"}) {
        std::int64_t sent = 0, received = 0;
        for (const Cost& c : costs(Collective::all_reduce, name, p, {n})) {
          CHECK(c.sent <= 2 * ceil * (p - 1));
          CHECK(c.received <= 2 * ceil * (p - 1));
          CHECK(c.reduced <= ceil * (p - 1));
          sent += c.sent;
          received += c.received;
        }
        CHECK(sent == 2 * n * (p - 1));  // the lower bound, in all
        CHECK(received == sent);
      }
    }
  }
}

TEST_CASE("all_reduce by recursive doubling: log2(p) whole messages, two rounds more with a fold") {
  const std::int64_t n = 5;
  for (int p = 1; p <= 33; ++p) {
    const std::int64_t down = log2_down(p), folded = p - (1 << down);
    const auto all = costs(Collective::all_reduce, "recursive_doubling", p, {n});
    for (int rank = 0; rank < p; ++rank) {
      const Cost& c = all[static_cast<std::size_t>(rank)];
      if (rank >= 2 * folded) {
        CHECK(c == Cost{down, n * down, n * down, n * down});
      } else if (rank % 2 == 1) {  // stands in for the one below
        CHECK(c == Cost{down + 2, n * (down + 1), n * (down + 1), n * (down + 1)});
      } else {
        CHECK(c == Cost{2, n, n, 0});
      }
    }
  }
}

TEST_CASE("reduce_scatter and all_gather by ring: p-1 rounds, n(p-1)/p") {
  for (int p = 1; p <= 17; ++p) {
    const std::int64_t block = 4, moved = block * (p - 1);
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(p), block);
    for (const Cost& c : costs(Collective::all_gather, "ring", p, counts)) {
      CHECK(c == Cost{p - 1, moved, moved, 0});
    }
    for (const Cost& c : costs(Collective::reduce_scatter, "ring", p, counts)) {
      CHECK(c == Cost{p - 1, moved, moved, moved});
    }
  }
}

TEST_CASE(
    "broadcast by binomial tree: the root sends ceil(log2 p) times, everybody receives once") {
  const std::int64_t n = 5;
  for (int p = 1; p <= 33; ++p) {
    for (const int root : {0, p / 2, p - 1}) {
      const auto all = costs(Collective::broadcast, "binomial", p, {n}, root);
      std::int64_t sent = 0;
      for (int rank = 0; rank < p; ++rank) {
        const Cost& c = all[static_cast<std::size_t>(rank)];
        CHECK(c.rounds <= log2_up(p));
        CHECK(c.received == (rank == root ? 0 : n));
        CHECK(c.reduced == 0);
        sent += c.sent;
      }
      CHECK(sent == n * (p - 1));
      CHECK(all[static_cast<std::size_t>(root)] == Cost{log2_up(p), n * log2_up(p), 0, 0});
    }
  }
}

TEST_CASE("the closed forms of the table: met where blocks are equal, not passed elsewhere") {
  int exact = 0, bounds = 0;
  for (const Entry& entry : all_algorithms()) {
    for (int p = 1; p <= 33; ++p) {
      if (!entry.supports(p)) continue;
      constexpr std::int64_t many = (std::int64_t{1} << 33) + 5;  // past every 32-bit count
      for (const std::int64_t n :
           std::initializer_list<std::int64_t>{0, 1, p - 1, p, p + 1, 97, 6 * p, many}) {
        if (n == many && p > 9) continue;
        std::vector<World> worlds = testing::worlds_for(entry, p, n);
        const bool pipelined = std::ranges::any_of(worlds, [](auto& w) { return w.chunk != 0; });
        if (n == many && pipelined) continue;  // a round for each of very many chunks
        if (has_root(entry.what)) {
          std::erase_if(worlds, [&](const World& w) { return w.root % 3 != p % 3; });
        }
        for (const World& world : worlds) {
          const ClosedForm form = entry.costs(world.problem());
          Cost most;
          std::int64_t sent = 0, received = 0;
          for (const Program& program : world.programs(entry)) {
            const Cost c = cost(program);
            most = {std::max(most.rounds, c.rounds), std::max(most.sent, c.sent),
                    std::max(most.received, c.received), std::max(most.reduced, c.reduced)};
            sent += c.sent;
            received += c.received;
          }
          CAPTURE(world.text(entry, true));
          CHECK(sent == received);
          ++(form.exact ? exact : bounds);
          if (form.exact) {
            CHECK(most == form.most);
          } else {
            CHECK(most.rounds <= form.most.rounds);
            CHECK(most.sent <= form.most.sent);
            CHECK(most.received <= form.most.received);
            CHECK(most.reduced <= form.most.reduced);
          }
        }
      }
    }
  }
  CHECK(exact > 1000);
  CHECK(bounds > 1000);
}

// All of these by rank, in the words of the books once more, and not through the table of forms.
TEST_CASE("what every rank costs by halving, doubling, Bruck, pairwise exchange, swing") {
  const std::int64_t b = 3;
  for (int p = 1; p <= 33; ++p) {
    const std::int64_t n = b * p, moved = b * (p - 1), up = log2_up(p);
    const std::vector<std::int64_t> blocks(static_cast<std::size_t>(p), b);
    const std::vector<std::int64_t> matrix(static_cast<std::size_t>(p * p), b);
    const auto all = [&](Collective what, std::string_view name,
                         const std::vector<std::int64_t>& counts, const Cost& want) {
      for (const Cost& c : costs(what, name, p, counts)) CHECK(c == want);
    };
    all(Collective::all_gather, "bruck", blocks, {up, moved, moved, 0});
    all(Collective::all_gather, "circulant", blocks, {up, moved, moved, 0});
    all(Collective::reduce_scatter, "circulant", blocks, {up, moved, moved, moved});
    all(Collective::reduce_scatter, "pairwise", blocks, {p - 1, moved, moved, moved});
    all(Collective::all_to_all, "pairwise", matrix, {p - 1, moved, moved, 0});
    if (p != 1 << log2_down(p)) continue;
    all(Collective::all_to_all, "bruck", matrix, {up, n / 2 * up, n / 2 * up, 0});
    all(Collective::all_gather, "recursive_doubling", blocks, {up, moved, moved, 0});
    all(Collective::reduce_scatter, "recursive_halving", blocks, {up, moved, moved, moved});
    const Cost best{2 * up, 2 * moved, 2 * moved, moved};
    all(Collective::all_reduce, "rabenseifner", {n}, best);
    all(Collective::all_reduce, "swing", {n}, best);
  }
}

TEST_CASE("the double tree keeps everybody busy: nobody sends more than twice the buffer") {
  for (int p = 2; p <= 65; ++p) {
    World world{Collective::all_reduce, p, 0, {960}};
    world.chunk = 96;
    const auto programs = world.programs(*find(Collective::all_reduce, "double_tree"));
    std::int64_t sent = 0;
    for (const Program& program : programs) {
      const Cost c = cost(program);
      CHECK(c.rounds <= 3 * log2_up(p) + 9);
      CHECK(c.sent <= 2 * 960);
      CHECK(c.sent >= 960 / 2);
      CHECK(c.reduced <= 960);
      sent += c.sent;
    }
    CHECK(sent == std::int64_t{2} * 960 * (p - 1));
  }
}

TEST_CASE("trees of the double tree: they span, and only rank 0 of odd worlds is inner in both") {
  using Shape = BinaryTree::Shape;
  for (int p = 2; p <= 130; ++p) {
    const BinaryTree first(p, Shape::plain),
        second(p, p % 2 == 0 ? Shape::mirrored : Shape::shifted);
    for (int rank = 0; rank < p; ++rank) {
      for (const BinaryTree& tree : {first, second}) {
        CHECK(tree.depth(rank) <= log2_up(p));
        for (const int child : tree.children(rank)) CHECK(tree.parent(child) == rank);
        const int parent = tree.parent(rank);
        if (parent == BinaryTree::none) continue;
        const auto siblings = tree.children(parent);
        CHECK(std::ranges::count(siblings, rank) == 1);
      }
      const bool inner_in_both = !first.children(rank).empty() && !second.children(rank).empty();
      CHECK((!inner_in_both || (rank == 0 && p % 2 == 1)));
    }
  }
}

TEST_CASE("a pipeline costs a round more a chunk, and the same elements") {
  for (const int k : {1, 2, 7}) {
    World world{Collective::broadcast, 5, 2, {14}};
    world.chunk = 14 / k;
    std::vector<Cost> all;
    for (const Program& program : world.programs(*find(Collective::broadcast, "chain"))) {
      all.push_back(cost(program));
    }
    CHECK(all[2] == Cost{k, 14, 0, 0});
    CHECK(all[3] == Cost{k + 1, 14, 14, 0});
    CHECK(all[1] == Cost{k, 0, 14, 0});
  }
}

TEST_CASE("any algorithm that keeps step can be cut into a pipeline") {
  for (const char* name : {"ring", "circulant", "rabenseifner", "recursive_doubling", "swing"}) {
    const Entry& entry = *find(Collective::all_reduce, name);
    for (const int p : {2, 4, 8}) {
      const World world{Collective::all_reduce, p, 0, {50}};
      std::vector<Program> programs;
      for (int rank = 0; rank < p; ++rank) {
        programs.push_back(segment(entry.make, world.problem(rank), 3));
      }
      for (const Aliasing aliasing : {Aliasing::out_of_place, Aliasing::in_place}) {
        const Verdict verdict = verify(world.problem(), programs, aliasing);
        CHECK_MESSAGE(verdict.ok, world.text(entry, true), ": ", verdict.why);
      }
    }
  }
}

TEST_CASE("barrier by dissemination: ceil(log2 p) rounds of nothing") {
  for (int p = 1; p <= 33; ++p) {
    for (const Cost& c : costs(Collective::barrier, "dissemination", p, {})) {
      CHECK(c == Cost{log2_up(p), 0, 0, 0});
    }
  }
}

}  // namespace
}  // namespace peal::comm
