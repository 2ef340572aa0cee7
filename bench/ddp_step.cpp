// SPDX-License-Identifier: Apache-2.0
// ddp_step: what data-parallel training costs beyond training: one step (zero_grad, forward,
// backward, AdamW) on each rank, in several arms that take turns in one job, so that whatever the
// machine does, it does to all:
//
//   alone        nothing is communicated
//   barrier      the ranks meet once a step: what it costs that they are not equally fast
//   late         all gradients are sent when backward is over: no overlap
//   ddp          DistributedDataParallel as it is
//   find_unused  with find_unused_parameters
//   digest       with digests of parameters and buffers compared in every step: of what that adds,
//                check_every = 100 adds a hundredth
//   zero1        DistributedDataParallel, and the optimizer's state shared out
//   zero2        ShardedDDP
//   fsdp         FullyShardedDataParallel, a unit for each block of the model
//
// Prints the median time of a step of each arm, the median of the ratios to the first arm pair by
// pair with their quartiles, and what waiting for gradients took (exposed). Start it with peal-run
// or mpirun. With --on-demand, rank 0 times a group of steps of the arm that each line of its
// standard input names, so that a caller can alternate it with another program, and answers with
// milliseconds a step, those exposed, and the bytes of the last bucket.
#include <peal/launch/command_line.h>
#include <peal/launch/job.h>
#include <peal/nn/is_of_class.h>
#include <peal/nn/nn.h>
#include <peal/nn/parallel/ddp.h>

#include <peal/bench/clock.h>
#include <peal/bench/models.h>

#include <fmt/ranges.h>
#include <omp.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using peal::bench::Clock;

const std::vector<std::string> known_arms{"alone",  "barrier", "late",  "ddp", "find_unused",
                                          "digest", "zero1",   "zero2", "fsdp"};

// The blocks of which the model has any; the others are one unit.
peal::nn::WrapPolicy a_unit_a_block() {
  return [](const peal::nn::ModelOutline& outline) {
    std::vector<std::string> units;
    for (const auto& part : outline.modules) {
      const auto is = [&](const char* name) { return peal::nn::is_of_class(part.type, name); };
      if (is("GptBlock") || is("BasicBlock")) units.push_back(part.path);
    }
    return units;
  };
}

peal::nn::DDPOptions options_of(const std::string& arm, const peal::nn::BucketCaps& caps) {
  constexpr std::int64_t one = std::numeric_limits<std::int64_t>::max();
  return {.buckets = arm == "late" ? peal::nn::BucketCaps{one, one} : caps,
          .find_unused_parameters = arm == "find_unused",
          .check_every = arm == "digest" ? 1 : 0};
}

// A model of its own, and how it is trained.
class Arm {
 public:
  Arm(std::string name, const peal::bench::Model& model, std::int64_t batch,
      const peal::comm::ProcessGroup& group, const peal::nn::BucketCaps& caps)
      : name_(std::move(name)), group_(group), work_(made(model, batch)) {
    for (const peal::Tensor& p : work_.module.parameters()) bytes_ += p.view().bytes();
    const peal::nn::AdamWOptions settings{.lr = 1e-3};
    const peal::nn::Parameters all(work_.module.named_parameters());
    if (name_ == "fsdp") {
      fsdp_.emplace(work_.module, group, peal::nn::FSDPOptions{.wrap = a_unit_a_block()});
      work_.module = *fsdp_;
      optimizer_ = std::make_unique<peal::nn::AdamW>(fsdp_->local_parameters(), settings);
    } else if (name_ == "zero1" || name_ == "zero2") {
      auto zero = std::make_unique<peal::nn::ZeroRedundancyOptimizer<peal::nn::AdamW>>(group, all,
                                                                                       settings);
      if (name_ == "zero1") ddp_.emplace(work_.module, group, options_of(name_, caps));
      if (name_ == "zero2") {
        ddp_.emplace(peal::nn::ShardedDDP(work_.module, *zero, options_of(name_, caps)));
      }
      optimizer_ = std::move(zero);
    } else {
      if (name_ != "alone" && name_ != "barrier") {
        ddp_.emplace(work_.module, group, options_of(name_, caps));
      }
      optimizer_ = std::make_unique<peal::nn::AdamW>(all, settings);
    }
    if (ddp_) work_.module = *ddp_;
  }

