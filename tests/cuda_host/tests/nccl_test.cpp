// SPDX-License-Identifier: Apache-2.0
// Collectives over NCCL's stand-in: ranks are threads, streams are lazy, and the communicator puts
// things into them late.
#include <peal/autograd/ops/ops.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/start/nccl.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/store/rendezvous.h>
#include <peal/comm/store/tcp_store.h>
#include <peal/launch/bootstrap.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/nn.h>
#include <peal/nn/parallel/ddp.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/difference.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>
#include "collective_cases.h"
#include "collective_values.h"
#include "failing_run.h"
#include "mismatch_cases.h"
#include "nccl_for_tests.h"
#include "on_rank.h"
#include "queued.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::OnDevice;

namespace {

// f on the ranks, each with a device, and NCCL for collectives there.
void over_nccl(int world, const ProcessGroup::Options& options,
               const std::function<void(const ProcessGroup&)>& f) {
  run_ranks(world, options, [&](const ProcessGroup& group) {
    const OnDevice here(group.rank());
    use_nccl(group, here.device);
    f(group);
  });
}

}  // namespace

TEST_CASE("every operation, type and reduction is exact over NCCL") {
  for (const int world : {1, 2, 3}) {
    std::atomic<std::int64_t> compared{0}, cases{0};
    const int before = cuda_host::nccl_collectives();
    over_nccl(world, {}, [&](const ProcessGroup& group) {
      const comm::testing::Tally tally = comm::testing::check_collectives(group);
      compared += tally.compared;
      if (group.rank() == 0) cases = tally.cases;
    });
    MESSAGE("nccl, world " << world << ": " << cases.load() << " cases, " << compared.load()
                           << " elements compared, none wrong, "
                           << cuda_host::nccl_collectives() - before << " collectives of NCCL's");
    CHECK(cases > 2000);
  }
}

TEST_CASE("ranks whose calls differ over NCCL are all told who calls what") {
  for (const comm::testing::Mismatch& mismatch : comm::testing::mismatches()) {
    std::vector<std::string> errors(3);
    CHECK(error_of([&] {
            over_nccl(3, comm::testing::before_the_deadline, [&](const ProcessGroup& group) {
              std::string& error = errors[static_cast<std::size_t>(group.rank())];
              error = error_of([&] { mismatch.run(group, group.rank() == 2, context().device); });
              throw Error(error);
            });
          }) != "nothing");
    MESSAGE("NCCL's stand-in, " << mismatch.what << ": " << errors[0]);
    for (const std::string& error : errors) comm::testing::check_mismatch(mismatch, error);
  }
}

TEST_CASE("NCCL's unique id goes through any rendezvous") {
  std::promise<int> chosen;
  const auto port = chosen.get_future().share();
  run_ranks(3, [&](const ProcessGroup& group) {
    const OnDevice here(group.rank());
    const int rank = group.rank();
    TcpStore store("localhost", rank == 0 ? 0 : port.get(), rank, 3,
                   {.hopeless = [&] { group.check(); }});
    if (rank == 0) chosen.set_value(store.port());
    StoreRendezvous ranks(store, rank, 3);
    use_nccl(group, here.device, ranks);
    comm::testing::check_algorithms(group);
  });
}

TEST_CASE("PEAL_STORE says through what the id goes") {
  const auto attach = [](const std::string& address) {
    setenv("PEAL_STORE", address.c_str(), 1);
    const auto finally = std::shared_ptr<void>(nullptr, [](void*) { unsetenv("PEAL_STORE"); });
    return error_of([] {
      run_ranks(2, [](const ProcessGroup& group) {
        const OnDevice here(group.rank());
        launch::attach_nccl(group, here.device);
        CHECK(group.transport(here.device) == "nccl");
        comm::testing::check_algorithms(group);
      });
    });
  };
  const peal::testing::Folder folder;
  const std::string address = "file:" + folder.path.string();
  CHECK(attach(address) == "nothing");
  CHECK(folder.entries() == 0);
  setenv("PEAL_STORE_SECRET", "x", 1);
  CHECK(contains(attach(address), "PEAL_STORE_SECRET: only a store over TCP has one"));
  unsetenv("PEAL_STORE_SECRET");
  CHECK(attach("") == "nothing");
  CHECK(contains(attach("carrier pigeons"), "expected file:FOLDER"));
}

TEST_CASE("every algorithm serves over grouped sends and receives") {
  for (const Entry& entry : algorithms()) {
    CAPTURE(entry.name);
    for (const int world : {3, 4}) {
      if (!entry.supports(world)) continue;
      ProcessGroup::Options options;
      options.algorithms = concat(name(entry.what), "=", entry.name);
      over_nccl(world, options, [&](const ProcessGroup& group) {
        comm::testing::check_algorithm(group, entry.what);
      });
    }
  }
}

TEST_CASE("collectives over NCCL keep the order of the caller's stream") {
  for (const char* algorithms : {"", "all_reduce=ring,broadcast=binomial"}) {
    over_nccl(3, {.algorithms = algorithms},
              [](const ProcessGroup& group) { peal::testing::check_order(group, 1000); });
  }
}

