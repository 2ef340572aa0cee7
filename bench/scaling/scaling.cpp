// SPDX-License-Identifier: Apache-2.0
// scaling: how long a training step takes at 1, 2, 4, .. ranks of those that it is started with,
// and the epoch with it:
//
//   weak    each rank has a batch of its own, always of the same size: twice the ranks, twice the
//           samples a step
//   strong  all ranks together have one batch, always of the same size: twice the ranks, half the
//           samples a rank
//
// The numbers of ranks take turns, so whatever the machine does, it does to all; ranks that have no
// part in a turn sleep. Beside each time stands what the model of nn/parallel/what_if.h says of it,
// from the step of one rank and the machine's messages as both are measured here; where ranks
// outnumber the cores, it takes compute to be slower by as much. Start it with peal-run or mpirun:
//
//   launch/tools/peal-mpirun -n 4 build/release/bench/scaling/scaling --model mlp --plot out.svg
#include <peal/bench/clock.h>
#include <peal/bench/machine_measurement.h>
#include <peal/bench/scaling/profile.h>
#include <peal/bench/scaling/table.h>
#include <peal/comm/algorithms/world.h>
#include <peal/launch/affinity.h>
#include <peal/launch/command_line.h>
#include <peal/launch/job.h>
#include <peal/launch/tools/schedule/plot.h>
#include <peal/nn/nn.h>
#include <peal/nn/parallel/bucket_size.h>
#include <peal/nn/parallel/ddp.h>

#include <fmt/core.h>
#include <omp.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace peal;

struct Settings {
  std::string model = "mlp", plot, json, profile, algorithm = "ring";
  std::int64_t batch = 0, samples = 60'000;
  int threads = 1, turns = 7, steps = 0;
};

// Training by the first so many ranks.
class Arm {
 public:
  Arm(const comm::ProcessGroup& all, int ranks, const bench::Model& model, std::int64_t batch)
      : all_(all), ranks_(ranks), batch_(batch) {
    std::vector<int> members;
    for (int r = 0; r < ranks; ++r) members.push_back(r);
    group_ = all.new_group(members);
    if (!group_) return;
    manual_seed(0);
    work_.emplace(model.make(batch, Device{}));
    ddp_.emplace(work_->module, group_);
    work_->module = *ddp_;
    optimizer_.emplace(ddp_->parameters(), nn::SGDOptions{.lr = 1e-3});
  }

  // Seconds a step, of the rank that took longest; the same on every rank.
  double turn(int steps) {
    double seconds = 0;
    if (group_) {
      group_.barrier().wait();
      const bench::Clock clock;
      for (int i = 0; i < steps; ++i) {
        optimizer_->zero_grad();
        work_->loss().backward();
        optimizer_->step();
      }
      seconds = clock.since_start().wall / steps;
    }
    const Tensor slowest = Tensor::scalar(seconds, Device{});
    const comm::Work met = all_.all_reduce(slowest, comm::ReduceOp::max);
    while (!met.test()) std::this_thread::sleep_for(std::chrono::microseconds(200));
    met.wait();
    return slowest.item<double>();
  }

  int ranks() const { return ranks_; }
  std::int64_t batch() const { return batch_; }  // a rank's
  const comm::ProcessGroup& group() const { return group_; }
  std::vector<double> times;

 private:
  const comm::ProcessGroup& all_;
  int ranks_;
  std::int64_t batch_;
  comm::ProcessGroup group_;
  std::optional<bench::Job> work_;
  std::optional<nn::DistributedDataParallel> ddp_;
  std::optional<nn::SGD> optimizer_;
};

std::vector<int> numbers_up_to(int world) {
  std::vector<int> numbers;
  for (int ranks = 1; ranks < world; ranks *= 2) numbers.push_back(ranks);
  numbers.push_back(world);
  return numbers;
}

// The machine as so many ranks find it. Collective in `group`; nothing for one alone.
std::optional<comm::Machine> measured_machine(const comm::ProcessGroup& group) {
  if (!group || group.world() == 1) return std::nullopt;
  bench::MachineMeasurement measurement(group);
  for (int sweep = 0; sweep < 2; ++sweep) {
    for (const std::int64_t bytes : {4, 16 << 10, 256 << 10, 4 << 20}) measurement.measure(bytes);
  }
  return measurement.machine();
}

// What the model says of a step with so large a batch among so many ranks.
double modelled(const bench::Profile& profile, const std::optional<comm::Machine>& machine,
                int ranks, const Settings& settings) {
  const int cores = std::max(1, launch::cores().machine);
  const double crowd = std::max(1.0, static_cast<double>(ranks * settings.threads) / cores);
  const nn::StepProfile times = profile.times.scaled(crowd);
  if (!machine) return times.step();
  const auto caps = nn::chosen_caps(profile.parameters, {}, nn::assumed_cost(machine->nodes));
  const auto plan = nn::plan_buckets(profile.parameters, caps, nn::arrival_of(profile.times));
  const auto cost = nn::simulated_cost(*machine, settings.algorithm, 1024,
                                       static_cast<std::int64_t>(profile.bytes()));
  return nn::what_if(times, plan, cost).step;
}

