// SPDX-License-Identifier: Apache-2.0
// Trainings in which the last rank does something else in its fifth step, for a script that looks
// at what is said then.
//
//   ddp_endings throw   it throws
//   ddp_endings tell    it finds something wrong with the model that all are to know
//   ddp_endings all     all ranks throw the same
//   ddp_endings leave   it is done after that step
//   ddp_endings skip    it leaves out the backward
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/job.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/fail_everywhere.h>

#include <cstdio>
#include <string_view>

int main(int argc, char** argv) {
  using namespace peal;
  const std::string_view how = argc > 1 ? argv[1] : "";
  if (how != "throw" && how != "tell" && how != "all" && how != "leave" && how != "skip") {
    std::fputs("ddp_endings throw|tell|all|leave|skip\n", stderr);
    return 2;
  }
  return launch::run_main([&](launch::Job& job) {
    nn::Linear net(3, 2);
    nn::DistributedDataParallel ddp(net, job.group());
    const bool last = job.rank() == job.world() - 1;
    for (int step = 1; step <= 8; ++step) {
      const Tensor loss = sum(ddp(full({2, 3}, 1. * step)));
      if (step == 5 && how == "throw" && last) fail("the fifth batch is torn");
      if (step == 5 && how == "tell" && last) {
        nn::fail_everywhere(job.group(), "the fifth batch is torn");
      }
      if (step == 5 && how == "all") fail("[reader] the fifth batch is torn");
      if (step == 5 && how == "skip" && last) continue;
      loss.backward();
      if (step == 5 && how == "leave" && last) return;
    }
  });
}
