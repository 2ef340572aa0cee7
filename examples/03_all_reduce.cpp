// SPDX-License-Identifier: Apache-2.0
// The first program over several ranks: each brings its rank number, all leave with the sum.
//
// Run it:   launch/tools/peal-mpirun -n 3 build/release/examples/03_all_reduce
//
// The book (docs/book): chapter 1, what a collective is.
#include <peal/autograd/ops/ops.h>
#include <peal/launch/job.h>

#include <cstdio>

int main() {
  return peal::launch::run_main([](peal::launch::Job& job) {
    const peal::Tensor x = peal::full({4}, 1. * job.rank());
    const peal::comm::Work work = job.group().all_reduce(x);  // starts at once
    work.wait();                                              // now x holds the sums
    std::printf("rank %d of %d has %g\n", job.rank(), job.world(), x.rows(0, 1).item<double>());
  });
}
