// SPDX-License-Identifier: Apache-2.0
#include <peal/bench/machine_measurement.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace peal::bench {
namespace {

using comm::Block;
using comm::Plan;
using comm::Program;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t f32 = 4;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The same on every rank: the slowest one's.
double slowest(const comm::ProcessGroup& group, double seconds) {
  const Tensor value = Tensor::from(std::vector<double>{seconds}, {1});
  group.all_reduce(value, comm::ReduceOp::max).wait();
  return *value.data<double>();
}

// As many blocks as ranks, used in turn like a ring's: caches see what they see in a collective.
Block block(int i, int world, std::int64_t count) { return {comm::wrap(i, world) * count, count}; }

// Every rank sends a block to the next and receives one, in every round.
Program shifts(int rank, int world, std::int64_t count, int rounds, bool reduces) {
  Program program;
  for (int i = 0; i < rounds; ++i) {
    const auto arrives = comm::out(block(rank - i - 1, world, count));
    const int before = comm::wrap(rank - 1, world);
    program.rounds.push_back(
        {comm::send(comm::wrap(rank + 1, world), comm::out(block(rank - i, world, count))),
         reduces ? comm::recv_reduce(before, arrives) : comm::recv(before, arrives)});
  }
  return program;
}

// Rank 0 sends a block to rank 1, then rank 1 to rank 0, and so on; the others do nothing.
Program ping_pong(int rank, int world, std::int64_t count, int rounds) {
  Program program;
  for (int i = 0; i < rounds && rank < 2; ++i) {
    const auto part = comm::out(block(i, world, count));
    program.rounds.push_back(
        {i % 2 == rank ? comm::send(1 - rank, part) : comm::recv(1 - rank, part)});
  }
  return program;
}

// Every rank copies a block to the next place.
Program copies(int world, std::int64_t count, int rounds) {
  Program program;
  for (int i = 0; i < rounds; ++i) {
    program.rounds.push_back(
        {comm::copy(comm::out(block(i + 1, world, count)), comm::out(block(i, world, count)))});
  }
  return program;
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double time_collective(const comm::ProcessGroup& group, const std::function<void()>& f) {
  constexpr double wanted = 3e-3;
  const auto timed = [&](int runs) {
    group.barrier().wait();
    const auto start = Clock::now();
    for (int i = 0; i < runs; ++i) f();
    return slowest(group, seconds_since(start)) / runs;
  };
  timed(1);
  return timed(static_cast<int>(std::clamp(wanted / timed(1), 1.0, 2000.0)));
}

// Seconds of a round.
double MachineMeasurement::run(Program program, int rounds, const Tensor& data) const {
  const auto plan = std::make_shared<const Plan>(std::move(program));
  return time_collective(
             group_, [&] { group_.run(comm::Collective::all_reduce, plan, data, data).wait(); }) /
         rounds;
}

void MachineMeasurement::measure(std::int64_t bytes) {
  const int rank = group_.rank(), world = group_.world();
  const std::int64_t count = bytes / f32;
  // Many rounds, so that what an operation costs by itself does not show.
  const int rounds = bytes <= 1 << 16 ? 100 : bytes <= 1 << 20 ? 20 : 4;
  Samples& samples = samples_[bytes];
  if (!samples.data.defined()) samples.data = Tensor::zeros({count * world});
  const Tensor& data = samples.data;
  const double one_way = run(ping_pong(rank, world, count, rounds), rounds, data);
  const double all = run(shifts(rank, world, count, rounds, false), rounds, data);
  const double all_added = run(shifts(rank, world, count, rounds, true), rounds, data);
  samples.one_way.push_back(one_way);
  // `world` messages one after the other on the wire: the last one begins after the others, and
  // takes what the wire or its ports take, whichever is more.
  const double behind = (all - one_way) / (world - 1);
  samples.shared.push_back(behind > one_way ? all / world : behind);
  samples.reduce.push_back(all_added - all);
  samples.copy.push_back(run(copies(world, count, rounds), rounds, data));
  start_.push_back(run(Program{}, 1, data));
}

comm::Machine MachineMeasurement::machine() const {
  const auto rate = [this](std::vector<double> Samples::*seconds) {
    std::vector<comm::Rate::Point> points;
    for (const auto& [bytes, samples] : samples_) {
      points.push_back({static_cast<double>(bytes), std::max(0.0, median(samples.*seconds))});
    }
    return comm::Rate(std::move(points));
  };
  const comm::Link link{0, rate(&Samples::one_way)};
  return {.nodes = comm::single_node(group_.world()),
          .inside = link,
          .between = link,
          .bus = rate(&Samples::shared),
          .reduce = rate(&Samples::reduce),
          .copy = rate(&Samples::copy),
          .start = median(start_),
          .stragglers = {}};
}

}  // namespace peal::bench
