// SPDX-License-Identifier: Apache-2.0
// Answers to the exercises of docs/book/11-zero-and-fsdp.md.
#include <peal/comm/start/threads.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/parallel/sharded/fsdp.h>
#include <peal/nn/parallel/sharded/memory_estimate.h>
#include <peal/nn/parallel/sharded/placement.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace {

using namespace peal;

nn::Sequential model() {
  manual_seed(1);
  return nn::mlp({64, 128, 128, 10});
}

Tensor whole_loss(nn::Module& called, int rank, int world) {
  manual_seed(7);
  const Tensor x = randn({8, 64}, DType::f32);
  const int share = 8 / world;
  return mean(square(called(x.rows(share * rank, share * (rank + 1)))));
}

// Steps on so many ranks, from a state and to one: the model's and the optimizer's.
struct State {
  NamedTensors model, optimizer;
};
State trained(int world, int steps, const State& from) {
  State to;
  comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
    nn::Sequential net = model();
    nn::FullyShardedDataParallel fsdp(net, group, {.wrap = nn::wrap_by_name({"1", "3"})});
    nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 1e-2});
    if (!from.model.empty()) {
      fsdp.load_state_dict(from.model);
      fsdp.load_optimizer_state_dict(optimizer, from.optimizer);
    }
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      whole_loss(fsdp, group.rank(), world).backward();
      optimizer.step();
    }
    State here{fsdp.state_dict(), fsdp.optimizer_state_dict(optimizer)};
    if (group.rank() == 0) to = here;
  });
  return to;
}

double distance(const NamedTensors& a, const NamedTensors& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, max(abs(a[i].second - b[i].second)).item<double>());
  }
  return most;
}

}  // namespace

TEST_CASE("11.1: GPT-2's owner of the embedding has nearly a third of AdamW's state") {
  // wte, wpe, twelve blocks, ln_f; the head's matrix is wte.
  std::vector<std::int64_t> counts{50257 * 768, 1024 * 768};
  for (int block = 0; block < 12; ++block) {
    for (const std::int64_t count : {768, 768, 3 * 768 * 768, 3 * 768, 768 * 768, 768, 768, 768,
                                     4 * 768 * 768, 4 * 768, 4 * 768 * 768, 768}) {
      counts.push_back(count);
    }
  }
  counts.insert(counts.end(), {768, 768});
  const auto most_of = [&](int world) {
    const std::vector<std::int64_t> loads = nn::place_greedily(counts, world).loads();
    return *std::max_element(loads.begin(), loads.end());
  };
  CHECK(most_of(8) == counts[0]);
  CHECK(static_cast<double>(most_of(8)) * 8 / (1 << 20) == doctest::Approx(294.47).epsilon(1e-4));
  // More ranks change nothing; with three or fewer the mean is as much.
  CHECK(most_of(64) == counts[0]);
  CHECK(most_of(3) < counts[0] * 12 / 10);
}

TEST_CASE("11.2: with one unit a step has all parameters, and between steps nothing changes") {
  nn::Sequential net = model();
  const nn::AdamW optimizer(net.named_parameters(), {});
  const auto one = estimate_memory(optimizer, net, nn::wrap_by_name({}), 4)[0];
  const auto three = estimate_memory(optimizer, net, nn::wrap_by_name({"1", "3"}), 4)[0];
  CHECK(one.total() <= three.total());       // less padding
  CHECK(one.in_step >= 2 * 26122 * 4);       // the parameters and their gradients
  CHECK(three.in_step <= one.in_step + 64);  // here three units are all there are
  const auto small = estimate_memory(optimizer, net, nn::wrap_by_name({"1", "3", "5"}), 4)[0];
  CHECK(small.in_step < one.in_step);
}

TEST_CASE("11.3: four ranks train, two go on, and then one, as one would have from the beginning") {
  const State four = trained(4, 3, {}), two = trained(2, 3, four), one = trained(1, 3, two);
  const State alone = trained(1, 9, {});
  CHECK(distance(one.model, alone.model) < 1e-4);
  CHECK(one.optimizer.size() == alone.optimizer.size());  // by the plain model's names
}
