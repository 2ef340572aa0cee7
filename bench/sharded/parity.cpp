// SPDX-License-Identifier: Apache-2.0
// sharded_parity: is every way of training what one process is? Each strategy (strategies.h) on
// each net (nets.h) takes the same steps in f64 on 1 to 4 ranks, threads of this process, as one
// process does, and their losses and parameters are compared:
//
//   sharded_parity                              all nets, all worlds, 20 steps: some minutes a net
//   sharded_parity --nets gpt --steps 3         as the tests do
//   sharded_parity --resume --nets gpt          from each strategy's checkpoint into each other
//
// Prints a line a combination, with the largest difference, and how many there were. The exit
// status is 1 where one is beyond 1e-10. With --resume a strategy takes the first half of the
// steps and saves a checkpoint, a sharded one where both have such, and another strategy, at
// another number of ranks, loads it and takes the rest.
#include <peal/bench/sharded/strategies.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/command_line.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace peal;
using bench::Net;
using bench::Strategy;
using bench::Training;

constexpr double bound = 1e-10;

struct Settings {
  std::vector<std::string> nets{"gpt", "basicnet", "resnet18"}, only;
  std::vector<std::string> worlds{"1", "2", "3", "4"};
  int steps = 20;
  bool resume = false, quiet = false;
};

// What a training came to.
struct Outcome {
  std::vector<double> losses;
  NamedTensors state;
};

Outcome taken(Training& training, const Net& net, int begin, int end, int rank = 0) {
  Outcome outcome;
  for (int step = begin; step < end; ++step) {
    outcome.losses.push_back(training.step(net.batch(step)));
  }
  outcome.state = training.state(rank);
  return outcome;
}

bool is_statistic(const std::string& key) {
  return key.find("running_") != std::string::npos || key.ends_with("num_batches_tracked");
}

// NaN counts as infinite.
void raise(double& most, double apart) {
  most = apart <= most ? most : std::isnan(apart) ? INFINITY : apart;
}

// The last of `all` are those of `some`.
double difference(const Outcome& some, const Outcome& all, bool statistics) {
  double most = 0;
  for (std::size_t i = 0; i < some.losses.size(); ++i) {
    raise(most, std::abs(some.losses[some.losses.size() - 1 - i] -
                         all.losses[all.losses.size() - 1 - i]));
  }
  std::map<std::string, Tensor> found(some.state.begin(), some.state.end());
  PEAL_CHECK(found.size() == all.state.size(), "expected ", all.state.size(), " tensors, got ",
             found.size());
  for (const auto& [name, expected] : all.state) {
    if (!statistics && is_statistic(name)) continue;
    const auto mine = cast(found.at(name).detach(), DType::f64).to_vector<double>(),
               theirs = cast(expected.detach(), DType::f64).to_vector<double>();
    PEAL_CHECK(mine.size() == theirs.size(), name, ": expected ", theirs.size(), " elements, got ",
               mine.size());
    for (std::size_t k = 0; k < mine.size(); ++k) raise(most, std::abs(mine[k] - theirs[k]));
  }
  return most;
}

// The same checkpoint in one file.
std::filesystem::path whole_file(const std::filesystem::path& folder) {
  return folder.string() + ".safetensors";
}