TEST_CASE("who moves what: NCCL's own, schedules over it, and the CPU's transport") {
  over_nccl(
      2, {.algorithms = "all_reduce=native:0-1000;ring:1001-max"}, [](const ProcessGroup& group) {
        const Device device = context().device;
        CHECK(group.transport() == "threads");
        CHECK(group.transport(device) == "nccl");
        CHECK(group.transport(Device{}) == "threads");
        const auto counted = [&](const std::function<void()>& f) {
          group.barrier().wait();
          const std::pair before(cuda_host::nccl_collectives(), cuda_host::nccl_groups());
          group.barrier().wait();
          f();
          group.barrier().wait();
          return std::pair(cuda_host::nccl_collectives() - before.first,
                           cuda_host::nccl_groups() - before.second);
        };
        const Tensor small = Tensor::zeros({10}), large = Tensor::zeros({1000});
        CHECK(counted([&] { group.all_reduce(small).synchronize(); }) == std::pair(2, 2));
        CHECK(counted([&] { group.all_reduce(large).synchronize(); }) == std::pair(0, 4));
        // NCCL says nothing of NaN, and knows no bits.
        CHECK(counted([&] { group.all_reduce(small, ReduceOp::max).synchronize(); }).first == 0);
        const int other = 1 - group.rank();
        CHECK(counted([&] {
                const Work sending = group.send(small, other);
                group.recv(large.rows(0, 10), other).synchronize();
                sending.synchronize();
              }) == std::pair(0, 0));
      });
}

TEST_CASE("in deterministic mode sums by rank stand in for NCCL's own, and the rest stays NCCL's") {
  over_nccl(3, {.deterministic = true}, [](const ProcessGroup& group) {
    const auto number = [](int rank, std::int64_t i) {
      return static_cast<float>(0.1 + 1.7 * rank + 1e-3 * static_cast<double>(i * (rank + 1)));
    };
    for (const std::int64_t count : {1, 40, 5000}) {
      const Tensor data = comm::testing::filled(
          count, DType::f32, [&](std::int64_t i) { return number(group.rank(), i); });
      const Work work = group.all_reduce(data);
      CHECK(work.algorithm() == "direct");
      work.synchronize();
      std::vector<float> want;
      for (std::int64_t i = 0; i < count; ++i) {
        want.push_back(number(0, i) + number(1, i) + number(2, i));
      }
      CHECK((data.to_vector<float>() == want));
      CHECK(group.reduce(data, 1).algorithm() == "direct");
      CHECK(group.broadcast(data).algorithm() == "native");
    }
  });
}

TEST_CASE("memory for collectives is known to NCCL while it lives") {
  over_nccl(2, {}, [](const ProcessGroup& group) {
    group.barrier().wait();
    {
      const Tensor bucket = group.allocate({100}, DType::f32, context().device);
      CHECK(bucket.device() == context().device);
      group.all_reduce(bucket).synchronize();
      CHECK(bucket.to_vector<float>() == std::vector<float>(100));
      group.barrier().wait();
      CHECK(cuda_host::nccl_registered() == 2);
      group.barrier().wait();
    }
    group.barrier().wait();
    CHECK(cuda_host::nccl_registered() == 0);
  });
}

TEST_CASE(
    "DDP's buckets are known to NCCL, in a sub-group too, and forgotten before they are freed") {
  constexpr int world = 3;
  std::atomic<int> steps{0};
  const int before = cuda_host::nccl_on_registered();
  over_nccl(world, {}, [&](const ProcessGroup& everyone) {
    const auto registered = [&] {
      everyone.progress();  // lets go of what is over: else in the barrier, which others may leave
      everyone.barrier().wait();
      const int found = cuda_host::nccl_registered();
      everyone.barrier().wait();
      return found;
    };
    const auto train = [&](const ProcessGroup& group, int members) {
      nn::Module net = nn::mlp({6, 8, 3});
      net.to(context().device);
      {
        nn::DistributedDataParallel model(
            net, group, {.buckets = nn::BucketCaps{.first_bytes = 64, .bytes = 128}});
        CHECK(registered() > members);  // of each rank more than one bucket
        const Tensor x = Tensor::zeros({5, 6});
        const Tensor y = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 1, 0}, {5});
        cross_entropy(model(x), y).backward();
        current_stream(context().device).synchronize();
        ++steps;
      }
      net.zero_grad();  // the last who may look into the buckets
      CHECK(registered() == 0);
    };
    train(everyone, world);
    // Ranks 0 and 2, and rank 1 for itself.
    train(everyone.split(everyone.rank() % 2), world);
    // Memory may outlive its group, whose end is that of what NCCL knows.
    Tensor longer;
    {
      const auto part = everyone.split(0);
      longer = part.allocate({100}, DType::f32, context().device);
      CHECK(registered() == world);
    }
    CHECK(registered() == 0);
    CHECK(comm::testing::element(longer, 99) == 0);
  });
  cudaDeviceSynchronize();
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(steps == 2 * world);
  // Each bucket of each step, of the groups of several ranks at least.
  CHECK(cuda_host::nccl_on_registered() - before >= 5 * 2);
}

