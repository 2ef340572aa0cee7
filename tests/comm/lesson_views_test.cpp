// SPDX-License-Identifier: Apache-2.0
// What the pages of peal-schedule view hold that show no schedule: their numbers are those that the
// library computes, and what they say of them is so. That a browser shows it is
// view_pages_test.sh.
#include <doctest/doctest.h>
#include <peal/data/batches.h>
#include <peal/data/sampler.h>
#include <peal/launch/tools/schedule/view/bits_json.h>
#include <peal/launch/tools/schedule/view/failure_json.h>
#include <peal/launch/tools/schedule/view/lines_json.h>
#include <peal/launch/tools/schedule/view/memory_json.h>
#include <peal/launch/tools/schedule/view/sampler_json.h>
#include <peal/tests/errors.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <vector>

using namespace peal;
using launch::bits_json;
using launch::failure_json;
using launch::lines_json;
using launch::memory_json;
using launch::MemoryViewOptions;
using launch::sampler_json;
using launch::SamplerViewOptions;
using nlohmann::json;
using peal::testing::contains;
using peal::testing::error_of;

namespace {

// The samples of a rank in a phase of a page, one after the other.
std::vector<std::int64_t> read_by(const json& phase, std::size_t rank) {
  std::vector<std::int64_t> all;
  for (const json& step : phase["steps"]) {
    for (const json& one : step[rank]) all.push_back(one[0]);
  }
  return all;
}

// Which places of the order a phase reads, and that these samples stand there.
std::multiset<std::int64_t> places_of(const json& phase, const json& order, std::int64_t& fills) {
  std::multiset<std::int64_t> places;
  for (const json& step : phase["steps"]) {
    for (const json& batch : step) {
      for (const json& one : batch) {
        const std::int64_t place = one[1];
        if (place < 0) ++fills;
        if (place < 0) continue;
        CHECK(order[static_cast<std::size_t>(place)] == one[0]);
        places.insert(place);
      }
    }
  }
  return places;
}

}  // namespace

TEST_CASE("a page of samplers: each is read once by all ranks together, wherever it was left") {
  int pages = 0;
  for (const char* way : {"samples", "batches", "split", "contiguous", "dispatched"}) {
    for (const auto& [ranks, resumed] : {std::pair(3, 2), std::pair(2, 4), std::pair(2, 2)}) {
      for (const bool exact : {false, true}) {
        for (std::int64_t taken = 0; taken <= 2; ++taken) {
          const SamplerViewOptions options{.samples = 37,
                                           .batch_size = std::string(way) == "split" ? 12 : 2,
                                           .ranks = ranks,
                                           .resumed = resumed,
                                           .taken = taken,
                                           .epoch = 3,
                                           .seed = 5,
                                           .exact = exact,
                                           .way = way};
          INFO(std::string(way), ", ", ranks, " ranks, then ", resumed, ", ", exact, ", after ",
               taken);
          const json all = sampler_json(options);
          CHECK(all["order"] == data::shard(37, 1, 0, {.seed = 5, .epoch = 3}));
          const json& mine = all["ways"][0];
          std::int64_t fills = 0;
          auto places = places_of(mine["phases"][0], all["order"], fills);
          places.merge(places_of(mine["phases"][1], all["order"], fills));
          CHECK(places.size() == 37);
          CHECK(std::set<std::int64_t>(places.begin(), places.end()).size() == 37);
          CHECK(mine["lost"].empty());
          CHECK(mine["repeated"].empty() == (fills == 0));
          if (exact) CHECK(fills == 0);
          // As many ranks as before: then skipping is as good, and only then.
          const json& skipping = all["ways"][1];
          if (ranks == resumed) CHECK(skipping["phases"] == mine["phases"]);
          ++pages;
        }
      }
    }
  }
  CHECK(pages == 90);
}

TEST_CASE("a page of samplers has what DistributedSampler gives each rank") {
  const json all = sampler_json({.samples = 26, .ranks = 4, .resumed = 3, .taken = 2});
  const json& state = all["ways"][0];
  for (int rank = 0; rank < 4; ++rank) {
    auto whole = data::shard(26, 4, rank);
    whole.resize(4);  // two steps of two
    CHECK(read_by(state["phases"][0], static_cast<std::size_t>(rank)) == whole);
  }
  for (int rank = 0; rank < 3; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    CHECK(read_by(state["phases"][1], at) == data::shard(26, 3, rank, {.consumed = 16}));
    const auto whole = data::shard(26, 3, rank);
    const json& skipping = all["ways"][1]["phases"][1];
    CHECK(read_by(skipping, at) == std::vector(whole.begin() + 4, whole.end()));
    CHECK(read_by(all["ways"][2]["phases"][1], at) == whole);
  }
  CHECK(state["state"][1] == json{"consumed", "16"});
  CHECK(state["bytes"] == 32);
  // The new ranks skip 12 places of the order, of which the old ones have read 16.
  CHECK(all["ways"][1]["lost"].empty());
  CHECK(all["ways"][1]["repeated"].size() >= 4);
  const json more = sampler_json({.samples = 26, .ranks = 3, .resumed = 4, .taken = 2});
  CHECK(more["ways"][1]["lost"].size() == 4);
  CHECK(contains(error_of([] { (void)sampler_json({.taken = 6}); }), "expected 0 to 5"));
  CHECK(contains(error_of([] { (void)sampler_json({.way = "by_chance"}); }), "got 'by_chance'"));
  CHECK(contains(error_of([] { (void)sampler_json({.samples = 401}); }), "1 to 400 samples"));
}