  // Milliseconds a step, and of these those in which nothing was done but wait for gradients.
  std::pair<double, double> group_of(int steps) {
    if (ddp_) ddp_->reducer().reset_times();
    group_.barrier().wait();
    const Clock clock;
    for (int i = 0; i < steps; ++i) step();
    const double ms = clock.since_start().wall / steps * 1e3;
    if (fsdp_) return {ms, std::numeric_limits<double>::quiet_NaN()};  // it counts none
    return {ms, ddp_ ? ddp_->reducer().exposed_seconds() / steps * 1e3 : 0};
  }

  const std::string& name() const { return name_; }
  std::size_t bytes() const { return bytes_; }
  // The bytes of each; none where nothing is sent.
  std::vector<std::size_t> buckets() const {
    std::vector<std::size_t> all;
    if (!ddp_) return all;
    for (const peal::nn::Bucket& each : ddp_->reducer().buckets()) {
      all.push_back(static_cast<std::size_t>(each.count) * peal::size_of(each.dtype));
    }
    return all;
  }

 private:
  static peal::bench::Job made(const peal::bench::Model& model, std::int64_t batch) {
    peal::manual_seed(0);
    return model.make(batch, peal::Device{});
  }
  void step() {
    optimizer_->zero_grad();
    work_.loss().backward();
    if (name_ == "barrier") group_.barrier().wait();
    optimizer_->step();
  }

  std::string name_;
  const peal::comm::ProcessGroup& group_;
  peal::bench::Job work_;
  std::optional<peal::nn::DistributedDataParallel> ddp_;
  std::optional<peal::nn::FullyShardedDataParallel> fsdp_;
  std::unique_ptr<peal::nn::Optimizer> optimizer_;
  std::size_t bytes_ = 0;  // of parameters
};