TEST_CASE("what goes wrong over NCCL reaches every rank in words, and nobody hangs") {
  const auto failure = [](const ProcessGroup::Options& options,
                          const std::function<void(const ProcessGroup&)>& f) {
    return error_of([&] { over_nccl(2, options, f); });
  };
  const std::string sizes = failure({}, [](const ProcessGroup& group) {
    group.all_reduce(Tensor::zeros({group.rank() == 0 ? 40 : 41})).synchronize();
    group.barrier().wait();
  });
  CAPTURE(sizes);
  CHECK(contains(sizes, "all_reduce #"));
  CHECK(contains(sizes, "same order"));
  CHECK(contains(cuda_host::nccl_hang(), "ncclAllReduce of 4"));

  // A rank throws while another has only its stream to wait for, where no call of comm/ looks.
  std::atomic<int> told{0};
  std::atomic<bool> queued{false};
  const std::string thrown = failure({}, [&](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({10});
    group.all_reduce(data).synchronize();
    if (group.rank() == 1) {
      while (!queued && !group.poisoned()) std::this_thread::yield();
      throw std::runtime_error("disk of rank 1 is on fire");
    }
    const Work work = group.all_reduce(data);
    work.wait();
    queued = true;
    current_stream(context().device).synchronize();
    try {
      work.wait();
    } catch (const Error& error) {
      if (contains(error.what(), "on fire")) ++told;
    }
    group.barrier().wait();
  });
  CAPTURE(thrown);
  CHECK(contains(thrown, "on fire"));
  CHECK(told == 1);

  const auto alone = peal::testing::alone_on_rank_0(
      [](const ProcessGroup& group) { group.all_reduce(Tensor::zeros({8})).synchronize(); });
  const std::string late = failure({.deadline = std::chrono::milliseconds(8000)}, alone);
  CAPTURE(late);
  CHECK(contains(late, "PEAL_TIMEOUT"));
  CHECK(contains(late, "rank 0: all_reduce #"));

  cuda_host::nccl_refuse_shared_devices(true);
  const std::string shared = error_of([] {
    run_ranks(3, [](const ProcessGroup& group) {  // of whom two have one device
      const OnDevice here(group.rank());
      use_nccl(group, here.device);
    });
  });
  cuda_host::nccl_refuse_shared_devices(false);
  CAPTURE(shared);
  CHECK(contains(shared, "Duplicate GPU"));
  CHECK(contains(shared, "NCCL_HOSTID"));
}

TEST_CASE("a group that goes while its work is in the queue lets it end") {
  for (int round = 0; round < 3; ++round) {
    const int world = 3;
    std::vector<double> got(world);
    run_ranks(world, [&](const ProcessGroup& everyone) {
      const OnDevice here(everyone.rank());
      use_nccl(everyone, here.device);
      const Tensor data = comm::testing::filled(50, DType::f32, [](std::int64_t) { return 2; });
      {
        const auto group = everyone.split(0);
        group.all_reduce(data).wait();
      }
      got[static_cast<std::size_t>(everyone.rank())] = comm::testing::element(data, 49);
    });
    CHECK(got == std::vector<double>(world, 6));
  }
}

TEST_CASE("DDP over NCCL trains as over the CPU's transport, and replicas stay equal") {
  constexpr int world = 3;
  const auto train = [](bool nccl) {
    std::vector<std::vector<float>> results(world);
    run_ranks(world, [&](const ProcessGroup& group) {
      const OnDevice here(group.rank());
      if (nccl) use_nccl(group, here.device);
      manual_seed(3);
      nn::Module net = nn::mlp({6, 8, 3});
      net.to(here.device);
      nn::DistributedDataParallel model(
          net, group, {.buckets = nn::BucketCaps{.first_bytes = 64, .bytes = 128}});
      nn::AdamW optimizer(net.parameters(), {.lr = 1e-2});
      for (int step = 0; step < 4; ++step) {
        manual_seed(static_cast<std::uint64_t>(10 * step + group.rank()));
        const Tensor x = randn({5, 6}, DType::f32, Device{}).to(here.device);
        const Tensor y = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 1, 0}, {5}, here.device);
        optimizer.zero_grad();
        cross_entropy(model(x), y).backward();
        optimizer.step();
      }
      auto& result = results[static_cast<std::size_t>(group.rank())];
      for (const Tensor& parameter : net.parameters()) {
        const auto values = parameter.to_vector<float>();
        result.insert(result.end(), values.begin(), values.end());
      }
    });
    for (const auto& result : results) CHECK(result == results[0]);
    return results[0];
  };
  const auto staged = train(false), over = train(true);
  REQUIRE(staged.size() == over.size());
  double difference = 0;
  for (std::size_t i = 0; i < staged.size(); ++i)
    difference = peal::testing::larger(difference, std::abs(staged[i] - over[i]));
  CHECK(difference < 1e-5);
}
