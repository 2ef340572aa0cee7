// SPDX-License-Identifier: Apache-2.0
// A training step of each model that is measured: every op says what it costs, or the profiler's
// table could not say what it might take.
#include <doctest/doctest.h>
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/bench/models.h>
#include <peal/nn/nn.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

using namespace peal;

namespace {

// These move nothing, and this passes on what comes back.
const std::set<std::string> views{"reshape", "view_as"}, passes_on{"add"};

void check_costs(const std::string& model, bool bf16) {
  CAPTURE(model);
  CAPTURE(bf16);
  manual_seed(0);
  bench::Job job = bench::models().at(model).make(2, {});
  nn::AdamW optimizer(job.module.parameters(), {.lr = 1e-3});
  context().trace = std::make_shared<Trace>();
  [&] {
    const Autocast guard(DType::bf16, bf16);
    return job.loss();
  }()
      .backward();
  nn::clip_grad_norm_(optimizer.parameters(), 1.0);
  optimizer.step();
  const auto trace = std::exchange(context().trace, nullptr);
  double flops = 0, low = 0;
  for (const Trace::Row& row : trace->rows()) {
    if (views.contains(row.name)) continue;
    CAPTURE(row.name);
    if (row.forward.calls > 0) CHECK(row.forward.cost.bytes > 0);
    if (row.backward.calls > 0 && !passes_on.contains(row.name)) {
      CHECK(row.backward.cost.bytes > 0);
    }
    flops += row.forward.cost.flops + row.backward.cost.flops;
    low += row.forward.cost.low_flops + row.backward.cost.low_flops;
  }
  CHECK(flops > 0);
  CHECK((low > 0) == bf16);
}

}  // namespace

// The others are larger ones of the same ops.
TEST_CASE("every op of the models has a cost") {
  for (const char* model : {"basicnet", "mlp", "gpt", "resnet18", "tabular", "awd_lstm"}) {
    for (const bool bf16 : {false, true}) check_costs(model, bf16);
  }
}
