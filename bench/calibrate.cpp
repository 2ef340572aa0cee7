// SPDX-License-Identifier: Apache-2.0
// calibrate: measures the machine under mpirun for the simulator of schedules, and on request shows
// how well that then foretells real collectives.
//
//   mpirun -n 2 bench/calibrate --json machine.json
//   peal-schedule compare all_reduce --machine machine.json
//   mpirun -n 2 bench/calibrate --check
//
// --check measures all_reduce by several algorithms over sizes, beside what the simulator says with
// the measured machine, and beside the straight-line model (latency, seconds a byte sent and
// added) fitted to those very runs. Errors are |model - measured| / measured.
#include <peal/autograd/core/error.h>
#include <peal/bench/machine_measurement.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/simulate/calibration.h>
#include <peal/launch/command_line.h>
#include <peal/launch/job.h>
#include <peal/launch/machine_file.h>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace peal;
using comm::Collective;

constexpr int f32 = 4;
constexpr const char* checked[] = {"ring", "circulant", "recursive_doubling"};

// An all_reduce by one algorithm, measured again and again.
class Run {
 public:
  Run(const comm::ProcessGroup& group, const char* algorithm, std::int64_t bytes)
      : group_(group),
        algorithm_(algorithm),
        nodes_(comm::single_node(group.world())),
        counts_{bytes / f32},
        plan_(std::make_shared<const comm::Plan>(program(group.rank()))),
        data_(Tensor::zeros({counts_[0]})) {}

  void measure() {
    seconds_.push_back(bench::time_collective(
        group_, [&] { group_.run(Collective::all_reduce, plan_, data_, data_).wait(); }));
  }
  const char* algorithm() const { return algorithm_; }
  std::int64_t bytes() const { return counts_[0] * f32; }
  double measured() const { return bench::median(seconds_); }
  double simulated(const comm::Machine& machine) const {
    // In place, as it is measured: a copy of `in` to the same place of `out` is nothing.
    const auto make = [this](int rank) {
      comm::Program in_place = program(rank);
      for (comm::Round& round : in_place.rounds) {
        std::erase_if(round, [](const comm::Step& step) {
          return step.kind == comm::Kind::copy && step.dst.buffer == comm::Buffer::out &&
                 step.src.buffer == comm::Buffer::in && step.dst.at == step.src.at;
        });
      }
      return in_place;
    };
    return comm::simulate(group_.world(), make, f32, machine).seconds;
  }
  comm::Measured terms() const {  // of the straight-line model
    comm::Measured terms{0, 0, 0, measured()};
    for (int rank = 0; rank < group_.world(); ++rank) {
      const comm::Cost cost = comm::cost(program(rank));
      terms.rounds = std::max(terms.rounds, static_cast<double>(cost.rounds));
      terms.bytes_sent = std::max(terms.bytes_sent, static_cast<double>(cost.sent * f32));
      terms.bytes_reduced = std::max(terms.bytes_reduced, static_cast<double>(cost.reduced * f32));
    }
    return terms;
  }

 private:
  comm::Program program(int rank) const {
    return comm::plan(*comm::find(Collective::all_reduce, algorithm_),
                      {.what = Collective::all_reduce,
                       .rank = rank,
                       .world = group_.world(),
                       .root = 0,
                       .counts = counts_,
                       .nodes = nodes_});
  }

  const comm::ProcessGroup& group_;
  const char* algorithm_;
  comm::Topology nodes_;
  std::vector<std::int64_t> counts_;
  std::shared_ptr<const comm::Plan> plan_;
  Tensor data_;
  std::vector<double> seconds_;
};

double error(double model, double measured) { return std::abs(model - measured) / measured; }

// Median and worst.
std::pair<double, double> summary(std::vector<double> errors) {
  std::ranges::sort(errors);
  return {errors[errors.size() / 2], errors.back()};
}