// f on ranks that are threads; what one fails with, or nothing.
std::string on_ranks(int world, const std::function<void(const comm::ProcessGroup&)>& f) {
  try {
    comm::run_ranks(world, {.deadline = std::chrono::minutes(10)},
                    [&](const comm::ProcessGroup& group) {
                      manual_seed(1);
                      f(group);
                    });
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

class Report {
 public:
  explicit Report(bool quiet) : quiet_(quiet) {}

  void add(const std::string& what, double apart, const std::string& error) {
    ++count_;
    const bool right = error.empty() && apart <= bound;
    if (!right) ++wrong_;
    worst_ = std::max(worst_, apart);
    if (right && quiet_) return;
    fmt::print("{:<66} {:>9.2e} {}\n", what, apart, right ? "" : "WRONG " + error);
    std::fflush(stdout);
  }
  // The exit status.
  int end() const {
    fmt::print("{} combinations, {} beyond {:.0e}; the largest difference is {:.2e}\n", count_,
               wrong_, bound, worst_);
    return wrong_ == 0 && count_ > 0 ? 0 : 1;
  }

 private:
  bool quiet_;
  int count_ = 0, wrong_ = 0;
  double worst_ = 0;
};

struct Runner {
  const Settings& settings;
  Report& report;

  bool wanted(const Strategy& strategy) const {
    return settings.only.empty() ||
           std::any_of(settings.only.begin(), settings.only.end(), [&](const std::string& part) {
             return strategy.name.find(part) != std::string::npos;
           });
  }
  std::vector<int> worlds(const Strategy& strategy) const {
    std::vector<int> some;
    for (const int world : strategy.worlds) {
      const std::string word = std::to_string(world);
      if (std::count(settings.worlds.begin(), settings.worlds.end(), word) > 0)
        some.push_back(world);
    }
    return some;
  }

  void compare(const Net& net) {
    const Outcome whole = alone(net, bench::batch_rows);
    const Outcome micro = net.batch_norm ? alone(net, 3) : whole;
    for (const Strategy& strategy : bench::strategies(net)) {
      if (!wanted(strategy)) continue;
      for (const int world : worlds(strategy)) {
        double apart = 0;
        const std::string error = on_ranks(world, [&](const comm::ProcessGroup& group) {
          const auto training = strategy.make(net, group);
          const Outcome mine = taken(*training, net, 0, settings.steps, group.rank());
          if (group.rank() != 0) return;
          apart = difference(mine, strategy.micro ? micro : whole, strategy.buffers);
        });
        report.add(fmt::format("{} {}, {} ranks", net.name, strategy.name, world), apart, error);
      }
    }
  }

  // Each strategy's checkpoint into each other, ranks in turn, so that all meet all.
  void resume(const Net& net) {
    const Outcome whole = alone(net, bench::batch_rows);
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / fmt::format("sharded_parity.{}", ::getpid());
    int turn = 0;
    for (const Strategy& first : bench::strategies(net)) {
      if (!wanted(first) || (net.batch_norm && first.micro)) continue;
      for (const int before : worlds(first)) {
        const std::string error = on_ranks(before, [&](const comm::ProcessGroup& group) {
          const auto training = first.make(net, group);
          taken(*training, net, 0, settings.steps / 2, group.rank());
          const std::vector<nn::Part> parts = training->parts();
          if (first.sharded) nn::save_sharded(folder, parts, group);
          for (const nn::Part& part : parts) part.consolidate_state_dict();
          if (group.rank() == 0) nn::save(whole_file(folder), parts);
        });
        const std::string from = fmt::format("{} {}, {} ranks", net.name, first.name, before);
        if (!error.empty()) {
          report.add(from, 0, error);
          continue;
        }
        for (const Strategy& second : bench::strategies(net)) {
          const std::vector<int> some = worlds(second);
          if (!wanted(second) || some.empty() || (net.batch_norm && second.micro)) continue;
          const int after = some[static_cast<std::size_t>(turn++) % some.size()];
          const bool sharded = first.sharded && second.sharded;
          report_rest(net, whole, second, after, sharded ? folder : whole_file(folder), from);
        }
      }
    }
    std::filesystem::remove_all(folder);
    std::filesystem::remove(whole_file(folder));
  }

 private:
  Outcome alone(const Net& net, std::int64_t rows) const {
    const auto training = bench::train_alone(net, rows);
    return taken(*training, net, 0, settings.steps);
  }
  void report_rest(const Net& net, const Outcome& whole, const Strategy& strategy, int world,
                   const std::filesystem::path& checkpoint, const std::string& from) {
    double apart = 0;
    const std::string error = on_ranks(world, [&](const comm::ProcessGroup& group) {
      const auto training = strategy.make(net, group);
      if (std::filesystem::is_directory(checkpoint)) {
        nn::load_sharded(checkpoint, training->parts(), group);
      } else {
        nn::load(checkpoint, training->parts());
      }
      const Outcome mine = taken(*training, net, settings.steps / 2, settings.steps, group.rank());
      if (group.rank() == 0) apart = difference(mine, whole, strategy.buffers);
    });
    report.add(fmt::format("{} -> {}, {}", from, strategy.name, world), apart, error);
  }
};

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  launch::CommandLine line("Every way of training beside one process, in f64.");
  line.option("--nets", &settings.nets, "some of these").one_of({"gpt", "basicnet", "resnet18"});
  line.option("--only", &settings.only, "strategies whose names have one of these in them");
  line.option("--worlds", &settings.worlds, "numbers of ranks").one_of({"1", "2", "3", "4"});
  line.option("--steps", &settings.steps).positive();
  line.flag("--resume", &settings.resume, "from each checkpoint into each other strategy");
  line.flag("--quiet", &settings.quiet, "print what is wrong, and the count");
  if (const auto status = line.parse(argc, argv)) return *status;

  Report report(settings.quiet);
  Runner runner{settings, report};
  for (const Net& net : bench::all_nets()) {
    if (std::count(settings.nets.begin(), settings.nets.end(), net.name) == 0) continue;
    if (settings.resume) {
      runner.resume(net);
    } else {
      runner.compare(net);
    }
  }
  return report.end();
}