void run(launch::Job& job, const Settings& settings) {
  const comm::ProcessGroup all = job.group();
  const bench::Model& model = bench::models().at(settings.model);
  const std::int64_t batch = settings.batch > 0 ? settings.batch : model.batch;
  const int steps = settings.steps > 0 ? settings.steps : model.steps;
  omp_set_num_threads(settings.threads);
  if (!settings.profile.empty()) {
    PEAL_CHECK(all.world() == 1, "scaling: --profile is of one rank, got ", all.world());
    save_profile(settings.profile,
                 bench::measure_profile(settings.model, model, batch, settings.turns));
    fmt::print("wrote {}\n", settings.profile);
    return;
  }
  const std::vector<int> numbers = numbers_up_to(all.world());
  std::vector<std::unique_ptr<Arm>> weak, strong;
  for (const int ranks : numbers) {
    weak.push_back(std::make_unique<Arm>(all, ranks, model, batch));
    PEAL_CHECK(batch >= ranks, "scaling: a batch of ", batch, " for ", ranks, " ranks");
    strong.push_back(std::make_unique<Arm>(all, ranks, model, batch / ranks));
  }
  for (int turn = -1; turn < settings.turns; ++turn) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      for (auto* const arms : {&weak, &strong}) {
        const double seconds = (*arms)[i]->turn(steps);
        if (turn >= 0) (*arms)[i]->times.push_back(seconds);
      }
    }
  }
  bench::ScalingTable tables[] = {
      {fmt::format("{}, a batch of {} on each rank (weak)", settings.model, batch),
       settings.samples},
      {fmt::format("{}, a batch of {} on all ranks (strong)", settings.model, batch),
       settings.samples}};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto machine = measured_machine(weak[i]->group());
    for (const auto& [arms, table] : {std::pair(&weak, &tables[0]), {&strong, &tables[1]}}) {
      const Arm& arm = *(*arms)[i];
      bench::ScalingLine line{arm.ranks(), arm.batch(), bench::median(arm.times), 0};
      if (all.rank() == 0) {  // the others sleep in the next meeting
        const bench::Profile profile =
            bench::measure_profile(settings.model, model, arm.batch(), steps);
        line.model = modelled(profile, machine, arm.ranks(), settings);
      }
      table->add(line);
      const comm::Work met = all.barrier();
      while (!met.test()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      met.wait();
    }
  }
  if (all.rank() != 0) return;
  fmt::print(
      "{} ranks of {} threads on {} cores; medians of {} turns of {} steps; epochs of {} "
      "samples; the model has {}\n",
      all.world(), settings.threads, launch::cores().machine, settings.turns, steps,
      settings.samples, settings.algorithm);
  for (const bench::ScalingTable& table : tables) table.print();
  fmt::print(
      "\nspeed-up: samples a second against those of one rank; efficiency: its share a rank\n"
      "model: one rank's step, longer by as much as ranks outnumber cores; messages as measured\n");
  if (!settings.plot.empty()) {
    std::ofstream file(settings.plot);
    file << launch::svg({tables[0].plot(), tables[1].plot()});
    PEAL_CHECK(file.flush().good(), "--plot: cannot write ", settings.plot);
  }
  if (!settings.json.empty()) {
    std::ofstream file(settings.json);
    file << nlohmann::json{{"model", settings.model},
                           {"weak", tables[0].json()},
                           {"strong", tables[1].json()}}
         << "\n";
    PEAL_CHECK(file.flush().good(), "--json: cannot write ", settings.json);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  launch::CommandLine line(
      "How the time of a training step changes with the number of ranks; start it with peal-run or "
      "mpirun.");
  line.option("--model", &settings.model)
      .one_of({"basicnet", "mlp", "gpt", "resnet18", "resnet50", "gpt2", "gpt2_tied"});
  line.option("--batch", &settings.batch, "a rank's (weak), and all ranks' (strong)").positive();
  line.option("--samples", &settings.samples, "of an epoch").positive();
  line.option("--threads", &settings.threads, "of each rank").positive();
  line.option("--turns", &settings.turns, "of each number of ranks").positive();
  line.option("--steps", &settings.steps, "in a turn; default: the model's").positive();
  line.option("--algorithm", &settings.algorithm, "of all_reduce, in the model");
  line.option("--plot", &settings.plot, "SVG file of both speed-ups");
  line.option("--json", &settings.json, "file to write");
  line.option("--profile", &settings.profile,
              "only measure the step of one rank, and write it to this file");
  if (const auto status = line.parse(argc, argv)) return *status;
  return launch::run_main([&](launch::Job& job) { run(job, settings); });
}
