// SPDX-License-Identifier: Apache-2.0
// A training that goes on when a rank dies, from what the others have in memory. Here the last rank
// kills itself in the middle; any other could be killed from outside (kill -9) as well.
//
// Run it:   build/release/launch/run/peal-run -n 3 --keep-survivors
// build/release/examples/13_shrink
#include <peal/autograd/core/error.h>
#include <peal/launch/job.h>
#include <peal/nn/nn.h>

#include <csignal>
#include <cstdio>
#include <optional>
#include <string>

using namespace peal;

int main() {
  return launch::run_main([](launch::Job& job) {
    const int victim = job.world() > 1 ? job.world() - 1 : -1, before = job.world();
    nn::Linear model(4, 1);
    nn::SGD optimizer(model.parameters(), {.lr = 0.05});
    std::optional<nn::DistributedDataParallel> ddp;
    int step = 0;
    for (bool agreed = false; step < 20;) {
      try {
        if (!agreed) {
          // A rank may have finished a step that the others have not: rank 0's state is that of
          // all, the step's number too; DDP sends its parameters.
          step = std::stoi(job.group().broadcast_object(std::to_string(step)));
          ddp.emplace(model, job.group());
          agreed = true;
        }
        if (step == 10 && job.rank() == victim && job.world() == before) std::raise(SIGKILL);
        optimizer.zero_grad();
        const Tensor loss = mean(square((*ddp)(full({8, 4}, 1. + job.rank()))));
        loss.backward();
        optimizer.step();
        ++step;
      } catch (const Error& error) {
        std::fprintf(stderr, "step %d: %s\n", step, error.what());
        ddp.reset();   // it has the old group
        job.shrink();  // throws where the ranks that are left do not come: then the job ends
        agreed = false;
      }
    }
    std::printf("rank %d of %d, once %d, is done with step %d\n", job.rank(), job.world(), before,
                step);
  });
}
