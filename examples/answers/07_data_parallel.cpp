// SPDX-License-Identifier: Apache-2.0
// Answers to the exercises 4 to 6 of docs/book/07-data-parallel.md.
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/data/tensor_dataset.h>
#include <peal/launch/training/dispatcher.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/compress_hooks.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/join.h>

#include <doctest/doctest.h>

#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace {

using namespace peal;

// The weight after an epoch of the batches 1, 2, 3, 4, 5, dealt to two ranks in turns.
double weight_after_five(bool by_all) {
  double weight = 0;
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    const nn::Linear model(Tensor::zeros({1, 1}));
    nn::DistributedDataParallel ddp(model, group);
    nn::SGD optimizer(ddp.named_parameters(), {.lr = 1});
    nn::Join join(ddp, {.divide_by_initial_world_size = by_all});
    int batch = 1 + group.rank();
    while (join.next(batch <= 5)) {
      optimizer.zero_grad();
      if (join.active()) {
        mean(ddp(full({1, 1}, double(batch)))).backward();
      } else {
        join.follow();
      }
      optimizer.step();
      batch += 2;
    }
    if (group.rank() == 0) weight = model.weight.item<double>();
  });
  return weight;
}

// What two ranks are dealt of the numbers 1 to 7 in an epoch, by a batch size of two.
std::set<int> dealt_of_seven(data::LoaderOptions options, std::int64_t epoch) {
  options.batch_size = 2;
  options.drop_last = true;
  std::vector<float> numbers = {1, 2, 3, 4, 5, 6, 7};
  const auto set = std::make_shared<data::TensorDataset>(Tensor::from(numbers, {7, 1}),
                                                         Tensor::zeros({7}, DType::i64));
  std::set<int> dealt;
  std::mutex mutex;
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Dispatcher batches(group, group.rank() == 0 ? set : nullptr, options);
    batches.set_epoch(epoch);
    while (const auto batch = batches.next()) {
      const std::lock_guard<std::mutex> lock(mutex);
      for (const float x : batch->x.to_vector<float>()) dealt.insert(static_cast<int>(x));
    }
  });
  return dealt;
}

}  // namespace

TEST_CASE("7.4: five batches for two ranks, by either divisor, and by one process") {
  CHECK(weight_after_five(true) == -7.5);  // 1.5 + 3.5 + 5 / 2: half of what 15 alone would be
  CHECK(weight_after_five(false) == -10);  // 1.5 + 3.5 + 5, as of one process with batches of two
}

TEST_CASE(
    "7.5: what rounding took from a third comes with the next steps, where it is remembered") {
  // 256 elements, the first 1, the others a third.
  const Tensor gradient = full({nn::Int8Blocks::size}, 1.0 / 3);
  gradient[0] = 1.0;
  Tensor left = zeros({nn::Int8Blocks::size});
  double plain = 0, remembered = 0;
  constexpr int steps = 100;
  for (int step = 0; step < steps; ++step) {
    plain += from_int8(nn::to_int8(gradient)).reshape({nn::Int8Blocks::size})[1].item<double>();
    const Tensor wanted = gradient + left;
    const Tensor sent = from_int8(nn::to_int8(wanted)).reshape({nn::Int8Blocks::size});
    left = wanted - sent;
    remembered += sent[1].item<double>();
  }
  CHECK(plain == doctest::Approx(steps * 42.0 / 127).epsilon(1e-4));  // always too little
  CHECK(remembered == doctest::Approx(steps / 3.0).epsilon(1e-4));
}

TEST_CASE(
    "7.6: drop_last never deals the end of the order, which is another one when it is drawn") {
  CHECK(dealt_of_seven({}, 0) == std::set<int>{1, 2, 3, 4});
  CHECK(dealt_of_seven({}, 1) == std::set<int>{1, 2, 3, 4});
  std::set<int> in_some_epoch;
  for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
    const std::set<int> dealt = dealt_of_seven({.shuffle = true}, epoch);
    CHECK(dealt.size() == 4);
    in_some_epoch.insert(dealt.begin(), dealt.end());
  }
  CHECK(in_some_epoch.size() == 7);
}
