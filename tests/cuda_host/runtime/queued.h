// SPDX-License-Identifier: Apache-2.0
// What the tests of collectives put into a stream before and after them. Thread safety: the calling
// thread's stream.
#pragma once

#include <peal/comm/group/in_stream.h>
#include <peal/comm/group/process_group.h>
#include <peal/comm/reduce/cuda/reduce.h>

#include "collective_values.h"

namespace peal::testing {

// x *= factor, by a kernel that runs when it must.
inline void scale(const Tensor& x, double factor) {
  comm::cuda_wire_kernels().scale(x.dtype(), x.raw(), factor, x.numel());
  x.storage()->bump_version();
}

// An all-reduce of what a queued kernel still has to write, whose result and input are used at
// once.
inline void check_order(const comm::ProcessGroup& group, std::int64_t count) {
  const double ranks = group.world() * (group.world() + 1) / 2.0;
  const auto same = [&](const Tensor& got, double want) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = comm::testing::element(got, i);
      PEAL_CHECK(value == want, "rank ", group.rank(), ", element ", i, " of ", count,
                 ": expected ", want, ", got ", value);
    }
  };
  for (int round = 0; round < 3; ++round) {
    const Tensor x =
        comm::testing::filled(count, DType::f32, [&](std::int64_t) { return group.rank() + 1; });
    const Tensor y = x.clone(), sum = Tensor::empty({count});
    scale(x, 10);
    const comm::Work first = group.all_reduce(sum, x, comm::ReduceOp::sum);
    scale(y, 100);
    const comm::Work second = group.all_reduce(y);
    first.wait();
    scale(x, 0);
    scale(sum, 2);
    second.wait();
    scale(y, 3);
    group.all_reduce(x, comm::ReduceOp::max).wait();
    same(sum, 20 * ranks);
    same(y, 300 * ranks);
    same(x, 0);
    // The group and the tensor live on without the caller's handle.
    comm::Work last;
    {
      const Tensor gone = comm::testing::filled(count, DType::f32, [](std::int64_t) { return 1; });
      scale(gone, 5);
      last = group.broadcast(gone, group.world() - 1);
    }
    last.wait();
  }
}

// The same of collectives that go into the caller's stream, for which nobody waits, among others
// that are under way.
inline void check_in_stream(const comm::ProcessGroup& group, std::int64_t count, int rounds) {
  const double ranks = group.world() * (group.world() + 1) / 2.0;
  const auto mine = [&](std::int64_t) { return group.rank() + 1; };
  const auto check = [&](const Tensor& got, double want) {
    for (const std::int64_t i : {std::int64_t{0}, count - 1}) {
      const double value = comm::testing::element(got, i);
      PEAL_CHECK(value == want, "rank ", group.rank(), ", element ", i, " of ", count,
                 ": expected ", want, ", got ", value);
    }
  };
  for (int round = 0; round < rounds; ++round) {
    const Tensor x = comm::testing::filled(count, DType::f32, mine), y = x.clone(), z = x.clone();
    scale(y, 10);
    const comm::Work beside = group.all_reduce(y);
    scale(x, 100);
    const Tensor all = Tensor::empty({group.world() * count});
    {
      const comm::InStream here;
      static_cast<void>(group.all_reduce(x));
      scale(x, 2);
      static_cast<void>(group.all_gather(all, x));
    }
    scale(all, 0.5);
    scale(z, 1000);
    const comm::Work last = group.all_reduce(z);
    {
      const comm::InStream here;
      static_cast<void>(group.all_reduce(x, comm::ReduceOp::max));
    }
    scale(x, 3);
    last.wait();
    scale(z, 2);
    beside.wait();
    scale(y, 7);
    check(x, 600 * ranks);
    check(all, 100 * ranks);
    check(z, 2000 * ranks);
    check(y, 70 * ranks);
  }
}

}  // namespace peal::testing
