// SPDX-License-Identifier: Apache-2.0
// What the pages of peal-schedule view hold: the messages in their rounds, from which a second look
// at the numbers alone makes the same contents as the verifier has; who waits for whom; a page that
// is whole. That a browser shows it is view_pages_test.sh.
#include "schedule_worlds.h"

#include <doctest/doctest.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/verify/verify.h>
#include <peal/launch/tools/schedule/damage.h>
#include <peal/launch/tools/schedule/view/cells.h>
#include <peal/launch/tools/schedule/view/compare_json.h>
#include <peal/launch/tools/schedule/view/page.h>
#include <peal/launch/tools/schedule/view/pipeline_json.h>
#include <peal/launch/tools/schedule/view/schedule_json.h>
#include <peal/launch/tools/schedule/view/step_json.h>
#include <peal/tests/errors.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace peal;
using namespace peal::comm;
using nlohmann::json;
using peal::launch::Cells;
using peal::launch::Damaged;
using peal::launch::schedule_json;
using peal::launch::ViewedSchedule;
using peal::testing::contains;
using peal::testing::error_of;

namespace {

ViewedSchedule viewed(const Entry& entry, const World& world) {
  return {.what = world.what,
          .algorithm = std::string(entry.name),
          .title = world.text(entry),
          .programs = world.programs(entry),
          .world = &world,
          .damage = {},
          .wanted = nullptr,
          .timelines = {}};
}

struct Cell {
  std::int64_t element = 0;
  std::uint64_t who = 0;  // a bit a rank; 0: nothing
  bool operator==(const Cell&) const = default;
};
using Memory = std::vector<std::vector<std::vector<Cell>>>;  // by rank, buffer, cell

std::size_t cells_of(const json& all, std::size_t rank, std::size_t buffer) {
  const auto& edges = all["buffers"][buffer]["edges"];
  std::size_t count = 0;
  while (count + 1 < edges.size() && edges[count] < all["sizes"][rank][buffer]) ++count;
  return count;
}

// The page's own way: row by row, all of one from what was there before it.
Memory replayed(const json& all) {
  const bool news = all["collective"] == "barrier";
  Memory memory;
  for (std::size_t r = 0; r < all["ranks"]; ++r) {
    auto& mine = memory.emplace_back();
    for (std::size_t b = 0; b < 4; ++b) {
      auto& cells = mine.emplace_back(cells_of(all, r, b));
      for (std::size_t c = 0; c < cells.size(); ++c) {
        const std::int64_t element = news ? 0 : all["first"][r].get<std::int64_t>();
        const auto edge = all["buffers"][b]["edges"][c].get<std::int64_t>();
        if (b == 0 || (news && b == 1)) cells[c] = {element + edge, std::uint64_t{1} << r};
      }
    }
  }
  for (int row = 0; row < all["rows"]; ++row) {
    const Memory before = memory;
    for (const json& e : all["events"]) {
      const int kind = e[1];
      if (e[0] != row || (kind == 6 && !news)) continue;
      REQUIRE(e[7] == e[10]);
      for (std::size_t i = 0; i < e[7]; ++i) {
        const Cell& got = before[e[2]][e[5]][e[6].get<std::size_t>() + i];
        Cell& cell = memory[e[3]][e[8]][e[9].get<std::size_t>() + i];
        const bool adds = kind == 2 || kind == 4;
        if (adds) REQUIRE(cell.element == got.element);
        if (adds) REQUIRE((cell.who & got.who) == 0);
        cell = {got.element, adds || news ? cell.who | got.who : got.who};
      }
    }
  }
  return memory;
}

// What the verifier has at the end, in the page's cells.
void check_final(const json& all, const World& world, const std::vector<Program>& programs) {
  Contents contents;
  REQUIRE(verify(world.problem(), programs, Aliasing::out_of_place, contents).ok);
  const Memory memory = replayed(all);
  for (std::size_t r = 0; r < contents.size(); ++r) {
    const auto& mine = all["final"][r];
    REQUIRE(mine.size() == memory[r][1].size());
    std::size_t at = 0;
    for (std::size_t c = 0; c < mine.size(); ++c) {
      const Cell said{mine[c][0], std::stoull(mine[c][1].get<std::string>(), nullptr, 16)};
      CHECK(memory[r][1][c] == said);
      const auto& edges = all["buffers"][1]["edges"];
      for (std::int64_t i = edges[c]; i < edges[c + 1] && world.what != Collective::barrier; ++i) {
        std::uint64_t who = 0;
        for (const int rank : contents[r][at].contributors) who |= std::uint64_t{1} << rank;
        const std::int64_t element = who == 0 ? 0 : said.element + i - edges[c].get<std::int64_t>();
        CHECK(contents[r][at].element == element);
        CHECK(who == said.who);
        ++at;
      }
    }
    if (world.what != Collective::barrier) CHECK(at == contents[r].size());
  }
}

// Each side of each message stands once, as the step of its rank and round says.
void check_rounds(const json& all, const std::vector<Program>& programs) {
  std::size_t steps = 0, sides = 0;
  for (const Program& program : programs) {
    for (const Round& round : program.rounds) steps += round.size();
  }
  std::vector<std::vector<int>> last(programs.size());
  for (const json& e : all["events"]) {
    const bool message = e[1] == 1 || e[1] == 2 || e[1] == 6;
    sides += message ? 2 : 1;
    const auto round = [&](int rank, std::size_t number) -> const Round& {
      return programs[static_cast<std::size_t>(rank)].rounds[number];
    };
    if (!message) {
      CHECK(std::ranges::any_of(round(e[4], e[11]), [&](const Step& step) {
        return static_cast<int>(step.kind) == e[1];
      }));
      continue;
    }
    CHECK(std::ranges::any_of(round(e[2], e[11]), [&](const Step& step) {
      return (step.kind == Kind::send || step.kind == Kind::signal) && step.peer == e[3];
    }));
    CHECK(std::ranges::any_of(round(e[3], e[12]), [&](const Step& step) {
      return static_cast<int>(step.kind) == e[1] && step.peer == e[2];
    }));
  }
  // Who waits for ever never comes to the rounds behind.
  if (all["waiting"].empty()) CHECK(sides == steps);
  CHECK(sides + all["waiting"].size() <= steps);
}

}  // namespace

