// SPDX-License-Identifier: Apache-2.0
// peal-schedule: the schedules of collective algorithms, listed, verified, costed, drawn,
// simulated, compared, explained, and broken to see what the verifier says.
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/command_line.h>
#include <peal/launch/tools/schedule/commands.h>
#include <peal/launch/tools/schedule/view/lesson_views.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <thread>

namespace peal::launch {
namespace {

void add_machine(CommandLine& line, MachineOptions& machine) {
  line.option("--latency", &machine.latency_us, "us, of a message between nodes")
      .not_negative()
      .group("Machine");
  line.option("--gap", &machine.gap_us, "us that a rank needs for each message of its own")
      .not_negative()
      .group("Machine");
  line.option("--bandwidth", &machine.gigabytes, "GB/s, of a message between nodes")
      .positive()
      .group("Machine");
  line.option("--inside-latency", &machine.inside_latency_us, "us, inside a node")
      .not_negative()
      .group("Machine");
  line.option("--inside-bandwidth", &machine.inside_gigabytes, "GB/s, inside a node")
      .positive()
      .group("Machine");
  line.option("--adapter", &machine.adapter_gigabytes,
              "GB/s that all ranks of a node share, each way; 0: no limit")
      .not_negative()
      .group("Machine");
  line.option("--bus", &machine.bus_gigabytes, "GB/s that a node shares inside; 0: no limit")
      .not_negative()
      .group("Machine");
  line.option("--reduce", &machine.reduce_gigabytes, "GB/s that a rank adds")
      .positive()
      .group("Machine");
  line.option("--copy", &machine.copy_gigabytes, "GB/s that a rank copies")
      .positive()
      .group("Machine");
  line.option("--node-size", &machine.node_size, "ranks of a node; 0: each is one of its own")
      .not_negative()
      .group("Machine");
  line.option("--ports", &machine.ports, "messages that a rank sends at a time")
      .positive()
      .group("Machine");
  line.option("--machine", &machine.measured,
              "a file that bench/calibrate wrote, instead of all these numbers")
      .existing_file()
      .group("Machine");
  line.option("--straggler", &machine.stragglers, "rank:late_us:slowdown; several")
      .group("Machine");
  line.option("--jitter", &machine.jitter, "latencies grow by this share on average")
      .not_negative()
      .group("Machine");
  line.option("--seed", &machine.seed, "of the jitter").group("Machine");
}

void add_problem(CommandLine& line, ShowOptions& options) {
  line.option("algorithm", &options.algorithm, "its name: see peal-schedule list").required();
  line.option("--ranks", &options.ranks, "of the world");
  line.option("--count", &options.count, "elements; default: two for each rank");
  line.option("--root", &options.root, "of reduce, broadcast, gather, scatter");
  line.option("--chunk", &options.chunk, "elements of a chunk in a pipeline");
}

void add_pipeline(CommandLine& line, PipelineOptions& options) {
  line.option("--kind", &options.kind,
              "gpipe, 1f1b, interleaved, zb-h1, zb-v; all: a table of them");
  line.option("--stages", &options.stages, "ranks of the pipeline");
  line.option("--micro", &options.micro_batches, "micro-batches that a batch is cut into");
  line.option("--chunks", &options.chunks,
              "parts of the model that a rank has; default: the kind's")
      .not_negative();
  line.option("--forward", &options.costs.forward, "what it costs a rank, for a micro-batch")
      .positive();
  line.option("--input", &options.costs.input, "the same of backward to its input").positive();
  line.option("--weight", &options.costs.weight, "the same of backward to its weights").positive();
  line.option("--message", &options.costs.message,
              "of an activation or a gradient, beside all else")
      .not_negative();
  line.option("--skip", &options.skips, "from which part past others to which: 0-2,1-3");
}

// What was asked for, as it is typed.
std::string asked(int argc, char** argv) {
  std::string all = "peal-schedule";
  for (int i = 1; i < argc; ++i) all += std::string(" ") + argv[i];
  return all;
}

// What view compare is asked about, in text.
struct ViewedSizes {
  std::string collective = "all_reduce", ranks = "2-16", bytes = "64-256M";
};

// peal-schedule view
void add_views(CommandLine& line, ViewOptions& viewed, ViewedSizes& sizes, LessonOptions& lessons,
               int& status) {
  CommandLine& viewing = line.command(
      "view", "writes a page, one HTML file, in which a schedule is stepped and played", [] {});
  const auto add_output = [&viewed](CommandLine& one) {
    one.option("--output", &viewed.output, "HTML file").required();
  };
  for (const comm::Collective what : comm::all_collectives) {
    CommandLine& one = viewing.command(
        std::string(name(what)), "shows a schedule",
        [&status, &viewed, what] { status = view(what, viewed); }, "Collectives");
    add_problem(one, viewed.shown);
    add_machine(one, viewed.shown.machine);
    one.option("--beside", &viewed.beside, "another algorithm, to be played beside it");
    one.option("--break", &viewed.how,
               "damages it: drop, shift, peer, count, twice, merge, swap; or any");
    one.option("--which", &viewed.which, "of the damages, a number").positive();
    add_output(one);
  }
  CommandLine& piping =
      viewing.command("pipeline", "shows how micro-batches go through the stages of a pipeline",
                      [&status, &viewed] { status = view_pipeline(viewed); });
  add_pipeline(piping, viewed.piped);
  piping.option("--beside", &viewed.beside, "another kind, to be played beside it");
  add_output(piping);
  CommandLine& comparing = viewing.command(
      "compare", "shows which algorithm wins, by size and ranks, on a machine that one turns",
      [&status, &viewed, &sizes] {
        viewed.compared.ranks = parse_ranks(sizes.ranks);
        viewed.compared.bytes = parse_sizes(sizes.bytes);
        status = view_compare(collective_named(sizes.collective), viewed);
      });
  comparing.option("collective", &sizes.collective);
  comparing.option("--ranks", &sizes.ranks);
  comparing.option("--bytes", &sizes.bytes, "of the buffer");
  add_output(comparing);
  CommandLine& tracing = viewing.command(
      "trace",
      "shows a run that was measured under PEAL_TRACE, beside the model: a step of data-parallel "
      "training, where there is one, or an operation",
      [&status, &viewed] { status = view_trace(viewed); });
  tracing.option("folder", &viewed.traced.folder, "what PEAL_TRACE named").required();
  tracing.option("--operation", &viewed.traced.operation, "a number of peal-schedule trace's list");
  tracing.option("--step", &viewed.traced.step, "of training, by its number; 0: the median one")
      .not_negative();
  add_machine(tracing, viewed.traced.machine);
  add_output(tracing);
  add_lesson_views(viewing, lessons);
}

int run(int argc, char** argv) {
  CommandLine line("Schedules of collective algorithms: peal-schedule all_reduce ring --ranks 5");
  int status = 0;
  line.command("list", "the algorithms of every collective, and what they cost",
               [&] { status = list(); });

  std::string only;
  CommandLine& asking = line.command(
      "native", "which collectives the library below a transport runs itself", [&status, &only] {
        status = native(only.empty() ? std::vector(std::begin(comm::all_collectives),
                                                   std::end(comm::all_collectives))
                                     : std::vector{collective_named(only)});
      });
  asking.option("collective", &only, "default: all");

  ShowOptions shown;
  for (const comm::Collective what : comm::all_collectives) {
    CommandLine& one = line.command(
        std::string(name(what)), "shows a schedule",
        [&status, &shown, what] { status = show(what, shown); }, "Collectives");
    add_problem(one, shown);
    add_machine(one, shown.machine);
    one.flag("--verify", &shown.verify, "prove it right, in place and not");
    one.flag("--cost", &shown.cost, "rounds and elements by rank, and the closed form");
    one.flag("--simulate", &shown.simulate, "how long it takes on the machine");
    one.option("--draw", &shown.draw, "SVG file of who sends what to whom");
    one.option("--timeline", &shown.timeline, "SVG file of the simulated run");
    one.option("--trace", &shown.trace, "the same, JSON for ui.perfetto.dev");
    one.option("--run", &shown.run,
               "runs it between threads, over a wire with the latencies and bandwidths of the "
               "machine's links (not its ports, bus, adapters, gaps, slowdowns and jitter), "
               "and leaves in this folder what `peal-schedule trace` shows");
  }

  PipelineOptions piped;
  CommandLine& piping = line.command(
      "pipeline", "shows how micro-batches go through the stages of a pipeline, and what is idle",
      [&] { status = pipeline_schedule(piped); });
  add_pipeline(piping, piped);
  piping.flag("--verify", &piped.verify, "prove it right");
  piping.flag("--all", &piped.all,
              "with --verify: every kind, 1 to 16 stages, 1 to 64 micro-batches");
  piping.flag("--programs", &piped.programs, "every step of every rank, messages included");
  piping.option("--draw", &piped.draw, "SVG file of who computes what when");

  VerifyOptions verified;
  std::string ranks = "1-16";
  bool all = false;
  CommandLine& verify = line.command("verify", "proves many schedules at once", [&] {
    if (all == !verified.only.empty()) fail("expected --all or a collective");
    verified.ranks = parse_ranks(ranks);
    status = verify_all(verified);
  });
  verify.flag("--all", &all, "all collectives");
  verify.option("collective", &verified.only, "or one");
  verify.option("--ranks", &ranks, "1-64 or 2,4,8");
  verified.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  verify.option("--threads", &verified.threads);

  CompareOptions compared;
  std::string collective = "all_reduce", compared_ranks = "8", sizes = "1K-64M";
  CommandLine& comparing =
      line.command("compare", "simulates several algorithms over sizes and ranks", [&] {
        compared.ranks = parse_ranks(compared_ranks);
        compared.bytes = parse_sizes(sizes);
        status = compare(collective_named(collective), compared);
      });
  comparing.option("collective", &collective);
  comparing.option("algorithms", &compared.algorithms, "default: all");
  comparing.option("--ranks", &compared_ranks);
  comparing.option("--bytes", &sizes, "of the buffer");
  comparing.option("--chunk", &compared.chunk, "elements of a chunk in a pipeline");
  comparing.option("--plot", &compared.plot, "SVG file");
  add_machine(comparing, compared.machine);

  ShowOptions explained;
  int rank = -1;
  CommandLine& explaining =
      line.command("explain", "tells a schedule in words, round by round",
                   [&] { status = explain(collective_named(collective), explained, rank); });
  explaining.option("collective", &collective).required();
  add_problem(explaining, explained);
  explaining.option("--rank", &rank, "only this one; default: all");

  ShowOptions broken;
  std::string how;
  std::uint64_t seed = 1;
  CommandLine& breaking = line.command(
      "break", "damages a schedule, and shows what the verifier says",
      [&] { status = break_schedule(collective_named(collective), broken, how, seed); });
  breaking.option("collective", &collective).required();
  add_problem(breaking, broken);
  breaking.option("--how", &how, "drop, shift, peer, count, twice, merge, swap; default: any");
  breaking.option("--seed", &seed, "which of the damages");
  breaking.option("--draw", &broken.draw, "SVG file of the damaged schedule");

  ViewOptions viewed;
  ViewedSizes viewed_sizes;
  LessonOptions lessons;
  lessons.command = viewed.command = asked(argc, argv);
  add_views(line, viewed, viewed_sizes, lessons, status);

  TraceOptions traced;
  CommandLine& tracing = line.command("trace", "shows a run that was measured under PEAL_TRACE",
                                      [&] { status = trace(traced); });
  tracing.option("folder", &traced.folder, "what PEAL_TRACE named").required();
  tracing.option("--operation", &traced.operation,
                 "a number of the list; default: of those that move most, the median");
  tracing
      .option(
          "--step", &traced.step,
          "a step of data-parallel training, by its number: where the time of each bucket went; "
          "0: the one of median time")
      .not_negative();
  tracing.option("--draw", &traced.draw,
                 "SVG file of the operation, beside the model; or of the step: ops above, buckets "
                 "below");
  tracing.option("--trace", &traced.json,
                 "JSON for ui.perfetto.dev: the whole run, or --operation beside the model");
  add_machine(tracing, traced.machine);

  FlightOptions flown;
  CommandLine& flying = line.command(
      "flight",
      "lays the last operations of all ranks side by side, as PEAL_FLIGHT or SIGUSR1 left them, "
      "and marks the first in which they differ",
      [&] { status = flight(flown); });
  flying.option("folder", &flown.folder, "what PEAL_FLIGHT named").required();
  flying.option("--around", &flown.around, "calls to show before the difference, and behind it")
      .not_negative();

  CalibrateOptions calibrated;
  std::string calibrated_sizes = "4,16,64,256,1K,4K,8K,16K,32K,64K,128K,256K,1M,4M,16M";
  CommandLine& calibrating = line.command(
      "calibrate",
      "measures collectives between the ranks it is started with (peal-run -n 4 peal-schedule "
      "calibrate), and keeps by which algorithm each is the quickest: groups like that choose by "
      "it "
      "from then on",
      [&] {
        calibrated.timing.bytes = parse_sizes(calibrated_sizes);
        status = calibrate(calibrated);
      });
  calibrating.option("--threads", &calibrated.threads, "ranks that are threads of this process")
      .between(2, 64);
  calibrating.option("--bytes", &calibrated_sizes, "of the buffer, ascending");
  calibrating.option("--turns", &calibrated.timing.turns, "over the algorithms, at each size")
      .positive();
  calibrating.flag("--native", &calibrated.timing.native,
                   "the transport's own collectives may be chosen too: whether replicas then have "
                   "equal bits is that library's word");
  calibrating.option("--output", &calibrated.output,
                     "file; default: what PEAL_TUNING says, else in the user's cache");

  ChoicesOptions chosen;
  CommandLine& choosing =
      line.command("choices", "by which algorithms collectives run where PEAL_ALGO says nothing",
                   [&] { status = choices(chosen); });
  choosing.option("--ranks", &chosen.ranks, "of the group").positive();
  choosing.option("--nodes", &chosen.nodes, "that they are on").positive();
  choosing.flag("--crowded", &chosen.crowded, "more ranks than cores");
  choosing.option("--file", &chosen.file, "what calibrate has written, instead of what is built in")
      .existing_file();

  return line.parse(argc, argv).value_or(status);
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
