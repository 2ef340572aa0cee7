// SPDX-License-Identifier: Apache-2.0
// Distributed data parallel training is one idea: average the gradients before the step. Here it is
// by hand, beside peal's DistributedDataParallel, which does the same while backward still runs.
// Both end with equal parameters.
//
// Run it:   launch/tools/peal-mpirun -n 2 build/release/examples/04_ddp_by_hand
//
// The book (docs/book): chapter 7, data-parallel training.
#include <peal/autograd/ops/ops.h>
#include <peal/launch/job.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace peal;

int main() {
  return launch::run_main([](launch::Job& job) {
    manual_seed(1);  // equal models on every rank, and twice the same one
    nn::Sequential by_hand = nn::mlp({16, 32, 4});
    manual_seed(1);
    nn::Sequential wrapped = nn::mlp({16, 32, 4});
    nn::DistributedDataParallel ddp(wrapped, job.group());

    nn::SGD hand_optimizer(by_hand.parameters(), {.lr = 0.1});
    nn::SGD ddp_optimizer(ddp.parameters(), {.lr = 0.1});

    manual_seed(100 + static_cast<std::uint64_t>(
                          job.rank()));  // from here on, every rank sees its own samples
    for (int step = 0; step < 20; ++step) {
      const Tensor x = randn({8, 16});
      const Tensor y = argmax(x, 1);  // [8] in 0..15, so:
      const Tensor target = Tensor::zeros({8}, DType::i64);
      for (int i = 0; i < 8; ++i) target.data<std::int64_t>()[i] = y.data<std::int64_t>()[i] % 4;

      hand_optimizer.zero_grad();
      cross_entropy(by_hand(x), target).backward();
      for (const Tensor& parameter : by_hand.parameters()) {  // the one idea
        job.group().all_reduce(parameter.grad(), comm::ReduceOp::avg).wait();
      }
      hand_optimizer.step();

      ddp_optimizer.zero_grad();
      cross_entropy(ddp(x), target).backward();
      ddp_optimizer.step();
    }

    double worst = 0;
    const auto a = by_hand.parameters(), b = ddp.parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::int64_t j = 0; j < a[i].numel(); ++j) {
        worst = std::max<double>(worst, std::abs(a[i].data<float>()[j] - b[i].data<float>()[j]));
      }
    }
    if (job.is_main()) std::printf("after 20 steps the two ways differ by at most %g\n", worst);
    PEAL_CHECK(worst < 1e-5, "by hand and wrapped, parameters differ by ", worst);
  });
}
