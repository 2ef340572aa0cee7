// SPDX-License-Identifier: Apache-2.0
// step_time: the time of one training step (zero_grad, forward, backward, AdamW) of a model on
// random data. Prints the median over --reps groups of --steps steps, so that a group outlasts the
// clock's noise; --json writes {"model", "batch", "threads", "step_ms"}; --profile prints the time
// by op as well, measured in a run of its own, and --trace draws one. With --device cuda all is on
// that device; --graph captures the whole step there and replays it.
//
// The rest is for bench/peers/ratios.py, which alternates this with another program. --list prints
// a line for each model: its name, batch and steps. With --on-demand it says how many parameters
// there are, and then, for each line on its standard input, times one group and prints the
// milliseconds of a step, of wall and of processor time. --memory prints bytes.
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/profile.h>
#include <peal/launch/command_line.h>
#include <peal/nn/nn.h>

#include <peal/bench/clock.h>
#include <peal/bench/models.h>

#include <fmt/core.h>
#include <omp.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

int main(int argc, char** argv) try {
  std::string name = "basicnet", device_name = "cpu", precision = "f32", json, trace_file;
  std::int64_t batch = 0;
  int threads = 1, reps = 15, steps = 0;
  double clip = 0;
  bool profile = false, on_demand = false, memory = false, captures = false, lists = false;
  std::vector<std::string> names;
  for (const auto& [known, model] : peal::bench::models()) names.push_back(known);
  peal::launch::CommandLine line("Time of one training step");
  line.flag("--list", &lists, "print the models, their batches and steps");
  line.option("--model", &name).one_of(names);
  line.option("--batch", &batch, "default: the model's").positive();
  line.option("--device", &device_name, "cpu, cuda or cuda:N");
  line.option("--precision", &precision,
              "f32, bf16 (autocast), or tf32 (products of f32, on a device that has it)")
      .one_of({"f32", "tf32", "bf16"});
  line.option("--clip", &clip, "clip gradients to this norm before the step").positive();
  line.flag("--graph", &captures, "capture the whole step, and replay it (cuda)");
  line.option("--threads", &threads).positive();
  line.option("--reps", &reps, "groups, of which the median counts").positive();
  line.option("--steps", &steps, "steps in a group; default: the model's").positive();
  line.option("--json", &json, "file to write");
  line.flag("--profile", &profile, "print time, rates and memory by op");
  line.option("--trace", &trace_file, "file for a picture of a group (ui.perfetto.dev)");
  line.flag("--memory", &memory,
            "print the most bytes resident, before the model and after steps (cuda: of tensors)");
  line.flag("--on-demand", &on_demand, "time a group for each line of standard input");
  if (const auto status = line.parse(argc, argv)) return *status;

  if (lists) {
    for (const auto& [known, model] : peal::bench::models()) {
      fmt::print("{} {} {}\n", known, model.batch, model.steps);
    }
    return 0;
  }
  const peal::bench::Model& model = peal::bench::models().at(name);
  if (batch == 0) batch = model.batch;
  if (steps == 0) steps = model.steps;
  const peal::Device device = peal::parse_device(device_name);
  const std::size_t at_start = peal::memory_marks().resident;
  omp_set_num_threads(threads);
  peal::manual_seed(0);
  peal::context().allow_tf32 = precision == "tf32";
  peal::context().cudnn_benchmark = true;
  peal::bench::Job work = model.make(batch, device);
  peal::nn::AdamW optimizer(work.module.parameters(), {.lr = 1e-3});
  peal::Graph graph(captures ? device : peal::Device{});
  const auto step = [&] {
    graph.run([&] {
      optimizer.zero_grad();
      const auto loss = [&] {
        const peal::Autocast guard(peal::DType::bf16, precision == "bf16");
        return work.loss();
      }();
      loss.backward();
      if (clip > 0) peal::nn::clip_grad_norm_(optimizer.parameters(), clip);
      optimizer.step();
    });
  };
  if (memory) {
    for (int i = 0; i < steps; ++i) step();
    // Without what the first steps try. A graph keeps what it computes in memory of its own, which
    // only its capture counts.
    if (device.type != peal::DeviceType::cpu && !captures) {
      peal::memory_space(device).reset_peak(device);
      for (int i = 0; i < steps; ++i) step();
      peal::synchronize(device);
    }
    if (device.type == peal::DeviceType::cpu) {
      fmt::print("{} {}\n", at_start, peal::memory_marks().resident);
    } else {
      fmt::print("0 {}\n", peal::memory_space(device).statistics(device).peak);
    }
    return 0;
  }
  for (int i = 0; i < 3; ++i) step();

  const auto group = [&] {
    peal::synchronize(device);
    const peal::bench::Clock clock;
    for (int i = 0; i < steps; ++i) step();
    peal::synchronize(device);
    const peal::bench::Seconds spent = clock.since_start();
    return peal::bench::Seconds{spent.wall / steps * 1e3, spent.processor / steps * 1e3};
  };
  if (on_demand) {
    std::int64_t parameters = 0;
    for (const peal::Tensor& parameter : work.module.parameters()) parameters += parameter.numel();
    fmt::print("{}\n", parameters);
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
      const peal::bench::Seconds ms = group();
      fmt::print("{:.4f} {:.4f}\n", ms.wall, ms.processor);
      std::fflush(stdout);
    }
    return 0;
  }
  std::vector<double> ms;
  for (int rep = 0; rep < reps; ++rep) ms.push_back(group().wall);
  std::sort(ms.begin(), ms.end());
  const double median = ms[ms.size() / 2];
  fmt::print(
      "{} batch {} {} {} threads {}: {:.3f} ms a step (median of {}; least {:.3f}, most {:.3f}), "
      "{:.0f} "
      "items/s\n",
      name, batch, device_name, precision, threads, median, reps, ms.front(), ms.back(),
      static_cast<double>(batch) / median * 1e3);
  if (!json.empty()) {
    std::ofstream file(json);
    file << nlohmann::json{{"model", name},          {"batch", batch},     {"device", device_name},
                           {"precision", precision}, {"threads", threads}, {"step_ms", median}}
         << "\n";
    PEAL_CHECK(file.flush().good(), "step_time: cannot write ", json);
  }
  if (profile) {
    peal::context().trace = std::make_shared<peal::Trace>(0, device);
    const int count = reps * steps;
    for (int i = 0; i < count; ++i) step();
    const auto trace = std::exchange(peal::context().trace, nullptr);
    fmt::print("{}", peal::profile_report(*trace, count));
  }
  if (!trace_file.empty()) {
    peal::context().trace = std::make_shared<peal::Trace>(peal::Trace::picture_events, device);
    for (int i = 0; i < steps; ++i) step();
    peal::save_trace(trace_file, *peal::context().trace);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "step_time: %s\n", error.what());
  return 1;
}