namespace {

enum Part { parameters, gathered, gradients, buckets, state, activations };

std::int64_t most(const json& rank, const std::vector<Part>& parts) {
  std::int64_t found = 0;
  for (const json& held : rank) {
    std::int64_t sum = 0;
    for (const Part part : parts) sum += held[part].get<std::int64_t>();
    found = std::max(found, sum);
  }
  return found;
}

}  // namespace

TEST_CASE("a memory ledger holds what the plans and the estimates say, and what is measured") {
  constexpr std::int64_t width = 32, blocks = 5, ranks = 4;
  const json all = memory_json(
      {.width = width, .blocks = blocks, .batch = 64, .ranks = ranks, .bucket_bytes = 20000});
  const std::int64_t block = 8 * width * width + 5 * width, elements = blocks * block;
  CHECK(all["elements"] == elements);
  REQUIRE(all["moments"].size() == 2 * blocks + 2);
  const auto& ways = all["ways"];
  REQUIRE(ways.size() == 5);
  for (const json& way : ways) {
    CAPTURE(way["name"].get<std::string>());
    REQUIRE(way["ranks"].size() == ranks);
    std::int64_t largest = 0;
    for (const json& rank : way["ranks"]) {
      REQUIRE(rank.size() == all["moments"].size());
      CHECK(rank[0][activations] == 0);
      CHECK(rank[0][gradients] == 0);
      // In the end a rank has what the estimate says.
      const json& end = rank.back();
      largest = std::max<std::int64_t>(largest, end[parameters].get<std::int64_t>() +
                                                    end[gradients].get<std::int64_t>() +
                                                    end[state].get<std::int64_t>());
    }
    CHECK(largest == way["estimate"]);
  }
  const auto in_all = [](const json& way, Part part) {
    std::int64_t sum = 0;
    for (const json& rank : way["ranks"]) sum += rank.back()[part].get<std::int64_t>();
    return sum;
  };
  CHECK(ways[0]["estimate"] == 16 * elements);
  CHECK(in_all(ways[2], state) == 8 * elements);
  CHECK(in_all(ways[3], gradients) == 4 * elements);
  CHECK(in_all(ways[3], state) == 8 * elements);
  // Two blocks are there at once; chunks are filled up.
  const std::int64_t gathered_block = (block + ranks - 1) / ranks * ranks * 4;
  CHECK(most(ways[4]["ranks"][0], {gathered}) == 2 * gathered_block);
  CHECK(most(ways[4]["ranks"][0], {gradients}) < 3 * gathered_block);
  CHECK(most(ways[4]["ranks"][0], {gradients}) > gathered_block);
  // What is recomputed is not kept: here a block keeps about a tenth of it.
  CHECK(2 * most(ways[1]["ranks"][0], {activations}) < most(ways[0]["ranks"][0], {activations}));
  CHECK(ways[0]["ranks"][0][blocks][activations] > ways[0]["ranks"][0][1][activations]);
  CHECK(contains(error_of([] { (void)memory_json({.ranks = 17}); }), "--ranks: expected 1 to 16"));
}

namespace {

// What a rank learned, or nothing.
std::string learned(const json& rank) {
  for (const json& one : rank) {
    if (one[1] == "learns") return one[2];
  }
  return "";
}

}  // namespace

