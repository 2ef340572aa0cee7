// SPDX-License-Identifier: Apache-2.0
// Collectives on device tensors over a transport of the CPU. Streams are lazy here, so an order
// that comm/ forgets is a wrong value.
#include "on_rank.h"

#include <peal/comm/algorithms/table.h>
#include <peal/comm/start/threads.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <string>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "collective_values.h"
#include "queue.h"
#include "queued.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::OnDevice;

TEST_CASE("every operation, type and reduction is exact on devices, staged over threads") {
  for (const int world : {1, 2, 3}) {
    std::atomic<std::int64_t> compared{0}, cases{0};
    run_ranks(world, [&](const ProcessGroup& group) {
      const OnDevice here(group.rank());
      const comm::testing::Tally tally = comm::testing::check_collectives(group);
      compared += tally.compared;
      if (group.rank() == 0) cases = tally.cases;
    });
    MESSAGE("staged, world " << world << ": " << cases.load() << " cases, " << compared.load()
                             << " elements compared, none wrong");
    CHECK(cases > 2000);
  }
}

TEST_CASE("a device divides as the CPU does, bit for bit") {
  run_ranks(1, [](const ProcessGroup& group) {
    const OnDevice here(group.rank());
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const std::int64_t ranks : {2, 3, 5, 7}) {
        const Tensor x = comm::testing::filled(1000, dtype, [](std::int64_t i) { return i + 1; });
        cuda_wire_kernels().divide(dtype, x.raw(), ranks, x.numel());
        const Tensor got = x.to(Device{});
        for (std::int64_t i = 0; i < x.numel(); ++i) {
          const auto sum = static_cast<double>(i + 1), divisor = static_cast<double>(ranks);
          const double want =
              dtype == DType::f64
                  ? sum / divisor
                  : static_cast<double>(static_cast<float>(sum) / static_cast<float>(ranks));
          PEAL_CHECK(comm::testing::element(got, i) == want, dtype, " ", i + 1, " / ", ranks);
        }
      }
    }
  });
}

TEST_CASE("the host touches no device memory") {
  run_ranks(2, [](const ProcessGroup& group) {
    const OnDevice here(group.rank());
    comm::testing::check_algorithms(group);
  });
}

TEST_CASE("segments change nothing, however small") {
  for (const std::size_t segment : {500, 4000}) {
    run_ranks(3, {.segment = segment}, [](const ProcessGroup& group) {
      const OnDevice here(group.rank());
      comm::testing::check_algorithms(group);
      for (const DType dtype : {DType::bf16, DType::f32}) {
        for (const std::int64_t count : {1, 97, 5000}) {
          for (const ReduceOp op : {ReduceOp::avg, ReduceOp::max}) {
            const Tensor data = comm::testing::filled(count, dtype, [&](std::int64_t i) {
              return 3 * comm::testing::value(group.rank(), i, dtype);
            });
            group.all_reduce(data, op).wait();
            for (std::int64_t i = 0; i < count; ++i) {
              const double want = 3 * comm::testing::expected(3, i, dtype, op);
              PEAL_CHECK(std::abs(comm::testing::element(data, i) - want) < 1e-5, "element ", i);
            }
          }
        }
      }
    });
  }
  for (const Entry& entry : algorithms()) {
    CAPTURE(entry.name);
    if (!entry.supports(3)) continue;
    run_ranks(3, {.algorithms = concat(name(entry.what), "=", entry.name), .segment = 1000},
              [&](const ProcessGroup& group) {
                const OnDevice here(group.rank());
                comm::testing::check_algorithm(group, entry.what);
              });
  }
}

TEST_CASE("staged collectives keep the order of the caller's stream") {
  for (const std::size_t segment : {std::size_t{1000}, ProcessGroup::Options{}.segment}) {
    run_ranks(3, {.segment = segment}, [](const ProcessGroup& group) {
      const OnDevice here(group.rank());
      peal::testing::check_order(group, 1000);
      peal::testing::check_order(group, 1);
    });
  }
}

TEST_CASE("one rank's tensor may be on the CPU, and another's on a device") {
  run_ranks(3, [](const ProcessGroup& group) {
    const OnDevice here(group.rank());
    if (group.rank() == 1) context().device = {};
    comm::testing::check_algorithms(group);
    const auto mine = [&](std::int64_t i) {
      return comm::testing::value(group.rank(), i, DType::f32);
    };
    const Tensor in = comm::testing::filled(10, DType::f32, mine);
    const Tensor out = Tensor::empty({10}, DType::f32, Device{});
    group.all_reduce(out, in, ReduceOp::sum).wait();
    for (std::int64_t i = 0; i < 10; ++i) {
      CHECK(out.data<float>()[i] == comm::testing::expected(3, i, DType::f32, ReduceOp::sum));
    }
  });
}

TEST_CASE("what goes wrong with device tensors says who and what") {
  const auto failure = [](const std::function<void(const ProcessGroup&)>& f) -> std::string {
    try {
      run_ranks(2, [&](const ProcessGroup& group) {
        const OnDevice here(group.rank());
        f(group);
      });
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  const std::string other_size = failure([](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({group.rank() == 0 ? 256 : 255});
    (group.rank() == 0 ? group.send(data, 1) : group.recv(data, 0)).synchronize();
    group.barrier().wait();
  });
  CHECK(other_size.find("expected 1020 bytes from rank 0, got 1024") != std::string::npos);
  const std::string other_call = failure([](const ProcessGroup& group) {
    group.all_reduce(Tensor::zeros({group.rank() == 0 ? 40 : 41})).wait();
    group.barrier().wait();
  });
  CHECK(other_call.find("same order") != std::string::npos);
  // A fault of the device itself: of the simulated one for good, so last.
  const std::string fault = failure([](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({8});
    group.barrier().wait();
    if (group.rank() == 0) {
      cuda_host::set_failure(cudaErrorIllegalAddress, "a kernel went astray");
      group.all_reduce(data, ReduceOp::sum, "bucket 3: fc1.weight").wait();
    } else {
      group.barrier().wait();
    }
  });
  cuda_host::forget_failure();
  CAPTURE(fault);
  CHECK(fault.find("rank 0") != std::string::npos);
  CHECK(fault.find("a kernel went astray") != std::string::npos);
}
