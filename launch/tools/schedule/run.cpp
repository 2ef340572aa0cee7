// SPDX-License-Identifier: Apache-2.0
// peal-schedule ... --run: the schedule itself between threads, over a wire as slow as the machine
// of the model, under PEAL_TRACE.
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/tensor.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/threads/wire.h>
#include <peal/launch/tools/schedule/commands.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace peal::launch {
namespace {

constexpr int runs = 3;  // the first one is cold

// The wire has the machine's links, and a port as fast as the faster of them; arithmetic is that of
// this machine.
comm::Wire wire_of(const comm::Machine& machine) {
  comm::Wire wire{
      .latency = machine.between.latency,
      .bandwidth = 1 / machine.between.rate.per_byte(),
      .port = 1 / std::min(machine.between.rate.per_byte(), machine.inside.rate.per_byte())};
  const auto& node = machine.nodes.node;
  for (int from = 0; from < static_cast<int>(node.size()); ++from) {
    for (int to = 0; to < static_cast<int>(node.size()); ++to) {
      if (from == to || node[std::size_t(from)] != node[std::size_t(to)]) continue;
      wire.links.push_back({from, to, machine.inside.latency, 1 / machine.inside.rate.per_byte()});
    }
  }
  return wire;
}

}  // namespace

void run_between_threads(const comm::Entry& entry, const World& world,
                         const std::vector<comm::Program>& programs, const comm::Machine& machine,
                         const std::string& folder) {
  constexpr int most_ranks = 64;
  PEAL_CHECK(world.ranks <= most_ranks, "--run: expected at most ", most_ranks,
             " ranks, which are threads, got ", world.ranks);
  comm::ProcessGroup::Options options;
  options.trace = folder;
  const auto run = [&](const comm::ProcessGroup& group) {
    const comm::Problem problem = world.problem(group.rank());
    const auto plan = std::make_shared<const comm::Plan>(
        programs[static_cast<std::size_t>(group.rank())], std::string(entry.name));
    const Tensor in = Tensor::zeros({in_count(problem)}), out = Tensor::zeros({out_count(problem)});
    for (int i = 0; i < runs; ++i) {
      group.barrier().wait();
      for (const comm::Straggler& s : machine.stragglers) {
        if (s.rank == group.rank()) {
          std::this_thread::sleep_for(std::chrono::duration<double>(s.late));
        }
      }
      group.run(world.what, plan, out, in).wait();
    }
  };
  if (entry.one_sided) {  // no messages: memory is as quick as it is
    comm::run_ranks(world.ranks, options, world.nodes, run);
  } else {
    comm::run_ranks(world.ranks, options, wire_of(machine), run);
  }
  fmt::print("ran {} times between threads; {} has a file for each rank\n", runs, folder);
}

}  // namespace peal::launch