void print(const std::vector<Run>& runs, const comm::Machine& machine, int world) {
  std::vector<comm::Measured> terms;
  for (const Run& run : runs) terms.push_back(run.terms());
  const comm::Calibration straight = comm::calibrate(terms);
  fmt::print("{:>5} {:>10} {:<20} {:>12} {:>12} {:>7} {:>12} {:>7}\n", "ranks", "bytes",
             "algorithm", "measured us", "simulated us", "error", "straight us", "error");
  std::vector<double> errors;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const double measured = terms[i].seconds, simulated = runs[i].simulated(machine);
    const double model = comm::model_seconds(straight, terms[i]);
    errors.push_back(error(simulated, measured));
    fmt::print("{:>5} {:>10} {:<20} {:>12.2f} {:>12.2f} {:>6.0f}% {:>12.2f} {:>6.0f}%\n", world,
               runs[i].bytes(), runs[i].algorithm(), measured * 1e6, simulated * 1e6,
               errors.back() * 100, model * 1e6, error(model, measured) * 100);
  }
  const auto [median, worst] = summary(errors);
  fmt::print(
      "{} ranks: simulator against measurement, median error {:.0f} %, worst {:.0f} %; "
      "straight line: median {:.0f} %, worst {:.0f} % (latency {:.2f} us, {:.2f} GB/s sent, "
      "{:.2f} GB/s added)\n",
      world, median * 100, worst * 100, straight.median_error * 100, straight.worst_error * 100,
      straight.latency * 1e6, 1e-9 / straight.per_byte, 1e-9 / straight.reduce_per_byte);
}

void print(const comm::Machine& machine) {
  fmt::print("an operation starts in {:.2f} us\n{:>10} {:>12} {:>14} {:>12}\n", machine.start * 1e6,
             "bytes", "one way us", "shared wire us", "reduce us");
  for (const auto& point : machine.inside.rate.points()) {
    fmt::print("{:>10.0f} {:>12.2f} {:>14.2f} {:>12.2f}\n", point.bytes, point.seconds * 1e6,
               machine.bus.seconds(point.bytes) * 1e6, machine.reduce.seconds(point.bytes) * 1e6);
  }
}

}  // namespace

int main(int argc, char** argv) {
  launch::CommandLine line("Measures this machine for the simulator of schedules");
  std::string json;
  bool check = false;
  std::int64_t most = 64;
  int sweeps = 7;
  line.option("--json", &json, "file of the machine, for peal-schedule --machine");
  line.flag("--check", &check, "measure all_reduce as well, and compare");
  line.option("--most", &most, "MiB of the largest message").between(1, 1024);
  line.option("--sweeps", &sweeps, "over all sizes, of which the medians count").positive();
  if (const auto status = line.parse(argc, argv)) return *status;
  return launch::run_main([&](launch::Job& job) {
    const comm::ProcessGroup& group = job.group();
    PEAL_CHECK(group.world() > 1, "calibrate: expected two ranks or more, got ", group.world(),
               "; start it with mpirun -n 2");
    const std::int64_t most_bytes = most << 20;
    // Rather now than after all the sweeps.
    PEAL_CHECK(!job.is_main() || json.empty() || std::ofstream(json, std::ios::app).good(),
               "cannot write ", json);
    bench::MachineMeasurement measurement(group);
    std::vector<Run> runs;
    for (std::int64_t bytes = 1 << 10; check && bytes <= most_bytes; bytes *= 4) {
      for (const char* algorithm : checked) runs.emplace_back(group, algorithm, bytes);
    }
    // Side by side: what drifts meets both alike.
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      for (std::int64_t bytes = 64; bytes <= most_bytes; bytes *= 2) {
        measurement.measure(bytes);
        for (Run& run : runs) {
          if (run.bytes() == bytes) run.measure();
        }
      }
    }
    if (!job.is_main()) return;
    const comm::Machine machine = measurement.machine();
    print(machine);
    if (!json.empty()) launch::save_machine(json, machine);
    if (check) print(runs, machine, group.world());
  });
}
