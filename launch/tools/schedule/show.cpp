// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/draw/draw.h>
#include <peal/comm/verify/verify.h>
#include <peal/launch/machine_file.h>
#include <peal/launch/tools/schedule/commands.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>

namespace peal::launch {
namespace {

int show_verdicts(const World& world, const std::vector<comm::Program>& programs) {
  int status = 0;
  for (const bool in_place : {false, true}) {
    if (in_place && !has_in_place(world.what)) continue;
    const comm::Verdict verdict =
        verify(world.problem(), programs,
               in_place ? comm::Aliasing::in_place : comm::Aliasing::out_of_place);
    fmt::print("{}: {}\n", in_place ? "in place" : "out of place",
               verdict.ok ? "right; no deadlock even without buffers, no race, all replicas the "
                            "same bits"
                          : "wrong: " + verdict.why);
    if (verdict.ok && verdict.one_tree) fmt::print("  every element is reduced by the same tree\n");
    if (!verdict.ok) status = 1;
  }
  return status;
}

void show_costs(const comm::Entry& entry, const World& world,
                const std::vector<comm::Program>& programs) {
  fmt::print("{:>6} {:>8} {:>10} {:>10} {:>10}\n", "rank", "rounds", "sent", "received", "reduced");
  for (std::size_t r = 0; r < programs.size(); ++r) {
    const comm::Cost c = cost(programs[r]);
    fmt::print("{:>6} {:>8} {:>10} {:>10} {:>10}\n", r, c.rounds, c.sent, c.received, c.reduced);
  }
  const comm::ClosedForm form = entry.costs(world.problem());
  fmt::print("{:>6} {:>8} {:>10} {:>10} {:>10}  {}\n", "books", form.most.rounds, form.most.sent,
             form.most.received, form.most.reduced,
             form.exact ? "(the most of a rank)" : "(at most)");
}

}  // namespace

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  PEAL_CHECK(!file.fail(), "cannot write ", path);
  fmt::print("wrote {}\n", path);
}

comm::Machine MachineOptions::machine(int ranks) const {
  const auto per_byte = [](double gigabytes) { return gigabytes > 0 ? 1e-9 / gigabytes : 0; };
  comm::Machine machine{
      .nodes = {},
      .inside = {inside_latency_us * 1e-6, per_byte(inside_gigabytes), gap_us * 1e-6},
      .between = {latency_us * 1e-6, per_byte(gigabytes), gap_us * 1e-6},
      .ports = ports,
      .bus = per_byte(bus_gigabytes),
      .adapter = per_byte(adapter_gigabytes),
      .reduce = per_byte(reduce_gigabytes),
      .copy = per_byte(copy_gigabytes),
      .stragglers = {},
      .jitter = jitter,
      .seed = seed};
  if (!measured.empty()) {
    const comm::Machine found = load_machine(measured);
    PEAL_CHECK(found.nodes.node.size() == static_cast<std::size_t>(ranks), measured,
               " was measured with ", found.nodes.node.size(), " ranks on one node, not ", ranks,
               "; run bench/calibrate with that many");
    PEAL_CHECK(node_size == 0, "--machine: a measured machine is one node, got --node-size ",
               node_size);
    machine.inside = machine.between = found.inside;
    machine.bus = found.bus;
    machine.reduce = found.reduce;
    machine.copy = found.copy;
    machine.start = found.start;
  }
  for (int r = 0; r < ranks; ++r)
    machine.nodes.node.push_back(measured.empty() ? r / std::max(1, node_size) : 0);
  for (const std::string& text : stragglers) {
    comm::Straggler s;
    double late_us = 0;
    const bool read = std::sscanf(text.c_str(), "%d:%lf:%lf", &s.rank, &late_us, &s.slowdown) == 3;
    PEAL_CHECK(read && s.slowdown > 0 && late_us >= 0,
               "--straggler: expected rank:late_us:slowdown, got '", text, "'");
    s.late = late_us * 1e-6;
    machine.stragglers.push_back(s);
  }
  return machine;
}

