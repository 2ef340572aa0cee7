// SPDX-License-Identifier: Apache-2.0
// peal-schedule: the schedules of collective algorithms, listed, verified, costed, drawn,
// simulated, compared, explained, and broken to see what the verifier says.
#include <fmt/core.h>
#include <peal/launch/tools/schedule/commands.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <thread>

namespace peal::launch {
namespace {

void add_machine(CLI::App& app, MachineOptions& machine) {
  app.add_option("--latency", machine.latency_us, "us, of a message between nodes")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group("Machine");
  app.add_option("--gap", machine.gap_us, "us that a rank needs for each message of its own")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group("Machine");
  app.add_option("--bandwidth", machine.gigabytes, "GB/s, of a message between nodes")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->group("Machine");
  app.add_option("--inside-latency", machine.inside_latency_us, "us, inside a node")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group("Machine");
  app.add_option("--inside-bandwidth", machine.inside_gigabytes, "GB/s, inside a node")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->group("Machine");
  app.add_option("--adapter", machine.adapter_gigabytes,
                 "GB/s that all ranks of a node share, each way; 0: no limit")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group("Machine");
  app.add_option("--bus", machine.bus_gigabytes, "GB/s that a node shares inside; 0: no limit")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group("Machine");
  app.add_option("--reduce", machine.reduce_gigabytes, "GB/s that a rank adds")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->group("Machine");
  app.add_option("--copy", machine.copy_gigabytes, "GB/s that a rank copies")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->group("Machine");
  app.add_option("--node-size", machine.node_size, "ranks of a node; 0: each is one of its own")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group("Machine");
  app.add_option("--ports", machine.ports, "messages that a rank sends at a time")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->group("Machine");
  app.add_option("--machine", machine.measured,
                 "a file that bench/calibrate wrote, instead of all these numbers")
      ->check(CLI::ExistingFile)
      ->group("Machine");
  app.add_option("--straggler", machine.stragglers, "rank:late_us:slowdown; several")
      ->group("Machine");
  app.add_option("--jitter", machine.jitter, "latencies grow by this share on average")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber)
      ->group("Machine");
  app.add_option("--seed", machine.seed, "of the jitter")->capture_default_str()->group("Machine");
}

void add_problem(CLI::App& app, ShowOptions& options) {
  app.add_option("algorithm", options.algorithm, "its name: see peal-schedule list")->required();
  app.add_option("--ranks", options.ranks, "of the world")->capture_default_str();
  app.add_option("--count", options.count, "elements; default: two for each rank");
  app.add_option("--root", options.root, "of reduce, broadcast, gather, scatter")
      ->capture_default_str();
  app.add_option("--chunk", options.chunk, "elements of a chunk in a pipeline");
}

int run(int argc, char** argv) {
  CLI::App app{"Schedules of collective algorithms: peal-schedule all_reduce ring --ranks 5"};
  app.require_subcommand(1);
  int status = 0;
  app.add_subcommand("list", "the algorithms of every collective, and what they cost")
      ->callback([&status] { status = list(); });

  std::string only;
  CLI::App* asking =
      app.add_subcommand("native", "which collectives the library below a transport runs itself");
  asking->add_option("collective", only, "default: all");
  asking->callback([&status, &only] {
    status = native(only.empty() ? std::vector(std::begin(collectives), std::end(collectives))
                                 : std::vector{collective_named(only)});
  });

  ShowOptions shown;
  for (const comm::Collective what : collectives) {
    CLI::App* one = app.add_subcommand(std::string(name(what)), "shows a schedule");
    one->group("Collectives");
    add_problem(*one, shown);
    add_machine(*one, shown.machine);
    one->add_flag("--verify", shown.verify, "prove it right, in place and not");
    one->add_flag("--cost", shown.cost, "rounds and elements by rank, and the closed form");
    one->add_flag("--simulate", shown.simulate, "how long it takes on the machine");
    one->add_option("--draw", shown.draw, "SVG file of who sends what to whom");
    one->add_option("--timeline", shown.timeline, "SVG file of the simulated run");
    one->add_option("--trace", shown.trace, "the same, JSON for ui.perfetto.dev");
    one->add_option("--run", shown.run,
                    "runs it between threads, over a wire with the latencies and bandwidths of the "
                    "machine's links (not its ports, bus, adapters, gaps, slowdowns and jitter), "
                    "and leaves in this folder what `peal-schedule trace` shows");
    one->callback([&status, &shown, what] { status = show(what, shown); });
  }

  VerifyOptions verified;
  std::string ranks = "1-16";
  bool all = false;
  CLI::App* verify = app.add_subcommand("verify", "proves many schedules at once");
  verify->add_flag("--all", all, "all collectives");
  verify->add_option("collective", verified.only, "or one");
  verify->add_option("--ranks", ranks, "1-64 or 2,4,8")->capture_default_str();
  verified.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  verify->add_option("--threads", verified.threads)->capture_default_str();
  verify->callback([&] {
    if (all == !verified.only.empty()) throw CLI::ValidationError("expected --all or a collective");
    verified.ranks = parse_ranks(ranks);
    status = verify_all(verified);
  });

  CompareOptions compared;
  std::string collective = "all_reduce", compared_ranks = "8", sizes = "1K-64M";
  CLI::App* comparing =
      app.add_subcommand("compare", "simulates several algorithms over sizes and ranks");
  comparing->add_option("collective", collective)->capture_default_str();
  comparing->add_option("algorithms", compared.algorithms, "default: all");
  comparing->add_option("--ranks", compared_ranks)->capture_default_str();
  comparing->add_option("--bytes", sizes, "of the buffer")->capture_default_str();
  comparing->add_option("--chunk", compared.chunk, "elements of a chunk in a pipeline");
  comparing->add_option("--plot", compared.plot, "SVG file");
  add_machine(*comparing, compared.machine);
  comparing->callback([&] {
    compared.ranks = parse_ranks(compared_ranks);
    compared.bytes = parse_sizes(sizes);
    status = compare(collective_named(collective), compared);
  });

  ShowOptions explained;
  int rank = -1;
  CLI::App* explaining = app.add_subcommand("explain", "tells a schedule in words, round by round");
  explaining->add_option("collective", collective)->required();
  add_problem(*explaining, explained);
  explaining->add_option("--rank", rank, "only this one; default: all");
  explaining->callback([&] { status = explain(collective_named(collective), explained, rank); });

  ShowOptions broken;
  std::string how;
  std::uint64_t seed = 1;
  CLI::App* breaking =
      app.add_subcommand("break", "damages a schedule, and shows what the verifier says");
  breaking->add_option("collective", collective)->required();
  add_problem(*breaking, broken);
  breaking->add_option("--how", how, "drop, shift, peer, count, twice, merge, swap; default: any");
  breaking->add_option("--seed", seed, "which of the damages")->capture_default_str();
  breaking->add_option("--draw", broken.draw, "SVG file of the damaged schedule");
  breaking->callback(
      [&] { status = break_schedule(collective_named(collective), broken, how, seed); });

  TraceOptions traced;
  CLI::App* tracing = app.add_subcommand("trace", "shows a run that was measured under PEAL_TRACE");
  tracing->add_option("folder", traced.folder, "what PEAL_TRACE named")->required();
  tracing->add_option("--operation", traced.operation,
                      "a number of the list; default: of those that move most, the median");
  tracing->add_option("--draw", traced.draw, "SVG file of the operation, beside the model");
  tracing->add_option("--trace", traced.json,
                      "JSON for ui.perfetto.dev: the whole run, or --operation beside the model");
  add_machine(*tracing, traced.machine);
  tracing->callback([&] { status = trace(traced); });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return status;
}

}  // namespace
}  // namespace peal::launch

int main(int argc, char** argv) {
  try {
    return peal::launch::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "peal-schedule: {}\n", error.what());
    return 2;
  }
}
