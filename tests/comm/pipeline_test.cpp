// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules: the orders of the books, what they take and keep, and that each is right.
#include "pipeline_judge.h"
#include "pipeline_oracle.h"

#include <doctest/doctest.h>
#include <peal/comm/pipeline/draw.h>
#include <peal/comm/pipeline/verify.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace peal::comm::pipeline {
namespace {

std::string numbers(const std::vector<int>& all) {
  std::string said;
  for (const int one : all) said += (said.empty() ? "" : " ") + std::to_string(one);
  return said;
}

std::string actions(const Problem& problem, const Program& program) {
  std::string said;
  for (const Step& step : program) {
    if (step.verb != Verb::run) continue;
    said += (said.empty() ? "" : " ") + text(step.action, problem);
  }
  return said;
}

// Of 2 to 4 chunks where the kind may have them, else of as many as it has.
std::vector<int> chunks_of(Kind kind) {
  return kind == Kind::interleaved ? std::vector{2, 3, 4} : std::vector{0};
}

TEST_CASE("the orders are those of the books") {
  const auto order = [](Kind kind, int stages, int micro_batches, std::size_t rank) {
    const Problem problem = make_problem(kind, stages, micro_batches);
    return actions(problem, schedule(problem)[rank]);
  };
  CHECK(order(Kind::gpipe, 2, 3, 1) == "F0 F1 F2 B0 B1 B2");
  CHECK(order(Kind::one_f_one_b, 4, 8, 0) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  CHECK(order(Kind::one_f_one_b, 4, 8, 3) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
  CHECK(order(Kind::interleaved, 2, 2, 0) == "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1");
  CHECK(order(Kind::zb_h1, 4, 8, 0) ==
        "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 F6 I3 W3 F7 I4 W4 I5 W5 I6 W6 I7 W7");
  CHECK(order(Kind::zb_h1, 4, 8, 1) ==
        "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 F6 I4 W3 F7 I5 W4 I6 W5 I7 W6 W7");
  CHECK(order(Kind::zb_h1, 4, 8, 3) ==
        "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 W5 W6 W7");
  CHECK(order(Kind::zb_v, 2, 2, 1) == "1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 2I1 2W1 1I1 1W1");
  CHECK(order(Kind::zb_v, 4, 8, 0) ==
        "0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0 7F1 7I1 7W1 7F2 7I2 7W2 7F3 7I3 7W3 0F7 0I0 0W0 "
        "7F4 7I4 7W4 0I1 0W1 7F5 7I5 7W5 0I2 0W2 7F6 7I6 7W6 0I3 0W3 7F7 7I7 7W7 0I4 0W4 0I5 0W5 "
        "0I6 0W6 0I7 0W7");
  // It begins with 2 (p - r) - 1 forwards of its first part.
  const char* const begins[] = {
      "0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0", "1F0 1F1 1F2 1F3 1F4 6F0 1F5 6F1 6I0 6W0",
      "2F0 2F1 2F2 5F0 2F3 5F1 2F4 5F2 5I0 5W0", "3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 4I0 4W0"};
  for (const std::size_t rank : {0, 1, 2, 3}) {
    CHECK(order(Kind::zb_v, 4, 8, rank).rfind(begins[rank], 0) == 0);
  }
  CHECK(order(Kind::one_f_one_b, 1, 2, 0) == "F0 B0 F1 B1");
}

TEST_CASE("what is no pass, or no verb, is refused in words") {
  const Problem problem = make_problem(Kind::gpipe, 2, 1);
  auto programs = schedule(problem);
  programs[0][0].action.pass = static_cast<Pass>(7);
  CHECK(verify(problem, programs).why.find("rank 0, step 0 (0?0): expected one of") == 0);
  programs = schedule(problem);
  programs[0][0].verb = static_cast<Verb>(3);
  CHECK(verify(problem, programs).why.find("expected a step that is one of run, send and recv") !=
        std::string::npos);
}

TEST_CASE("receives are posted an action ahead, in the order of what the two ranks send") {
  std::string said;
  const std::vector<Program> programs = schedule(make_problem(Kind::one_f_one_b, 2, 3));
  for (const Step& step : programs[1]) {
    said += (said.empty() ? "" : ", ") + text(step);
  }
  CHECK(said ==
        "recv 0F0 from 0, 1F0, recv 0F1 from 0, 1B0, send 1B0 to 0, 1F1, recv 0F2 from 0, 1B1, "
        "send 1B1 to 0, 1F2, 1B2, send 1B2 to 0");
}

TEST_CASE("makespan and stash are what an independent program finds") {
  for (const testing::Known& one : testing::known) {
    const Problem problem = make_problem(one.kind, one.stages, one.micro_batches, one.chunks);
    const Run run = simulate(problem, schedule(problem));
    CAPTURE(name(one.kind));
    CAPTURE(one.stages);
    CAPTURE(one.micro_batches);
    CHECK(run.makespan == doctest::Approx(one.makespan).epsilon(1e-12));
    CHECK(run.work == doctest::Approx(3 * one.micro_batches).epsilon(1e-12));
    const bool whole = one.kind != Kind::interleaved || one.micro_batches % one.stages == 0;
    if (whole) CHECK(numbers(run.stash) == one.stash);
  }
}

TEST_CASE("every schedule of 1 to 16 stages and 1 to 64 micro-batches is right, by the books") {
  int proven = 0, by_formula = 0, faults = 0;
  for (const Kind kind : all_kinds) {
    for (const int chunks : chunks_of(kind)) {
      for (int stages = 1; stages <= 16; ++stages) {
        // All of them are proven by `peal-schedule pipeline --verify --all`.
        for (int micro_batches = 1; micro_batches <= 64;
             micro_batches += micro_batches < 8 ? 1 : 1 + stages % 5) {
          const Problem problem = make_problem(kind, stages, micro_batches, chunks);
          const std::vector<Program> programs = schedule(problem);
          const Verdict verdict = verify(problem, programs);
          ++proven;
          if (!verdict.ok) {
            ++faults;
            MESSAGE(name(kind), " ", stages, " x ", micro_batches, ": ", verdict.why);
          }
          const Run run = simulate(problem, programs);
          const auto formula = bubble_formula(problem);
          if (formula) {
            ++by_formula;
            CHECK(run.bubble() == doctest::Approx(formula->value).epsilon(1e-9));
          }
          for (int rank = 0; rank < stages; ++rank) {
            const int bound = stash_bound(problem, rank);
            const int most = run.stash[static_cast<std::size_t>(rank)];
            const bool exact = kind != Kind::interleaved || micro_batches % stages == 0;
            CHECK((exact ? most == bound : most <= bound));
          }
        }
      }
    }
  }
  MESSAGE(proven, " schedules proven, ", by_formula, " bubbles by formula");
  CHECK(faults == 0);
}

TEST_CASE("numbers go through every schedule as through one process") {
  for (const Kind kind : all_kinds) {
    for (const int chunks : chunks_of(kind)) {
      for (int stages = 1; stages <= 6; ++stages) {
        for (const int micro_batches : {1, 2, 3, 5, 8, 13}) {
          const Problem problem = make_problem(kind, stages, micro_batches, chunks);
          const std::vector<Program> programs = schedule(problem);
          const auto judgement = testing::judge(problem, programs, 7);
          CHECK_MESSAGE(judgement.good, name(kind), " ", stages, " x ", micro_batches, ": ",
                        judgement.why);
          CHECK(judgement.stash == simulate(problem, programs).stash);
        }
      }
    }
  }
}

// Up to every pair of parts that a skip can have.
std::vector<Skip> skips_of(const Problem& problem, int stride) {
  std::vector<Skip> skips;
  int next = 0;
  for (int from = 0; from < problem.parts(); ++from) {
    for (int to = from + 2; to < problem.parts(); ++to) {
      if (next++ % stride == 0) skips.push_back({from, to});
    }
  }
  return skips;
}

TEST_CASE("skips go straight to the part that takes them, in every schedule") {
  int proven = 0, messages = 0;
  for (const Kind kind : all_kinds) {
    for (const int chunks : chunks_of(kind)) {
      for (int stages = 1; stages <= 6; ++stages) {
        for (const int micro_batches : {1, 2, 3, 5, 8, 13}) {
          for (const int stride : {1, 3}) {
            Problem problem = make_problem(kind, stages, micro_batches, chunks);
            const double without = simulate(problem, schedule(problem)).makespan;
            problem.skips = skips_of(problem, stride);
            const std::vector<Program> programs = schedule(problem);
            const Verdict verdict = verify(problem, programs);
            CHECK_MESSAGE(verdict.ok, name(kind), " ", stages, " x ", micro_batches, ": ",
                          verdict.why);
            const auto judgement = testing::judge(problem, programs, 7);
            CHECK_MESSAGE(judgement.good, name(kind), " ", stages, " x ", micro_batches, ": ",
                          judgement.why);
            CHECK(simulate(problem, programs).makespan == without);
            ++proven;
            for (const Program& program : programs) {
              for (const Step& step : program) messages += step.skip != no_part;
            }
          }
        }
      }
    }
  }
  MESSAGE(proven, " schedules with skips proven, of ", messages, " messages");
  CHECK(messages > 0);
}

TEST_CASE("the messages of skips, and what skips there cannot be") {
  Problem problem = make_problem(Kind::gpipe, 3, 1);
  problem.skips = {{0, 2}};
  std::string said;
  for (const Program& program : schedule(problem)) {
    for (const Step& step : program) said += text(step) + ", ";
    said += "| ";
  }
  CHECK(said ==
        "0F0, send 0F0 to 1, recv 1B0 from 1, send 0F0 to 2 for 2, recv 2B0 from 2 for 0, 0B0, | "
        "recv 0F0 from 0, 1F0, send 1F0 to 2, recv 2B0 from 2, 1B0, send 1B0 to 0, | "
        "recv 0F0 from 0 for 2, recv 1F0 from 1, 2F0, 2B0, send 2B0 to 0 for 0, send 2B0 to 1, | ");
  auto programs = schedule(problem);
  programs[2][0].skip = 1;
  CHECK(verify(problem, programs).why.find("expected a result that another rank needs") !=
        std::string::npos);
  const auto refused = [](const char* message, const std::vector<Skip>& skips) {
    Problem problem = make_problem(Kind::gpipe, 3, 1);
    problem.skips = skips;
    CHECK_THROWS_WITH_AS(validate(problem), message, std::invalid_argument);
  };
  refused(
      "pipeline gpipe: expected a skip from part 0 to go past the next, to part 2 at most, got 1",
      {{0, 1}});
  refused(
      "pipeline gpipe: expected a skip from part 1 to go past the next, to part 2 at most, got 3",
      {{1, 3}});
  refused("pipeline gpipe: expected skips from part 0 on, got -1", {{-1, 2}});
  refused("pipeline gpipe: expected a skip from part 0 to part 2 once, got 2", {{0, 2}, {0, 2}});
}

TEST_CASE("messages that take time delay what waits for them") {
  const Problem two = make_problem(Kind::one_f_one_b, 2, 1);
  CHECK(simulate(two, schedule(two), {.message = 0.25}).makespan == 6.5);
  // Within a rank nothing is sent: ZB-V turns round in the last one.
  const Problem v = make_problem(Kind::zb_v, 2, 1);
  const double free = simulate(v, schedule(v)).makespan;
  CHECK(simulate(v, schedule(v), {.message = 0.25}).makespan == free + 4 * 0.25);
  // A schedule in which all parts cost more is longer in proportion.
  const Problem four = make_problem(Kind::one_f_one_b, 4, 8);
  CHECK(simulate(four, schedule(four), {.forward = 2, .input = 2, .weight = 2}).makespan == 66);
}

TEST_CASE("what cannot be asked for") {
  const auto refused = [](const char* message, auto call) {
    CHECK_THROWS_WITH_AS(call(), message, std::invalid_argument);
  };
  refused("pipeline 1f1b: expected at least one stage, got 0",
          [] { make_problem(Kind::one_f_one_b, 0, 4); });
  refused("pipeline gpipe: expected at least one micro-batch, got 0",
          [] { make_problem(Kind::gpipe, 2, 0); });
  refused("pipeline interleaved: expected at least 2 chunks of a stage (1f1b has one), got 1",
          [] { make_problem(Kind::interleaved, 2, 4, 1); });
  refused("pipeline zb-v: expected 2 chunks of a stage, got 3",
          [] { make_problem(Kind::zb_v, 2, 4, 3); });
  refused(
      "pipeline zb-h1: expected one chunk of a stage (interleaved and zb-v have several), got 2",
      [] { make_problem(Kind::zb_h1, 2, 4, 2); });
  refused("there is no pipeline schedule '1F1B'; there are: gpipe 1f1b interleaved zb-h1 zb-v",
          [] { kind_named("1F1B"); });
  for (const Kind kind : all_kinds) CHECK(kind_named(name(kind)) == kind);
}

TEST_CASE("what the verifier says") {
  const Problem problem = make_problem(Kind::one_f_one_b, 2, 2);
  const std::vector<Program> valid = schedule(problem);
  REQUIRE(verify(problem, valid).ok);
  const auto said = [&](auto damage) {
    auto programs = valid;
    damage(programs);
    return verify(problem, programs).why;
  };
  const auto drop = [](Program& program, std::string_view what) {
    const auto found =
        std::ranges::find_if(program, [&](const Step& step) { return text(step) == what; });
    REQUIRE(found != program.end());
    program.erase(found);
  };
  CHECK(said([&](auto& p) { p.pop_back(); }) == "expected a program for each of 2 stages, got 1");
  CHECK(
      said([&](auto& p) { drop(p[0], "send 0F1 to 1"); }) ==
      "rank 1, step 2 (recv 0F1 from 0): the messages of ranks 1 and 0 do not meet: the first that "
      "rank 1 has posted is recv 0F1 from 0, that of rank 0 recv 1B0 from 1");
  CHECK(said([&](auto& p) { drop(p[1], "send 1B1 to 0"); }) ==
        "deadlock: rank 0, step 7 (0B1) waits for what never comes");
  CHECK(said([&](auto& p) { drop(p[1], "1F0"); }) ==
        "rank 1, step 2 (1B0): expected its forward before it");
  CHECK(said([&](auto& p) { drop(p[0], "0B1"); }) ==
        "rank 0: expected a whole backward of part 0 for micro-batch 1");
  CHECK(said([&](auto& p) { p[0].insert(p[0].begin(), Step(p[0].front())); }) ==
        "rank 0, step 1 (0F0): expected an action that was not run before");
  CHECK(said([&](auto& p) { p[0].front().action.part = 2; }) ==
        "rank 0, step 0 (2F0): expected one of 2 parts and of 2 micro-batches");
  CHECK(said([&](auto& p) { p[0].front().action.part = 1; }) ==
        "rank 0, step 0 (1F0): expected a part of its own, got one of rank 1");
  CHECK(said([&](auto& p) { std::swap(p[0][0], p[0][1]); }) ==
        "rank 0, step 0 (send 0F0 to 1): expected to have run it before");
  // Both would send first: only a transport that buffers lets them go on.
  const auto both_send = said([&](auto& p) {
    const auto found = std::ranges::find_if(
        p[1], [](const Step& step) { return text(step) == "recv 0F1 from 0"; });
    const Step moved = *found;
    p[1].erase(found);
    const auto after =
        std::ranges::find_if(p[1], [](const Step& step) { return text(step) == "send 1B0 to 0"; });
    p[1].insert(after + 1, moved);
  });
  CHECK(both_send.find("the messages of ranks") != both_send.npos);
  CHECK(both_send.find("do not meet") != both_send.npos);
  // More than the books say in the stash.
  const Problem three = make_problem(Kind::one_f_one_b, 2, 3);
  const Problem gpipe{Kind::gpipe, 2, 3, 1};
  CHECK(verify(three, schedule(gpipe)).why.find("expected at most") != std::string::npos);
  CHECK(verify(gpipe, schedule(three)).ok);
}

TEST_CASE("forwards of gpipe go by FairScale's clock cycles") {
  const Problem problem = make_problem(Kind::gpipe, 3, 3);
  const Run run = simulate(problem, schedule(problem));
  std::string said;
  for (int cycle = 0; cycle < 5; ++cycle) {
    said += cycle == 0 ? "" : " | ";
    for (const auto& rank : run.ranks) {
      for (const Activity& one : rank) {
        if (one.action.pass != Pass::forward || one.begin != cycle) continue;
        said += "(" + std::to_string(one.action.micro_batch) + "," +
                std::to_string(one.action.part) + ")";
      }
    }
  }
  CHECK(said == "(0,0) | (1,0)(0,1) | (2,0)(1,1)(0,2) | (2,1)(1,2) | (2,2)");
}

TEST_CASE("drawings") {
  const Problem problem = make_problem(Kind::one_f_one_b, 2, 2);
  const Run run = simulate(problem, schedule(problem));
  CHECK(draw(problem, run) ==
        "time   rank 0   rank 1\n"
        "0      F0\n"
        "1      F1       F0\n"
        "2               B0\n"
        "4      B0       F1\n"
        "5      |        B1\n"
        "7      B1\n"
        "9\n");
  const Problem v = make_problem(Kind::zb_v, 2, 4);
  const std::string picture = svg(v, simulate(v, schedule(v)), "a <b>", "note");
  for (const char* part : {"a &lt;b&gt;", "<title>3W1</title>", "rank 1", "note", "</svg>"}) {
    CHECK(picture.find(part) != picture.npos);
  }
}

}  // namespace
}  // namespace peal::comm::pipeline
