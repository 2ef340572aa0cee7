// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cores.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/record/recorder.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/threads/threads.h>

#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>

namespace peal::comm {

namespace {

void run(int world, ProcessGroup::Options options, const std::shared_ptr<Network>& network,
         const Topology& nodes, const std::function<void(const ProcessGroup&)>& f) {
  if (Recorder::writes_to(options.trace)) options.trace.clear();  // a world within a traced one
  if (network) options.shared_memory = false;  // everything goes over the network
  PEAL_CHECK(world > 0, "run_ranks: a world of ", world);
  const auto switchboard = std::make_shared<Switchboard>(world);
  const auto board = Board::in_memory(world);
  std::vector<int> everyone(static_cast<std::size_t>(world));
  std::iota(everyone.begin(), everyone.end(), 0);
  const bool no_core_each =
      crowded(std::vector(static_cast<std::size_t>(world), allowed_cpus()), cpu_quota());
  std::mutex mutex;
  std::exception_ptr first;

  // REQUIRES: within a catch.
  const auto failed = [&](const std::string& why) {
    {
      std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    board->poison(why);
  };
  const auto run_one = [&](int rank) {
    context().log_tag = concat("rank ", rank);
    try {
      auto transport = std::make_unique<ThreadsTransport>(switchboard, rank);
      ThreadsTransport& wired = *transport;
      const ProcessGroup group =
          make_group(std::move(transport),
                     std::make_unique<Control>(board, rank, everyone, std::vector<Peer>{}),
                     std::make_shared<Engine>(no_core_each), options, nodes);
      if (network) wired.connect(network);
      f(group);
      group.barrier("the end of its program")
          .wait();  // nobody is done while another may still fail
      group.write_trace();
    } catch (const std::exception& error) {
      failed(error.what());
    } catch (...) {
      failed(concat("rank ", rank, " threw something that is no std::exception"));
    }
  };

  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back(with_context([&run_one, rank] { run_one(rank); }));
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace

void run_ranks(int world, const std::function<void(const ProcessGroup&)>& f) {
  run_ranks(world, ProcessGroup::Options::from_environment(), f);
}

void run_ranks(int world, const ProcessGroup::Options& options,
               const std::function<void(const ProcessGroup&)>& f) {
  run(world, options, nullptr, {}, f);
}

void run_ranks(int world, const ProcessGroup::Options& options, const Topology& nodes,
               const std::function<void(const ProcessGroup&)>& f) {
  run(world, options, nullptr, nodes, f);
}

void run_ranks(int world, const ProcessGroup::Options& options, const Wire& wire,
               const std::function<void(const ProcessGroup&)>& f) {
  run_ranks(world, options, Topology{}, wire, f);
}

void run_ranks(int world, const ProcessGroup::Options& options, const Topology& nodes,
               const Wire& wire, const std::function<void(const ProcessGroup&)>& f) {
  PEAL_CHECK(world > 0, "run_ranks: a world of ", world);
  run(world, options, std::make_shared<Network>(wire, world), nodes, f);
}

}  // namespace peal::comm