TEST_CASE("a page's messages make what the verifier has, for every schedule of the table") {
  int pages = 0;
  for (const Entry& entry : all_algorithms()) {
    for (const int p : {1, 2, 4, 5, 8}) {
      if (!entry.supports(p)) continue;
      for (const std::int64_t n : {1, 2 * p + 1}) {
        for (const World& world : comm::testing::worlds_for(entry, p, n)) {
          INFO(world.text(entry, true));
          const ViewedSchedule one = viewed(entry, world);
          const json all = schedule_json(one);
          CHECK(all["waiting"].empty());
          CHECK(all["verdict"]["ok"] == true);
          check_final(all, world, one.programs);
          check_rounds(all, one.programs);
          ++pages;
        }
      }
    }
  }
  CHECK(pages > 300);
}

TEST_CASE("cells are cut so that what moves together goes the same way everywhere") {
  // `in` is copied whole, and `out` sent in halves: so `in` has two cells as well.
  const std::vector<Program> programs{
      {0, {{copy(out({0, 4}), in({0, 4}))}, {send(1, out({0, 2}))}, {send(1, out({2, 2}))}}},
      {0, {{recv(0, out({0, 2}))}, {recv(0, out({2, 2}))}}}};
  Cells cells;
  cells.cut(rows(programs, Stuck::show));
  CHECK(cells.edges(Buffer::in) == std::vector<std::int64_t>{0, 2, 4});
  CHECK(cells.edges(Buffer::out) == std::vector<std::int64_t>{0, 2, 4});
  CHECK(cells.of(out({2, 2})) == std::pair(1, 1));
  CHECK(cells.of(in({0, 4})) == std::pair(0, 2));
  CHECK(cells.of(Span{}) == std::pair(0, 0));
}

