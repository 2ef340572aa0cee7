// SPDX-License-Identifier: Apache-2.0
// The plan of sharded training: units, chunks, pieces, and the schedule of a step.
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/sharded/shard_plan.h>
#include <peal/nn/parallel/sharded/unit_schedule.h>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::nn;

namespace {

ModelOutline of_one(std::int64_t elements) {
  return {{{"", "Net"}}, {{.name = "w", .shape = {elements}}}, {}};
}

std::vector<std::int64_t> shares(std::int64_t elements, int world) {
  const ModelOutline outline = of_one(elements);
  const auto units = plan_units(outline, {}, world);
  std::vector<std::int64_t> all;
  for (int rank = 0; rank < world; ++rank) {
    const FlatPlan& flat = units.at(0).flats.at(0);
    all.push_back(piece_of(flat, flat.entries.at(0), elements, rank).count);
  }
  return all;
}

// A body of two blocks, whose head has the embedding's weight.
ModelOutline tied_model() {
  return {{{"", "m::Net"},
           {"embed", "m::Embedding"},
           {"h", "m::Sequential"},
           {"h.0", "m::Block"},
           {"h.0.fc", "m::Linear"},
           {"h.1", "m::Block"},
           {"h.1.fc", "m::Linear"},
           {"head", "m::Linear"}},
          {{.name = "embed.weight", .shape = {7, 3}},
           {.name = "h.0.scale", .shape = {3}},
           {.name = "h.0.fc.weight", .shape = {3, 3}},
           {.name = "h.0.fc.bias", .shape = {3}, .requires_grad = false},
           {.name = "h.1.scale", .shape = {3}, .dtype = DType::f64},
           {.name = "h.1.fc.weight", .shape = {3, 3}},
           {.name = "h.1.fc.bias", .shape = {0}}},
          {{"head.weight", "embed.weight"}}};
}

std::vector<std::string> paths_of(const std::vector<UnitPlan>& units) {
  std::vector<std::string> paths;
  for (const UnitPlan& unit : units) paths.push_back(unit.path);
  return paths;
}

std::string failure_of(const WrapPolicy& policy) {
  try {
    plan_units(tied_model(), policy, 2);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

using Names = std::vector<std::string>;
using Units = std::vector<UnitSchedule::Unit>;

}  // namespace

TEST_CASE("chunks are torch.chunk's") {
  using Shares = std::vector<std::int64_t>;
  CHECK(shares(5, 4) == Shares{2, 2, 1, 0});
  CHECK(shares(6, 4) == Shares{2, 2, 2, 0});
  CHECK(shares(3, 8) == Shares{1, 1, 1, 0, 0, 0, 0, 0});
  CHECK(shares(50257, 4) == Shares{12565, 12565, 12565, 12562});
  CHECK(shares(1199882, 4) == Shares{299971, 299971, 299971, 299969});
  CHECK(shares(0, 3) == Shares{0, 0, 0});
  CHECK(shares(1, 1) == Shares{1});
}

TEST_CASE("pieces cover each parameter once, in order, in every chunk") {
  for (int world = 1; world <= 9; ++world) {
    const ModelOutline outline = tied_model();
    for (const WrapPolicy& policy : {WrapPolicy(), wrap_by_type({"Block"}), wrap_by_size(9)}) {
      std::vector<int> times(outline.parameters.size(), 0);
      for (const UnitPlan& unit : plan_units(outline, policy, world)) {
        for (const FlatPlan& flat : unit.flats) {
          CHECK(flat.chunk * world >= flat.count);
          CHECK(flat.chunk * world < flat.count + world);
          std::vector<std::int64_t> filled(static_cast<std::size_t>(world), 0);
          for (const auto& entry : flat.entries) {
            const auto p = static_cast<std::size_t>(entry.parameter);
            ++times[p];
            const std::int64_t size = outline.parameters[p].shape.numel();
            std::int64_t next = 0;
            for (int rank = 0; rank < world; ++rank) {
              const Piece piece = piece_of(flat, entry, size, rank);
              if (piece.count == 0) continue;
              CHECK(piece.first == next);
              CHECK(piece.at == filled[static_cast<std::size_t>(rank)]);
              next += piece.count;
              filled[static_cast<std::size_t>(rank)] += piece.count;
            }
            CHECK(next == size);
          }
        }
      }
      CHECK(times == std::vector<int>(times.size(), 1));
    }
  }
}

TEST_CASE("units by type, size and name; a tied parameter is of the unit around all its uses") {
  const ModelOutline outline = tied_model();
  CHECK(paths_of(plan_units(outline, {}, 2)) == Names{""});
  CHECK(paths_of(plan_units(outline, wrap_by_type({"Block"}), 2)) == Names{"", "h.0", "h.1"});
  CHECK(paths_of(plan_units(outline, wrap_by_type({"m::Block", "Linear"}), 2)) ==
        Names{"", "h.0", "h.0.fc", "h.1", "h.1.fc"});  // head has nothing by itself
  CHECK(paths_of(plan_units(outline, wrap_by_size(15), 2)) == Names{"", "h.0"});
  CHECK(paths_of(plan_units(outline, wrap_by_size(12), 2)) == Names{"", "h.0.fc", "h.1"});
  const auto units = plan_units(outline, wrap_by_name({"embed", "head", "h"}), 2);
  CHECK(paths_of(units) == Names{"", "h"});
  CHECK(units[0].flats.at(0).entries == std::vector<FlatPlan::Entry>{{0, 0}});
  // Frozen ones apart, and each type.
  REQUIRE(units[1].flats.size() == 3);
  CHECK(units[1].flats[0].entries ==
        std::vector<FlatPlan::Entry>{{1, 0}, {2, 3}, {5, 12}, {6, 21}});
  CHECK(!units[1].flats[1].trained);
  CHECK(units[1].flats[2].dtype == DType::f64);
  CHECK(units[1].frozen());
  CHECK(!units[0].frozen());
  // Of two units that are nested, the outer one.
  ModelOutline nested = tied_model();
  nested.tied = {{"h.1.fc.weight", "h.0.fc.weight"}};
  nested.parameters.erase(nested.parameters.begin() + 5);
  const auto both = plan_units(nested, wrap_by_name({"h", "h.0", "h.1"}), 2);
  CHECK(paths_of(both) == Names{"", "h", "h.0", "h.1"});
  CHECK(both[1].flats.at(0).entries == std::vector<FlatPlan::Entry>{{2, 0}});
}

TEST_CASE("a policy that finds nothing is an Error that says what there is") {
  CHECK(failure_of(wrap_by_type({"Blok"})).find("no module of the class Blok, but of: m::Block") !=
        std::string::npos);
  CHECK(failure_of(wrap_by_type({"lock"})).find("no module of the class lock") !=
        std::string::npos);
  CHECK(failure_of(wrap_by_name({"h.2"})).find("no module 'h.2'") != std::string::npos);
  const WrapPolicy own = [](const ModelOutline&) { return std::vector<std::string>{"h.0", "g"}; };
  CHECK(failure_of(own).find("no module 'g', which the policy names") != std::string::npos);
  CHECK(failure_of(wrap_by_name({"h.0", "h.0"})).find("h.0 comes twice") != std::string::npos);
  CHECK(failure_of(wrap_by_name({""})).find("a unit always") != std::string::npos);
  CHECK_THROWS_AS(wrap_by_size(0), Error);
  ModelOutline list = tied_model();
  list.modules[2].type = "peal::nn::ModuleList";
  const WrapPolicy that = [](const ModelOutline&) { return std::vector<std::string>{"h"}; };
  for (const WrapPolicy& policy : {wrap_by_name({"h"}), wrap_by_type({"ModuleList"}), that}) {
    CHECK_THROWS_WITH_AS(plan_units(list, policy, 2), doctest::Contains("which nobody calls"),
                         Error);
  }
}

TEST_CASE("the table of a plan") {
  const ModelOutline outline = tied_model();
  const auto units = plan_units(outline, wrap_by_type({"Block"}), 4);
  CHECK(describe(outline, units, 4) ==
        "the model\n"
        "  21 f32 on 4 ranks: 6, 6, 6, 3\n"
        "    embed.weight [7, 3] at 0\n"
        "unit h.0\n"
        "  12 f32 on 4 ranks: 3, 3, 3, 3\n"
        "    h.0.scale [3] at 0\n"
        "    h.0.fc.weight [3, 3] at 3\n"
        "  3 f32 (frozen) on 4 ranks: 1, 1, 1, 0\n"
        "    h.0.fc.bias [3] at 0\n"
        "unit h.1\n"
        "  3 f64 on 4 ranks: 1, 1, 1, 0\n"
        "    h.1.scale [3] at 0\n"
        "  9 f32 on 4 ranks: 3, 3, 3, 0\n"
        "    h.1.fc.weight [3, 3] at 0\n"
        "    h.1.fc.bias [0] at 9\n"
        "tied head.weight is embed.weight\n");
}

TEST_CASE("a step gathers the next unit while one computes, in both directions") {
  const Units units(4);
  CHECK(describe(plan_step(units, {})) ==
        "gather 0, gather 1, use 0, "
        "gather 2, use 1, free 1, gather 3, use 2, free 2, use 3, free 3, "
        "gather 3, use 0, gather 2, use 3, free 3, reduce 3, "
        "gather 1, use 2, free 2, settle 3, reduce 2, "
        "use 1, free 1, settle 2, reduce 1, settle 1, reduce 0, free 0, settle 0");
  CHECK(describe(plan_step(Units(2), {.reshard_after_forward = false,
                                      .forward_prefetch = false,
                                      .backward_prefetch = false})) ==
        "gather 0, use 0, gather 1, use 1, "
        "use 0, use 1, free 1, reduce 1, settle 1, reduce 0, free 0, settle 0");
  // The first step knows no order.
  CHECK(describe(plan_step(Units(2), {}, 0)) ==
        "gather 0, use 0, gather 1, use 1, free 1, "
        "gather 1, use 0, use 1, free 1, reduce 1, settle 1, reduce 0, free 0, settle 0");
}

TEST_CASE("steps of all options are right: at most two units at once besides the model") {
  int plans = 0;
  for (int count = 1; count <= 12; ++count) {
    for (int bits = 0; bits < 8; ++bits) {
      for (int steps = 0; steps < 3; ++steps) {
        for (const int frozen : {-1, 0, 1, 2}) {
          Units units(static_cast<std::size_t>(count));
          if (frozen >= 0 && frozen < count) {
            units[static_cast<std::size_t>(frozen)] = {.trained = false, .frozen = true};
          }
          const ScheduleOptions options{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
          const auto step = plan_step(units, options, steps);
          const int most = !options.reshard_after_forward ? count : bits == 1 ? 1 : 2;
          CHECK(fault_in(step, units, most) == "");
          ++plans;
        }
      }
    }
  }
  CHECK(plans == 12 * 8 * 3 * 4);
}

TEST_CASE("a step that lacks any one action, or has one twice, is found out") {
  const Units units(5);
  const auto step = plan_step(units, {});
  for (std::size_t k = 0; k < step.size(); ++k) {
    if (step[k].what == UnitAction::What::use) continue;  // it may be used as often as one likes
    auto less = step, more = step;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(k));
    more.insert(more.begin() + static_cast<std::ptrdiff_t>(k), step[k]);
    CAPTURE(k);
    CHECK(!fault_in(less, units, 2).empty());
    CHECK(!fault_in(more, units, 2).empty());
  }
}

TEST_CASE("what is gathered for a call that does not come is freed with the model's forward") {
  UnitSchedule schedule(Units(3), {});
  const auto forward = [&](bool second, bool grads) {
    UnitActions all;
    const auto then = [&](const UnitActions& some) {
      all.insert(all.end(), some.begin(), some.end());
    };
    then(schedule.before_forward(0, grads));
    for (const int unit : {1, 2}) {
      if (unit == 2 && !second) continue;
      then(schedule.before_forward(unit, grads));
      then(schedule.after_forward(unit, grads));
    }
    then(schedule.after_forward(0, grads));
    return describe(all);
  };
  forward(true, false);
  CHECK(forward(false, false) ==
        "gather 0, gather 1, use 0, gather 2, use 1, free 1, free 0, free 2");
  CHECK(forward(true, false) ==
        "gather 0, gather 1, use 0, use 1, free 1, gather 2, use 2, free 2, free 0");
  for (int unit = 0; unit < 3; ++unit) CHECK(!schedule.live(unit));
  // Outside of the model's forward a unit comes and goes alone.
  CHECK(describe(schedule.before_forward(2, true)) == "gather 2, use 2");
  CHECK(describe(schedule.after_forward(2, true)) == "free 2");
}

TEST_CASE("of units that one segment computes anew, each makes room for the next") {
  for (const bool reshard : {true, false}) {
    UnitSchedule schedule(Units(4), {.reshard_after_forward = reshard});
    UnitActions all;
    const auto then = [&](const UnitActions& some) {
      all.insert(all.end(), some.begin(), some.end());
    };
    then(schedule.before_forward(0, true));
    for (const int unit : {1, 2, 3}) {
      then(schedule.before_forward(unit, true));
      then(schedule.after_forward(unit, true));
    }
    then(schedule.after_forward(0, true));
    all.clear();
    then(schedule.begin_backward());
    then(schedule.before_backward(0));
    for (const int unit : {1, 2, 3}) {
      then(schedule.before_recompute(unit));
      schedule.after_recompute(unit);
    }
    for (const int unit : {3, 2, 1, 0}) {
      if (unit != 0) then(schedule.before_backward(unit));
      then(schedule.complete(unit, true));
    }
    then(schedule.end_backward());
    CHECK(describe(all) ==
          (reshard
               ? "gather 3, use 0, gather 1, use 1, free 1, gather 2, use 2, free 2, use 3, "
                 "gather 2, use 3, free 3, reduce 3, gather 1, use 2, free 2, settle 3, "
                 "reduce 2, use 1, free 1, settle 2, reduce 1, settle 1, reduce 0, free 0, "
                 "settle 0"
               : "use 0, use 1, use 2, use 3, use 3, free 3, reduce 3, use 2, free 2, settle 3, "
                 "reduce 2, use 1, free 1, settle 2, reduce 1, settle 1, reduce 0, free 0, "
                 "settle 0"));
  }
}