TEST_CASE("a page of failures has what each rank printed, of runs that have failed") {
  for (const char* how : {"killed", "root", "stopped"}) {
    const std::string name = how;
    CAPTURE(name);
    const json all = failure_json({.ranks = 3, .deadline_ms = 300, .how = name});
    REQUIRE(all["failures"].size() == 1);
    CHECK(all["victim"] == 1);
    const json& ranks = all["failures"][0]["ranks"];
    REQUIRE(ranks.size() == 3);
    for (const std::size_t rank : {0, 2}) {
      CHECK(contains(learned(ranks[rank]), "rank 1"));
      CHECK(ranks[rank].back()[1] == "ends");
    }
    CHECK(learned(ranks[1]).empty() == (name != "root"));
    const std::string expected = name == "killed" ? "has died"
                                 : name == "root" ? "all ranks must make the same calls"
                                                  : "has not moved";
    CHECK(contains(learned(ranks[0]), expected));
    // Time is counted from the failure, and the ranks had met before it.
    const auto at =
        std::ranges::find(ranks[1], json("fails"), [](const json& one) { return one[1]; });
    REQUIRE(at != ranks[1].end());
    CHECK((*at)[0] == 0);
    CHECK(ranks[1][0][0] < 0);
  }
  CHECK(contains(error_of([] { (void)failure_json({.how = "by_chance"}); }), "got 'by_chance'"));
  CHECK(contains(error_of([] { (void)failure_json({.ranks = 1}); }), "--ranks: expected 2 to 8"));
}

TEST_CASE(
    "a page of bits has sums as they are added, and says how far they are from the exact one") {
  const json all = bits_json({.ranks = 4, .elements = 3, .steps = 0});
  const json& numbers = all["elements"][0];
  CHECK(numbers["inputs"][1] == json{"-100000000", std::bit_cast<std::uint32_t>(-1e8F)});
  CHECK(numbers["exact"] == json{"2", std::bit_cast<std::uint32_t>(2.0F)});
  const auto way = [&](const std::string& name) {
    return *std::ranges::find(all["algorithms"], json(name),
                              [](const json& one) { return one["name"]; });
  };
  // (1e8 + 1) is 1e8, and so is -1e8 + 1: what pairs these has lost the ones.
  CHECK(way("ring")["sums"][0] ==
        json{"2", std::bit_cast<std::uint32_t>(2.0F), 0, "(3 + (2 + (1 + 0)))"});
  const json lost = way("rabenseifner")["sums"][0];
  CHECK(lost[0] == "0");
  CHECK(lost[1] == 0);
  CHECK(lost[2] == std::bit_cast<std::uint32_t>(2.0F));
  CHECK(lost[3] == "((0 + 2) + (1 + 3))");
  CHECK(way("deterministic mode")["sums"][0][0] == "2");
  CHECK(way("ring, again")["sums"] == way("ring")["sums"]);
  const json halves = bits_json({.ranks = 3, .elements = 2, .type = "bf16", .steps = 0});
  const json two = bits_json({.ranks = 2, .elements = 1, .steps = 4});
  for (const json& one : two["algorithms"]) {
    CHECK(one["losses"].size() == 4);
    CHECK(one["losses"] == two["algorithms"][0]["losses"]);  // of two there is one order
    CHECK(one["differs"] == -1);
  }
  CHECK(halves["bits"] == 16);
  CHECK(
      contains(error_of([] { (void)bits_json({.type = "f64"}); }), "f32, f16 or bf16, got 'f64'"));
}

TEST_CASE("a page of cache lines moves what the slices of an all_reduce have to move") {
  constexpr std::int64_t p = 4, lines = 16, slice = lines / p;
  const json all = lines_json({.algorithm = "direct_slices", .ranks = p, .count = lines * 16});
  CHECK(all["lines"][0] == lines);
  // Each rank reads its slice of all others' in, and writes it to all their out.
  const json& direct = all["algorithms"][0];
  REQUIRE(direct["name"] == "direct_slices");
  CHECK(direct["got"] == 2 * (p - 1) * lines);
  CHECK(direct["lost"] == (p - 1) * lines);
  std::int64_t got = 0, lost = 0;
  std::vector<int> last(p * lines, -1);  // who has the lines of out
  for (const json& touch : all["touches"]) {
    CHECK(touch[0] < all["rows"]);
    got += touch[5].get<std::int64_t>();
    lost += touch[6].get<std::int64_t>();
    const int memory = touch[1], line = touch[2], rank = touch[3], holders = touch[7];
    if (touch[4] == 1) CHECK(holders == 1 << rank);
    if (touch[4] == 0) CHECK((holders >> rank & 1) == 1);
    if (memory % 4 == 1) last[static_cast<std::size_t>(memory / 4 * lines + line)] = holders;
  }
  CHECK(got == direct["got"]);
  CHECK(lost == direct["lost"]);
  for (int at = 0; at < p * lines; ++at) {
    CHECK(last[static_cast<std::size_t>(at)] == 1 << at % lines / slice);
  }
  CHECK(all["signals"].size() == direct["signals"]);
  for (const json& one : all["algorithms"]) {
    CHECK(one["us"].is_null() == (p > all["cores"].get<std::int64_t>()));
  }
  CHECK(contains(error_of([] { (void)lines_json({.algorithm = "ring"}); }), "ring sends messages"));
}