TEST_CASE("a schedule that is stuck says who waits, and the circle if there is one") {
  const World world{.what = Collective::broadcast, .ranks = 3, .counts = {2}};
  ViewedSchedule stuck{.what = world.what,
                       .algorithm = "own",
                       .title = "three",
                       .programs = {},
                       .world = &world,
                       .damage = "none of it",
                       .wanted = nullptr,
                       .timelines = {}};
  const Block all{0, 2};
  stuck.programs = {{0, {{recv(2, out(all))}, {send(1, out(all))}}},
                    {0, {{recv(0, out(all))}, {send(2, out(all))}}},
                    {0, {{recv(1, out(all))}, {send(0, out(all))}}}};
  json shown = schedule_json(stuck);
  CHECK(shown["verdict"]["ok"] == false);
  CHECK(contains(shown["verdict"]["why"].get<std::string>(), "deadlock"));
  CHECK(shown["circle"] == json{0, 2, 1});
  CHECK(shown["waiting"].size() == 3);
  CHECK_FALSE(shown.contains("final"));
  stuck.programs[2] = {};  // it has finished: no circle, and the others wait for it
  shown = schedule_json(stuck);
  CHECK(shown["circle"].empty());
  CHECK(shown["waiting"] == json{{0, 0, 2, 1, 1, 0, 1, 0}, {0, 1, 0, 1, 1, 0, 1, 0}});
}

TEST_CASE("damaged schedules are shown as far as they come") {
  int pages = 0;
  for (const Entry& entry : all_algorithms()) {
    if (entry.what != Collective::all_reduce || !entry.supports(4)) continue;
    const World world{.what = entry.what, .ranks = 4, .counts = {8}};
    for (const char* how : {"drop", "shift", "peer", "count", "twice", "merge", "swap"}) {
      for (const std::uint64_t which : {1, 2, 3}) {
        INFO(entry.name, ", ", std::string(how), " ", which);
        ViewedSchedule one = viewed(entry, world);
        Damaged found;
        const std::string error =
            error_of([&] { found = launch::damaged(world, one.programs, how, which); });
        if (contains(error, "none did any harm")) continue;  // there is nothing of the kind to do
        REQUIRE(error == "nothing");
        ++pages;
        one.programs = found.programs;
        one.damage = found.damage;
        Contents wanted;
        CHECK(verify(world.problem(), world.programs(entry), Aliasing::out_of_place, wanted).ok);
        one.wanted = &wanted;
        const json all = schedule_json(one);
        for (const json& mine : all["final"]) {
          for (const json& cell : mine) CHECK(cell[1] == "f");
        }
        CHECK(all["verdict"]["why"] == found.verdict.why);
        CHECK(all["rows"] > 0);
        check_rounds(all, one.programs);
      }
    }
  }
  CHECK(pages > 200);
}

TEST_CASE("a pipeline's page has its actions, when they run and whom they are for") {
  for (const pipeline::Kind kind : pipeline::all_kinds) {
    pipeline::Problem problem = make_problem(kind, 4, 8);
    problem.skips = {{0, 2}, {1, 3}};
    const auto programs = schedule(problem);
    const pipeline::Run run = simulate(problem, programs, {.message = 0.25});
    const json all = launch::pipeline_json({.problem = problem,
                                            .run = run,
                                            .verdict = verify(problem, programs),
                                            .message = 0.25,
                                            .title = "four",
                                            .note = ""});
    INFO(name(kind));
    CHECK(all["verdict"]["ok"] == true);
    CHECK(all["makespan"].get<double>() == doctest::Approx(run.makespan));
    std::multiset<std::tuple<int, int, std::string>> sent, shown;  // from, to, what
    for (int r = 0; r < 4; ++r) {
      const auto& mine = all["ranks"][static_cast<std::size_t>(r)];
      CHECK(mine.size() == run.ranks[static_cast<std::size_t>(r)].size());
      for (const json& a : mine) {
        if (a[5] >= 0) shown.emplace(r, a[5].get<int>(), a[6].get<std::string>());
        for (const json& past : a[7]) shown.emplace(r, past.get<int>(), a[6].get<std::string>());
      }
      for (const pipeline::Step& step : programs[static_cast<std::size_t>(r)]) {
        if (step.verb == pipeline::Verb::send) {
          sent.emplace(r, step.peer, text(step.action, problem));
        }
      }
    }
    CHECK(sent == shown);
  }
}

