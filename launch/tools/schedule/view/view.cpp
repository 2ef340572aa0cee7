// SPDX-License-Identifier: Apache-2.0
// peal-schedule view: a schedule, a pipeline or a measured run as a page that one steps and plays.
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/tools/schedule/commands.h>
#include <peal/launch/tools/schedule/damage.h>
#include <peal/launch/tools/schedule/view/compare_json.h>
#include <peal/launch/tools/schedule/view/pipeline_json.h>
#include <peal/launch/tools/schedule/view/schedule_json.h>
#include <peal/launch/tools/schedule/view/step_json.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace peal::launch {
namespace {

using nlohmann::json;

json whole(const comm::Entry& entry, const World& world, const ViewOptions& options) {
  ViewedSchedule viewed{.what = world.what,
                        .algorithm = std::string(entry.name),
                        .title = world.text(entry),
                        .programs = world.programs(entry),
                        .world = &world,
                        .damage = {},
                        .wanted = nullptr,
                        .timelines = {}};
  const auto simulation = simulate(
      world.ranks, [&](int rank) { return viewed.programs[static_cast<std::size_t>(rank)]; }, f32,
      options.shown.machine.machine(world.ranks), comm::Record::timeline);
  viewed.timelines = {{"model", &simulation.timeline}};
  return schedule_json(viewed);
}

json broken(const comm::Entry& entry, const World& world, const ViewOptions& options) {
  const auto valid = world.programs(entry);
  const Damaged found =
      damaged(world, valid, options.how == "any" ? "" : options.how, options.which);
  comm::Contents wanted;
  (void)verify(world.problem(), valid, comm::Aliasing::out_of_place, wanted);
  return schedule_json({.what = world.what,
                        .algorithm = std::string(entry.name),
                        .title = world.text(entry) + ", damaged",
                        .programs = found.programs,
                        .world = &world,
                        .damage = found.damage,
                        .wanted = &wanted,
                        .timelines = {}});
}

comm::Collective collective_of(const comm::MeasuredCollective& one) {
  const std::string& text = one.first().text;
  return collective_named(text.substr(0, text.find(' ')));
}

json operation(const comm::MeasuredCollective& one, const MachineOptions& machine) {
  const comm::Simulation simulated = modelled(one, machine);
  const comm::Timeline measured = timeline(one);
  return schedule_json({.what = collective_of(one),
                        .algorithm = one.first().algorithm,
                        .title = beside_model(one, simulated),
                        .programs = programs(one),
                        .world = nullptr,
                        .damage = {},
                        .wanted = nullptr,
                        .timelines = {{"model", &simulated.timeline}, {"measured", &measured}}});
}

// By bucket, what the model says of its collectives; nothing of those that left no steps.
std::vector<std::vector<std::vector<ModelledBucket>>> modelled_buckets(
    const comm::MeasuredRun& run, const std::vector<comm::MeasuredCollective>& all,
    const comm::TrainingStep& step, const MachineOptions& machine) {
  std::vector<std::vector<std::vector<ModelledBucket>>> modelled_ranks(step.ranks.size());
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    modelled_ranks[r].resize(step.ranks[r].buckets.size());
  }
  const comm::StepRank& first = step.ranks.front();
  for (const comm::MeasuredBucket& bucket : run.buckets) {
    if (bucket.rank != first.rank || bucket.model != step.model || bucket.step != step.step)
      continue;
    for (const comm::MeasuredCollective& one : all) {
      const auto mine = std::ranges::find_if(one.parts, [&](const comm::MeasuredPart* part) {
        return part != nullptr && part->rank == bucket.rank &&
               std::ranges::count(bucket.operations, part->number) > 0;
      });
      if (mine == one.parts.end() || one.bytes == 0 || one.end == 0 ||
          std::ranges::count(one.parts, nullptr) > 0) {
        continue;
      }
      const comm::Simulation simulated = modelled(one, machine);
      double met = 0;  // the last rank has begun
      for (const comm::MeasuredPart* part : one.parts) met = std::max(met, part->begin);
      for (std::size_t r = 0; r < step.ranks.size(); ++r) {
        for (std::size_t part = 0; part < one.parts.size(); ++part) {
          if (one.parts[part]->rank != step.ranks[r].rank) continue;
          modelled_ranks[r]
              .at(static_cast<std::size_t>(bucket.bucket))
              .push_back({met, one.begin + simulated.finish[part]});
        }
      }
    }
  }
  return modelled_ranks;
}

}  // namespace

int view_pipeline(const ViewOptions& options) {
  namespace pipeline = comm::pipeline;
  const PipelineOptions& piped = options.piped;
  json views = json::array();
  for (const std::string& kind : {piped.kind, options.beside}) {
    if (kind.empty()) continue;
    const pipeline::Problem problem = pipeline_problem(kind, piped);
    const auto programs = schedule(problem);
    const pipeline::Run run = simulate(problem, programs, piped.costs);
    views.push_back(pipeline_json({.problem = problem,
                                   .run = run,
                                   .verdict = verify(problem, programs),
                                   .message = piped.costs.message,
                                   .title = pipeline_title(problem),
                                   .note = bubble_text(problem, run, piped.costs)}));
  }
  const std::string title = views[0].at("title");
  write_page(options, options.beside.empty() ? title : title + ", beside " + options.beside,
             std::move(views));
  return 0;
}

int view_compare(comm::Collective what, const ViewOptions& options) {
  const CompareOptions& compared = options.compared;
  PEAL_CHECK(what != comm::Collective::barrier, "compare: a barrier has no sizes");
  PEAL_CHECK(!compared.bytes.empty() && !compared.ranks.empty(),
             "compare: expected sizes and ranks");
  json shown = compare_json(what, compared.ranks, compared.bytes, compared.machine.machine(1));
  const std::string title = shown.at("title");
  write_page(options, title, json::array({std::move(shown)}));
  return 0;
}

int view_trace(const ViewOptions& options) {
  const TraceOptions& traced = options.traced;
  const comm::MeasuredRun run = comm::read_measured(traced.folder);
  const auto all = comm::collectives(run);
  const auto steps = comm::training_steps(run);
  PEAL_CHECK(traced.step < 0 || traced.operation < 0,
             "view: --step shows a step of training, --operation an operation");
  json views = json::array();
  std::string title;
  if (traced.step >= 0 || (traced.operation < 0 && !steps.empty())) {
    const comm::TrainingStep& step = step_chosen(steps, std::max(traced.step, 0));
    title = step_title(step);
    views.push_back(step_json(step, modelled_buckets(run, all, step, traced.machine), title));
  } else {
    views.push_back(operation(all[operation_chosen(all, traced.operation)], traced.machine));
    title = views[0].at("title");
  }
  write_page(options, title, std::move(views));
  return 0;
}

int view(comm::Collective what, const ViewOptions& options) {
  const ShowOptions& shown = options.shown;
  const comm::Entry entry = entry_named(what, shown.algorithm);
  check_supports(entry, shown.ranks);
  PEAL_CHECK(options.how.empty() || options.beside.empty(),
             "view: --break shows one schedule, --beside two");
  const World world = shown.world(what);
  json views = json::array();
  views.push_back(options.how.empty() ? whole(entry, world, options)
                                      : broken(entry, world, options));
  std::string title = views[0].at("title");
  if (!options.beside.empty()) {
    const comm::Entry other = entry_named(what, options.beside);
    check_supports(other, shown.ranks);
    views.push_back(whole(other, world, options));
    title += fmt::format(", beside {}", other.name);
  }
  write_page(options, title, std::move(views));
  return 0;
}

}  // namespace peal::launch