double at(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

struct Settings {
  std::string model = "basicnet", json;
  std::vector<std::string> arms{"alone", "barrier", "late", "ddp"};
  std::int64_t batch = 0, bucket_kib = 0;
  int threads = 1, pairs = 20, steps = 0;
  bool on_demand = false;
};

void serve(const peal::comm::ProcessGroup& group, std::vector<std::unique_ptr<Arm>>& arms,
           int steps) {
  while (true) {
    std::string line;
    if (group.rank() == 0) std::getline(std::cin, line);
    line = group.broadcast_object(line);
    if (line.empty()) return;
    const auto arm =
        std::find_if(arms.begin(), arms.end(), [&](const auto& a) { return a->name() == line; });
    PEAL_CHECK(arm != arms.end(), "ddp_step: expected the name of an arm, got '", line, "'");
    const auto [ms, exposed] = (*arm)->group_of(steps);
    if (group.rank() != 0) continue;
    const auto buckets = (*arm)->buckets();
    fmt::print("{:.4f} {:.4f} {}\n", ms, exposed, buckets.empty() ? 0 : buckets.back());
    std::fflush(stdout);
  }
}

void run(peal::launch::Job& job, const Settings& settings) {
  const peal::comm::ProcessGroup group = job.group();
  const peal::bench::Model& model = peal::bench::models().at(settings.model);
  const std::int64_t batch = settings.batch > 0 ? settings.batch : model.batch;
  const int steps = settings.steps > 0 ? settings.steps : model.steps;
  omp_set_num_threads(settings.threads);
  peal::nn::BucketCaps caps;
  if (settings.bucket_kib > 0) caps = {settings.bucket_kib << 10, settings.bucket_kib << 10};
  std::vector<std::unique_ptr<Arm>> arms;
  for (const std::string& name : settings.arms) {
    arms.push_back(std::make_unique<Arm>(name, model, batch, group, caps));
    arms.back()->group_of(3);
  }
  if (settings.on_demand) {
    return serve(group, arms, steps);
  }
  std::vector<std::vector<double>> ms(arms.size()), exposed(arms.size()), ratios(arms.size());
  for (int pair = 0; pair < settings.pairs; ++pair) {
    for (std::size_t k = 0; k < arms.size(); ++k) {
      const std::size_t a = pair % 2 == 0 ? k : arms.size() - 1 - k;
      const auto [time, waited] = arms[a]->group_of(steps);
      ms[a].push_back(time);
      exposed[a].push_back(waited);
    }
    for (std::size_t a = 0; a < arms.size(); ++a) {
      ratios[a].push_back(ms[a].back() / ms[0].back());
    }
  }
  if (group.rank() != 0) return;
  nlohmann::json results{{"model", settings.model}, {"batch", batch},
                         {"ranks", group.world()},  {"threads", settings.threads},
                         {"pairs", settings.pairs}, {"gradient_bytes", arms[0]->bytes()}};
  fmt::print("{} batch {}, {} ranks of {} threads, {} MB of gradients, {} groups of {} steps\n",
             settings.model, batch, group.world(), settings.threads,
             static_cast<double>(arms[0]->bytes()) / 1e6, settings.pairs, steps);
  fmt::print("{:<11} {:>10} {:>14}  {:<15} {:>11} {:>8}\n", "arm", "ms a step",
             "to " + arms[0]->name(), "(quartiles)", "exposed ms", "buckets");
  for (std::size_t a = 0; a < arms.size(); ++a) {
    const double waited = at(exposed[a], 0.5);
    fmt::print("{:<11} {:>10.3f} {:>14.4f}  ({:.4f} {:.4f}) {:>11} {:>8}\n", arms[a]->name(),
               at(ms[a], 0.5), at(ratios[a], 0.5), at(ratios[a], 0.25), at(ratios[a], 0.75),
               std::isnan(waited) ? "-" : fmt::format("{:.3f}", waited), arms[a]->buckets().size());
    results["arms"][arms[a]->name()] = {
        {"ms", ms[a]}, {"exposed_ms", exposed[a]}, {"bucket_bytes", arms[a]->buckets()}};
  }
  if (settings.json.empty()) return;
  std::ofstream file(settings.json);
  file << results << "\n";
  PEAL_CHECK(file.flush().good(), "ddp_step: cannot write ", settings.json);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  std::string arms;
  peal::launch::CommandLine line(
      "What data-parallel training costs beyond training; start it with peal-run or mpirun.");
  line.option("--model", &settings.model).one_of({"basicnet", "mlp", "gpt", "resnet18", "gpt2"});
  line.option("--batch", &settings.batch, "a rank's; default: as step_time's").positive();
  line.option("--arms", &arms, "names apart by commas; default: alone,barrier,late,ddp");
  line.option("--bucket-kib", &settings.bucket_kib, "size of ddp's buckets; default: DDP's")
      .positive();
  line.option("--threads", &settings.threads, "of each rank").positive();
  line.option("--pairs", &settings.pairs, "groups of each arm").positive();
  line.option("--steps", &settings.steps, "steps in a group; default: 10, 50, 3, 1").positive();
  line.option("--json", &settings.json, "file to write");
  line.flag("--on-demand", &settings.on_demand,
            "time a group of the arm that each line of rank 0's standard input names");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (!arms.empty()) {
    settings.arms.clear();
    for (std::size_t at = 0; at <= arms.size();) {
      const std::size_t end = std::min(arms.find(',', at), arms.size());
      settings.arms.push_back(arms.substr(at, end - at));
      at = end + 1;
    }
  }
  for (const std::string& name : settings.arms) {
    if (std::find(known_arms.begin(), known_arms.end(), name) != known_arms.end()) continue;
    fmt::print(stderr, "ddp_step: there is no arm '{}'; there are {}\n", name,
               fmt::join(known_arms, ", "));
    return 2;
  }
  return peal::launch::run_main([&](peal::launch::Job& job) { run(job, settings); });
}
