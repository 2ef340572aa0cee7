// SPDX-License-Identifier: Apache-2.0
// scaling_on_paper: how well DDP would scale to more ranks than there are here: a step that one
// rank was measured to take, DDP's own buckets, and the algorithms of the table, simulated on a
// cluster that is described by a few numbers. Prints the efficiency, the time of a step alone over
// that of a step among so many, with a fixed batch a rank; and draws it.
//
//   scaling_on_paper docs/book/measured/resnet50.json --step-ms 136 --gigabits 100 --plot out.svg
//
// The profile says when in backward each gradient comes. --step-ms makes the whole step as long as
// on another machine.
#include <peal/bench/scaling/profile.h>
#include <peal/comm/algorithms/world.h>
#include <peal/launch/command_line.h>
#include <peal/launch/tools/schedule/plot.h>
#include <peal/launch/tools/schedule/world.h>
#include <peal/nn/parallel/bucket_size.h>

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace peal;

struct Settings {
  std::string profile, ranks = "1,8,64,256,1024", plot;
  std::vector<std::string> algorithms;
  std::optional<double> step_ms;
  int node_size = 8;
  double gigabits = 100, latency_us = 5;
  double inside_gigabytes = 100, inside_latency_us = 2;
  double reduce_gigabytes = 200;
  std::int64_t bucket_mib = 0;  // as DDP chooses
  bool what_if = false;
};

comm::Machine machine_of(const Settings& settings, int ranks) {
  const double adapter = 8e-9 / settings.gigabits;
  return {.nodes = comm::nodes_of(ranks, settings.node_size),
          .inside = {settings.inside_latency_us * 1e-6, 1e-9 / settings.inside_gigabytes},
          .between = {settings.latency_us * 1e-6, adapter},
          .adapter = adapter,
          .reduce = 1e-9 / settings.reduce_gigabytes,
          .copy = 1e-9 / settings.reduce_gigabytes,
          .stragglers = {}};
}

struct Buckets {
  std::vector<nn::Bucket> plan;
  std::int64_t least = 0, most = 0;  // bytes
};

// As DDP makes them among so many ranks, once it knows in which order gradients come.
Buckets buckets_of(const bench::Profile& profile, const Settings& settings, int ranks) {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  const auto cost = nn::assumed_cost(comm::nodes_of(ranks, settings.node_size));
  nn::BucketCaps caps = nn::chosen_caps(profile.parameters, {}, cost);
  if (settings.bucket_mib > 0) caps = {mib, settings.bucket_mib * mib};
  Buckets buckets;
  buckets.plan = nn::plan_buckets(profile.parameters, caps, nn::arrival_of(profile.times));
  for (const nn::Bucket& bucket : buckets.plan) {
    const std::int64_t bytes = bucket.count * static_cast<std::int64_t>(size_of(bucket.dtype));
    buckets.least = buckets.least == 0 ? bytes : std::min(buckets.least, bytes);
    buckets.most = std::max(buckets.most, bytes);
  }
  return buckets;
}

int run(const Settings& settings) {
  const bench::Profile profile = bench::load_profile(settings.profile);
  nn::StepProfile times = profile.times;
  if (settings.step_ms) times = times.scaled(*settings.step_ms * 1e-3 / times.step());
  const std::vector<int> worlds = launch::parse_ranks(settings.ranks);
  std::vector<std::string> algorithms = settings.algorithms;
  if (algorithms.empty()) algorithms = {"ring", "rabenseifner", "hierarchical"};
  fmt::print("{}: {:.1f} MB of gradients; a step alone {:.1f} ms, backward {:.1f} of it\n",
             profile.model, profile.bytes() / 1e6, times.step() * 1e3, times.backward * 1e3);
  fmt::print("nodes of {}, {:g} Gbit/s a node, {:g} GB/s inside\n", settings.node_size,
             settings.gigabits, settings.inside_gigabytes);
  fmt::print("{:>6} {:>8}", "ranks", "buckets");
  for (const std::string& name : algorithms) fmt::print(" {:>24}", name);
  fmt::print("\n");
  launch::Plot plot{.title = fmt::format("{}, {:.0f} ms a step alone, {:g} Gbit/s: efficiency",
                                         profile.model, times.step() * 1e3, settings.gigabits),
                    .at = {},
                    .curves = {},
                    .unit = launch::Plot::Unit::share,
                    .over = launch::Plot::Over::ranks};
  for (const std::string& name : algorithms) plot.curves.push_back({name, {}});
  for (const int world : worlds) {
    const Buckets buckets = buckets_of(profile, settings, world);
    fmt::print("{:>6} {:>8}", world, buckets.plan.size());
    plot.at.push_back(world);
    for (std::size_t a = 0; a < algorithms.size(); ++a) {
      const auto cost = nn::simulated_cost(machine_of(settings, world), algorithms[a],
                                           buckets.least, buckets.most);
      const nn::WhatIf found = nn::what_if(times, buckets.plan, cost);
      const double efficiency = times.step() / found.step;
      plot.curves[a].values.push_back(efficiency);
      fmt::print(" {:>8.1f} % ({:>7.1f} ms)", efficiency * 100, found.exposed * 1e3);
    }
    fmt::print("\n");
  }
  fmt::print("in brackets: communication that backward does not hide\n");
  if (settings.what_if) {
    const comm::Machine machine = machine_of(settings, worlds.back());
    fmt::print("other bucket caps, {} ranks by {}:\n", worlds.back(), algorithms.back());
    constexpr std::int64_t kib = 1024;
    const auto cost = nn::simulated_cost(machine, algorithms.back(), kib,
                                         static_cast<std::int64_t>(profile.bytes()));
    fmt::print("{}", nn::describe(nn::what_if(profile.parameters, times, cost)));
  }
  if (settings.plot.empty()) return 0;
  std::ofstream file(settings.plot);
  file << launch::svg({plot});
  PEAL_CHECK(file.flush().good(), "--plot: cannot write ", settings.plot);
  fmt::print("wrote {}\n", settings.plot);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  launch::CommandLine line(
      "How well DDP would scale to more ranks than there are here, by a measured step and a "
      "simulated cluster.");
  line.option("profile", &settings.profile, "a file that bench/scaling/scaling --profile wrote")
      .required()
      .existing_file();
  line.option("--ranks", &settings.ranks, "1-64 or 1,8,64");
  line.option("--algorithms", &settings.algorithms,
              "of all_reduce; default: ring rabenseifner hierarchical");
  line.option("--step-ms", &settings.step_ms, "of a step alone, on another machine").positive();
  line.option("--bucket-mib", &settings.bucket_mib,
              "size of DDP's buckets; default: its own choice")
      .positive();
  line.option("--node-size", &settings.node_size, "ranks of a node").positive();
  line.option("--gigabits", &settings.gigabits,
              "a second that leave a node, and as many that enter")
      .positive();
  line.option("--latency", &settings.latency_us, "us, between nodes").not_negative();
  line.option("--inside", &settings.inside_gigabytes, "GB/s of a message inside a node").positive();
  line.option("--inside-latency", &settings.inside_latency_us, "us, inside a node").not_negative();
  line.option("--reduce", &settings.reduce_gigabytes, "GB/s that a rank adds, and copies")
      .positive();
  line.flag("--what-if", &settings.what_if,
            "the same with other buckets, for the last number of ranks and the last algorithm");
  line.option("--plot", &settings.plot, "SVG file");
  if (const auto status = line.parse(argc, argv)) return *status;
  try {
    return run(settings);
  } catch (const std::exception& error) {
    fmt::print(stderr, "scaling_on_paper: {}\n", error.what());
    return 2;
  }
}
