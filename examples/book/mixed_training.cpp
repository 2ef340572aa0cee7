// SPDX-License-Identifier: Apache-2.0
// How training gets along with sixteen bits. docs/book/10-mixed-precision.md
#include <fmt/core.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/examples/book/book.h>
#include <peal/nn/nn.h>

#include <string>

namespace book {
namespace {

using namespace peal;

// The mean loss of the last steps, and what a rank sends of gradients.
struct Trained {
  double loss = 0;
  std::string parameters, sent;
};

Trained train_mixed(const comm::ProcessGroup& group, const nn::MixedPrecision& precision,
                    bool masters) {
  manual_seed(3);
  nn::Sequential net = nn::mlp({16, 64, 4});
  if (!masters) net.to(DType::bf16);
  nn::DistributedDataParallel ddp(net, group, {.mixed_precision = precision});
  nn::SGD optimizer(ddp.named_parameters(), {.lr = 0.05});
  const Tensor truth = randn({16, 4});
  Trained trained;
  for (int step = 0; step < 300; ++step) {
    const Tensor all = randn({16, 16});
    const Tensor x = all.rows(8 * group.rank(), 8 * group.rank() + 8);
    const Tensor target = argmax(matmul(x, truth), 1);
    optimizer.zero_grad();
    const Tensor loss =
        cross_entropy(cast(ddp(masters ? x : cast(x, DType::bf16)), DType::f32), target);
    loss.backward();
    optimizer.step();
    if (step >= 250) trained.loss += loss.item<double>() / 50;
  }
  trained.parameters = name_of(net.parameters()[0].dtype());
  trained.sent = name_of(precision.travels_in().value_or(net.parameters()[0].dtype()));
  return trained;
}

}  // namespace

void mixed_training() {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    struct Way {
      const char* name;
      nn::MixedPrecision precision;
      bool masters;
    };
    const Way ways[] = {
        {"all in f32", {}, true},
        {"computes and sends bf16", {.param_dtype = DType::bf16}, true},
        {"computes bf16, sends f32",
         {.param_dtype = DType::bf16, .reduce_dtype = DType::f32},
         true},
        {"all in bf16", {}, false},
    };
    for (const Way& way : ways) {
      const Trained trained = train_mixed(group, way.precision, way.masters);
      if (group.rank() > 0) continue;
      fmt::print("{:<25} parameters {:<4}  gradients travel as {:<4}  loss {:.1f}\n", way.name,
                 trained.parameters, trained.sent, trained.loss);
    }
  });
}

}  // namespace book
