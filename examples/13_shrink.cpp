// SPDX-License-Identifier: Apache-2.0
// A training that goes on when a rank dies, from what the others have in memory. Here the last rank
// kills itself in the middle; any other could be killed from outside (kill -9) as well.
//
// Run it:   build/release/launch/run/peal-run -n 3 --keep-survivors
// build/release/examples/13_shrink
//
// The book (docs/book): chapter 13, when things fail.
#include <peal/autograd/core/error.h>
#include <peal/launch/job.h>
#include <peal/nn/nn.h>

#include <csignal>
#include <cstdio>
#include <optional>
#include <string>

using namespace peal;

namespace {

// Rank 0's state for all. They have the same tensors there: each has had a step, or none has.
void take_from_rank_0(const comm::ProcessGroup& group, nn::Optimizer& optimizer) {
  NamedTensors state;
  for (const auto& [name, tensor] : optimizer.state_dict()) {
    state.emplace_back(name, tensor.clone());
    group.broadcast(state.back().second).wait();
  }
  optimizer.load_state_dict(state);
}

}  // namespace

int main() {
  return launch::run_main([](launch::Job& job) {
    const int victim = job.world() > 1 ? job.world() - 1 : -1, before = job.world();
    nn::Linear model(4, 1);
    nn::SGD optimizer(model.parameters(), {.lr = 0.01, .momentum = 0.9});
    std::optional<nn::DistributedDataParallel> ddp;
    int step = 0;
    for (bool agreed = false; step < 20;) {
      try {
        if (!agreed) {
          // A rank may have finished a step that the others have not: rank 0's state is that of
          // all, the step's number and the optimizer's too; DDP sends its parameters.
          step = std::stoi(job.group().broadcast_object(std::to_string(step)));
          ddp.emplace(model, job.group());
          take_from_rank_0(job.group(), optimizer);
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
        const int world = job.world();
        ddp.reset();   // it has the old group
        job.shrink();  // throws where the ranks that are left do not come: then the job ends
        if (job.world() == world) throw;  // nobody has died: it would come again
        agreed = false;
      }
    }
    std::printf("rank %d of %d, once %d, is done with step %d\n", job.rank(), job.world(), before,
                step);
  });
}
