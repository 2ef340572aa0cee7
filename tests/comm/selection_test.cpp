// SPDX-License-Identifier: Apache-2.0
// Which algorithm a call gets: by the user's rules, by measured ones, by those that are built in.
#include <peal/autograd/core/error.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/group/defaults.h>
#include <peal/comm/group/selection.h>

#include <cstdint>
#include <string>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::comm;

namespace {

constexpr Means messages{}, memory{.shared = true}, natively{.native = true};

Selection measured() {
  return {"",
          4,
          1,
          {"a file", Rules("all_reduce=slots:0-99;direct_slices/512:100-max", "test"),
           Rules("all_reduce=native:0-99;swing:100-max", "test")}};
}

}  // namespace

TEST_CASE("PEAL_ALGO names collectives, algorithms, ranges and chunks that there are") {
  const auto refused = [](const char* text) { return Selection(text, 3, 1); };
  CHECK_THROWS_WITH_AS(refused("all_reduce=rings"), doctest::Contains("there are native"), Error);
  CHECK_THROWS_WITH_AS(refused("all_reduce"), doctest::Contains("collective=algorithm"), Error);
  CHECK_THROWS_WITH_AS(refused("all_reduce=ring:5"), doctest::Contains("first-last"), Error);
  CHECK_THROWS_WITH_AS(refused("bcast=ring"), "PEAL_ALGO: there is no collective 'bcast'", Error);
  CHECK_THROWS_WITH_AS(refused("all_reduce=ring/64"), doctest::Contains("knows no chunks"), Error);
  CHECK_THROWS_WITH_AS(refused("all_reduce=native/64"), doctest::Contains("no chunks"), Error);
  for (const char* wrong : {"broadcast=chain/", "broadcast=chain/0", "broadcast=chain/64/64",
                            "broadcast=chain/max", "broadcast=chain/-1", "broadcast=chain/64k"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(refused(wrong), Error);
  }
  const Selection selection(
      "all_reduce=recursive_doubling:0-100;ring:101-max,broadcast=chain/4096:7-9", 3, 1);
  const auto choice = [&](Collective what, std::int64_t bytes) {
    return selection.choose(what, bytes, messages);
  };
  CHECK(choice(Collective::all_reduce, 100).algorithm == "recursive_doubling");
  CHECK(choice(Collective::all_reduce, 101).algorithm == "ring");
  CHECK(choice(Collective::all_reduce, 101).why == "PEAL_ALGO");
  CHECK(choice(Collective::broadcast, 9).chunk == 4096);
  CHECK(choice(Collective::broadcast, 9).asked_for);
  CHECK(choice(Collective::broadcast, 10).why == "built in");
  CHECK_FALSE(choice(Collective::broadcast, 10).asked_for);
}

TEST_CASE("rules are written as they are read") {
  for (const char* text :
       {"", "barrier=signals", "all_reduce=slots:0-99;direct_slices/512:100-max,reduce=chain/64",
        "all_gather=native:7-7,all_reduce=ring:0-7"}) {
    CHECK(Rules(text, "test").text() == text);
  }
}

TEST_CASE("what the user says goes before what was measured, and that before what is built in") {
  const Selection selection = measured();
  const Choice small = selection.choose(Collective::all_reduce, 99, memory);
  CHECK(small.algorithm == "slots");
  CHECK(small.why == "a file");
  const Choice large = selection.choose(Collective::all_reduce, 100, memory);
  CHECK(large.algorithm == "direct_slices");
  CHECK(large.chunk == 512);
  CHECK(selection.choose(Collective::all_reduce, 1 << 30, messages).algorithm == "swing");
  CHECK(selection.choose(Collective::reduce, 100, memory).why == "built in");
  const Selection asked("all_reduce=ring:0-7", 4, 1,
                        {"a file", Rules("all_reduce=slots", "test"), {}});
  CHECK(asked.choose(Collective::all_reduce, 7, memory).algorithm == "ring");
  CHECK(asked.choose(Collective::all_reduce, 8, memory).algorithm == "slots");
}

TEST_CASE("what cannot run is passed over, in every table") {
  const Selection selection = measured();
  CHECK(selection.choose(Collective::all_reduce, 99, natively).algorithm == "native");
  CHECK(selection.choose(Collective::all_reduce, 99, messages).why == "built in");
  const Selection three("", 3, 1, {"a file", {}, Rules("all_reduce=swing", "test")});
  CHECK(three.choose(Collective::all_reduce, 99, messages).why == "built in");
  const Selection asked("all_reduce=slots,broadcast=native", 3, 1);
  CHECK(asked.choose(Collective::all_reduce, 99, memory).why == "PEAL_ALGO");
  CHECK(asked.choose(Collective::all_reduce, 99, messages).why == "built in");
  CHECK(asked.choose(Collective::broadcast, 99, natively).why == "PEAL_ALGO");
  CHECK(asked.choose(Collective::broadcast, 99, messages).why == "built in");
}

TEST_CASE("on a device its own collectives go first, and nothing measured on the CPU counts") {
  const Selection selection = measured();
  CHECK(selection.choose(Collective::all_reduce, 99, {.native = true, .on_device = true}).why ==
        "the device's own");
  CHECK(selection.choose(Collective::all_reduce, 99, {.on_device = true}).why == "built in");
  const Selection asked("all_reduce=ring", 4, 1);
  CHECK(asked.choose(Collective::all_reduce, 99, {.native = true, .on_device = true}).algorithm ==
        "ring");
}

TEST_CASE("the built-in rules serve every collective, size, number of ranks and nodes") {
  for (const int nodes : {1, 2, 5}) {
    for (int world = 1; world <= 130; ++world) {
      const Selection selection("", world, nodes);
      for (const bool shared : {false, true}) {
        if (shared && nodes > 1) continue;
        for (const Collective what : all_collectives) {
          for (std::int64_t bytes = 0; bytes <= std::int64_t{1} << 32; bytes = 2 * bytes + 1) {
            const Choice choice = selection.choose(what, bytes, {.shared = shared});
            const Entry* const entry = find(what, choice.algorithm);
            REQUIRE(entry != nullptr);
            REQUIRE(entry->supports(world));
            REQUIRE(entry->one_sided == shared);
            REQUIRE_FALSE(choice.asked_for);
          }
        }
      }
    }
  }
}

TEST_CASE("between nodes of several ranks an all_reduce goes on two levels") {
  const auto chosen = [](int world, int nodes, std::int64_t bytes, bool crowded = false) {
    const Selection selection("", world, nodes, {}, crowded);
    return std::string(selection.choose(Collective::all_reduce, bytes, messages).algorithm);
  };
  CHECK(chosen(8, 2, 8192) == "recursive_doubling");
  CHECK(chosen(8, 2, 8193) == "hierarchical");
  CHECK(chosen(8, 2, 4, true) == "hierarchical");
  CHECK(chosen(8, 8, 8193) == "circulant");
  CHECK(chosen(8, 8, 8193, true) == "circulant");
  CHECK(chosen(8, 1, 8193) == "circulant");
}

TEST_CASE("where ranks wait for one another's core, one meeting less is worth more") {
  const Rules rules = default_rules(4, 1, true, false);
  const Selection apart("", 4, 1), crowded("", 4, 1, {}, true);
  for (const Rules::Rule& rule : rules.all()) {
    if (rule.algorithm != "slots") continue;
    CHECK(apart.choose(rule.what, rule.last, memory).algorithm == "slots");
    CHECK(apart.choose(rule.what, rule.last + 1, memory).algorithm == "direct_slices");
    if (rule.what == Collective::broadcast) continue;  // goes as far as the room in both
    CHECK(crowded.choose(rule.what, rule.last + 1, memory).algorithm == "slots");
  }
}
