// SPDX-License-Identifier: Apache-2.0
// A training whose batch of 8 rows lies on four ranks, with batch norm of each rank's two rows and
// of all; and what ResNet-18 calls in a step. docs/book/08-batch-norm.md
#include <fmt/core.h>
#include <peal/comm/start/threads.h>
#include <peal/examples/book/book.h>
#include <peal/nn/nn.h>

#include <string>
#include <vector>

namespace book {
namespace {

using namespace peal;

nn::Sequential normed_model() {
  manual_seed(4);
  nn::Sequential net(nn::Linear(4, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Linear(8, 1));
  net.to(DType::f64);
  return net;
}

// The mean loss of rows first to last, of the same eight in each step.
double train_normed(nn::Module& called, nn::Optimizer& optimizer, int first, int last) {
  manual_seed(5);
  const Tensor x = cast(randn({8, 4}), DType::f64), target = sum(x, 1, true);
  double loss_of_step = 0;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const Tensor loss = mean(square(called(x.rows(first, last)) - target.rows(first, last)));
    loss.backward();
    optimizer.step();
    loss_of_step = loss.item<double>();
  }
  return loss_of_step;
}

void print_normed(const char* how, bool synchronised) {
  comm::run_ranks(4, [&](const comm::ProcessGroup& group) {
    nn::Sequential net = normed_model();
    if (synchronised) nn::convert_sync_batchnorm(net, group);
    nn::DistributedDataParallel ddp(net, group);
    nn::SGD optimizer(ddp.named_parameters(), {.lr = 0.05});
    const int first = 2 * group.rank();
    const Tensor loss = tensor(train_normed(ddp, optimizer, first, first + 2));
    group.all_reduce(loss, comm::ReduceOp::avg).wait();
    if (group.rank() == 0) fmt::print("{:<28} loss {:.3f}\n", how, loss.item<double>());
  });
}

}  // namespace

void batch_norm_of_ranks() {
  nn::Sequential one = normed_model();
  nn::SGD optimizer(one.named_parameters(), {.lr = 0.05});
  fmt::print("{:<28} loss {:.3f}\n", "one rank, 8 rows", train_normed(one, optimizer, 0, 8));
  print_normed("four ranks, norms of 2 rows", false);
  print_normed("four ranks, synchronised", true);

  fmt::print("\na step of ResNet-18 on two ranks, synchronised, calls\n");
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    nn::ResNet18 net;
    nn::convert_sync_batchnorm(net, group);
    nn::DistributedDataParallel ddp(net, group, {.broadcast_buffers = false});
    const auto before = group.counters();
    sum(ddp(randn({2, 3, 32, 32}))).backward();
    const auto called = group.counters() - before;
    if (group.rank() > 0) return;
    for (const comm::Collective what :
         {comm::Collective::all_gather, comm::Collective::all_reduce}) {
      fmt::print("{:<10} {:>2} times, of {:>8} bytes together\n", name(what), called[what].calls,
                 called[what].bytes);
    }
  });
}

}  // namespace book