World ShowOptions::world(comm::Collective what) const {
  PEAL_CHECK(ranks >= 1, "expected at least one rank, got ", ranks);
  return make_world(what, ranks, count >= 0 ? count : 2 * ranks, machine.node_size, root, chunk);
}

namespace {

std::string_view ranks_text(const comm::Entry& entry) {
  if (entry.one_sided) return entry.sees_nodes ? "of memories" : "of a memory";
  return entry.supports.name;
}

}  // namespace

int list() {
  constexpr int p = 8, n = 16 * p;
  fmt::print("What a rank costs at most, of {} ranks in nodes of 2, for a buffer of n elements\n\n",
             p);
  fmt::print("{:<15} {:<20} {:<11} {:>6} {:>8} {:>8}\n", "collective", "algorithm", "ranks",
             "rounds", "sent/n", "added/n");
  for (const comm::Entry& entry : comm::all_algorithms()) {
    const World world = make_world(entry.what, p, n, 2);
    comm::Cost most;
    for (const comm::Program& program : world.programs(entry)) {
      const comm::Cost c = cost(program);
      most = {std::max(most.rounds, c.rounds), std::max(most.sent, c.sent), 0,
              std::max(most.reduced, c.reduced)};
    }
    fmt::print("{:<15} {:<20} {:<11} {:>6} {:>8.3f} {:>8.3f}\n", name(entry.what), entry.name,
               ranks_text(entry), most.rounds, double(most.sent) / n, double(most.reduced) / n);
  }
  return 0;
}

int show(comm::Collective what, const ShowOptions& options) {
  const comm::Entry entry = entry_named(what, options.algorithm);
  check_supports(entry, options.ranks);
  const World world = options.world(what);
  const bool drawn_here = !options.verify && !options.cost && !options.simulate &&
                          options.draw.empty() && options.timeline.empty() &&
                          options.trace.empty() && options.run.empty();
  if (options.simulate && !options.verify && !options.cost && options.draw.empty() &&
      options.timeline.empty() && options.trace.empty() &&
      options.run.empty()) {  // large worlds: a program at a time
    const auto simulation = simulate(
        world.ranks, [&](int rank) { return plan(entry, world.problem(rank)); }, f32,
        options.machine.machine(world.ranks));
    fmt::print("{}\nsimulated: {}, {} messages\n", world.text(entry),
               seconds_text(simulation.seconds), simulation.messages);
    return 0;
  }
  const auto programs = world.programs(entry);
  const std::string title = world.text(entry);
  const bool several_nodes = options.machine.node_size > 0 && world.nodes.node.back() > 0;
  fmt::print("{}\n", title);
  if (drawn_here) fmt::print("{}", draw(programs));
  int status = 0;
  if (options.verify) status = show_verdicts(world, programs);
  if (options.cost) show_costs(entry, world, programs);
  if (!options.draw.empty())
    write_file(options.draw,
               svg(programs, title, {.nodes = several_nodes ? &world.nodes : nullptr}));
  if (options.simulate || !options.timeline.empty() || !options.trace.empty()) {
    const auto simulation = simulate(
        world.ranks, [&](int rank) { return programs[static_cast<std::size_t>(rank)]; }, f32,
        options.machine.machine(world.ranks), comm::Record::timeline);
    fmt::print("simulated: {}, {} messages\n", seconds_text(simulation.seconds),
               simulation.messages);
    if (!options.timeline.empty()) write_file(options.timeline, svg(simulation.timeline, title));
    if (!options.trace.empty()) write_file(options.trace, chrome_trace(simulation.timeline));
  }
  if (!options.run.empty()) {
    run_between_threads(entry, world, programs, options.machine.machine(world.ranks), options.run);
  }
  return status;
}

}  // namespace peal::launch