TEST_CASE("a page of who wins has what the closed forms count, where there is a plan") {
  Machine machine;
  machine.between = {.latency = 2e-6, .rate = 1e-9, .gap = 1e-7};
  machine.reduce = 2e-9;
  const json all = launch::compare_json(Collective::all_reduce, {4, 6}, {64, 4096}, machine);
  CHECK(all["machine"] ==
        json{{"latency", 2e-6}, {"gap", 1e-7}, {"per_byte", 1e-9}, {"reduce", 2e-9}});
  std::set<std::string> names;
  for (const json& one : all["algorithms"]) {
    const std::string name = one["name"];
    names.insert(name);
    CHECK(one["costs"].size() == 2);
    // 6 rounds of a message of a fourth; 10 of a sixth, rounded up.
    if (name == "ring") CHECK(one["costs"][0][1] == json{6, 6, 6 * 256, 3 * 256});
    if (name == "ring") CHECK(one["costs"][1][1] == json{10, 10, 10 * 171, 5 * 171});
    if (name == "direct") CHECK(one["costs"][0][0] == json{2, 6, 24, 12});
    if (name == "swing") CHECK(one["costs"][1] == json{nullptr, nullptr});
  }
  CHECK(names.contains("ring"));
  CHECK(names.contains("direct"));
  CHECK(names.contains("swing"));
  CHECK_FALSE(names.contains("direct_slices"));  // in shared memory
}

TEST_CASE("a measured step's page has its buckets and the ops beside them, from the step's begin") {
  StepBucket bucket{.bytes = 32, .label = "w", .held_by = "w", .time = {}, .phases = {}};
  bucket.time = {.ready = 5, .sent = 5.5, .over = 0, .collectives = {{}}};
  bucket.time.collectives[0].begin = bucket.time.collectives[0].first = 5.5;
  bucket.time.collectives[0].end = 8;
  TrainingStep step{.model = 1, .step = 3, .ranks = {}};
  for (const int rank : {0, 1}) {
    step.ranks.push_back(
        {.rank = rank, .times = {rank, 1, 3, 2, 4, 6, 9}, .ops = {}, .buckets = {bucket}});
    step.ranks.back().ops.push_back({rank, 4, 6, true, true, "matmul"});
  }
  const json all = launch::step_json(step, {{{{5.5, 7}}}, {{}}}, "three");
  CHECK(all["end"] == 7'000'000'000);
  const json& lanes = all["ranks"][0]["lanes"];
  CHECK(lanes[0]["bars"] == json{{1, 2'000'000'000, 4'000'000'000, "matmul"},
                                 {2, 4'000'000'000, 7'000'000'000, "waits for gradients"}});
  CHECK(lanes[1]["bars"] ==
        json{{3, 3'000'000'000, 3'500'000'000, ""}, {6, 3'500'000'000, 6'000'000'000, ""}});
  CHECK(lanes[1]["model"] == json{{3'500'000'000, 5'000'000'000}});
  CHECK(all["ranks"][1]["lanes"][1]["model"].empty());
  CHECK(all["ranks"][1]["exposed"] == 3'000'000'000);
}

TEST_CASE("a page is whole, and no text in it ends it early") {
  const std::string text = launch::page({{"title", "a <b> & c"},
                                         {"command", "x </script><script>alert(1)"},
                                         {"views", json::array()}});
  CHECK(contains(text, "<title>a &lt;b&gt; &amp; c</title>"));
  CHECK_FALSE(contains(text, "</script><script>alert(1)"));
  for (const char* left : {"@TITLE@", "@CSS@", "@SCRIPT@", "@DATA@", "src=", "@import", "fetch("}) {
    INFO(left);
    CHECK_FALSE(contains(text, left));
  }
  CHECK(contains(text, "class Replay"));
  const std::string data = "<script type=\"application/json\" id=\"data\">";
  const auto at = text.find(data) + data.size();
  const json back = json::parse(text.substr(at, text.find("</script>", at) - at));
  CHECK(back["command"] == "x </script><script>alert(1)");
  const std::string large(1'500'000, 'x');
  CHECK(
      contains(error_of([&] {
                 (void)launch::page({{"title", ""}, {"command", large}, {"views", json::array()}});
               }),
               "expected a page of at most 1500000 bytes"));
  const World world{.what = Collective::barrier, .ranks = 65};
  ViewedSchedule many{.what = world.what,
                      .algorithm = "own",
                      .title = "",
                      .programs = {},
                      .world = &world,
                      .damage = {},
                      .wanted = nullptr,
                      .timelines = {}};
  many.programs.resize(65);
  CHECK(contains(error_of([&] { (void)schedule_json(many); }), "at most 64 ranks, got 65"));
}
