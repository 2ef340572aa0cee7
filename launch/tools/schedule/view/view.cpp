// SPDX-License-Identifier: Apache-2.0
// peal-schedule view: a schedule, a pipeline or a measured run as a page that one steps and plays.
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/tools/schedule/commands.h>
#include <peal/launch/tools/schedule/damage.h>
#include <peal/launch/tools/schedule/view/page.h>
#include <peal/launch/tools/schedule/view/schedule_json.h>

#include <nlohmann/json.hpp>

namespace peal::launch {
namespace {

using nlohmann::json;

constexpr int f32 = 4;

void write_page(const ViewOptions& options, const std::string& title, json views) {
  write_file(options.output,
             page({{"title", title}, {"command", options.command}, {"views", std::move(views)}}));
}

json whole(const comm::Entry& entry, const World& world, const ViewOptions& options) {
  ViewedSchedule viewed{.what = world.what,
                        .algorithm = std::string(entry.name),
                        .title = world.text(entry),
                        .programs = world.programs(entry),
                        .world = &world,
                        .damage = {},
                        .timelines = {}};
  const auto simulation = simulate(
      world.ranks, [&](int rank) { return viewed.programs[static_cast<std::size_t>(rank)]; }, f32,
      options.shown.machine.machine(world.ranks), comm::Record::timeline);
  viewed.timelines = {{"model", &simulation.timeline}};
  return schedule_json(viewed);
}

json broken(const comm::Entry& entry, const World& world, const ViewOptions& options) {
  const Damaged found =
      damaged(world, world.programs(entry), options.how == "any" ? "" : options.how, options.which);
  return schedule_json({.what = world.what,
                        .algorithm = std::string(entry.name),
                        .title = world.text(entry) + ", damaged",
                        .programs = found.programs,
                        .world = &world,
                        .damage = found.damage,
                        .timelines = {}});
}

}  // namespace

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
