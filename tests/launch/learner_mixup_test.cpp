// SPDX-License-Identifier: Apache-2.0
// MixUp and CutMix as the Learner's callbacks.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/launch/training/learner/mixup.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/errors.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace peal;

namespace {

constexpr std::int64_t samples = 8, side = 4, pixels = side * side;

// Sample k is 1 in place k and 0 elsewhere, as an image of that many channels, so that a mixture
// says of what it is.
struct OneHot : data::Dataset {
  explicit OneHot(bool numbers = false) : numbers_(numbers) {}
  std::int64_t size() const override { return samples; }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    const auto n = std::ssize(indices);
    const Tensor x = Tensor::zeros({n, samples, side, side}, DType::f32, Device{});
    std::vector<std::int64_t> y;
    std::vector<float> exact;
    for (std::int64_t i = 0; i < n; ++i) {
      std::fill_n(x.data<float>() + (i * samples + indices[i]) * pixels, pixels, 1.0f);
      y.push_back(indices[i] % 3);
      exact.push_back(static_cast<float>(indices[i]));
    }
    if (numbers_) return {x, Tensor::from(exact, {n, 1}, Device{})};
    return {x, Tensor::from(y, {n}, Device{})};
  }
  bool numbers_;
};

// After all others.
struct Watch : launch::Callback {
  explicit Watch(std::function<void(launch::Loop&)> g) : f(std::move(g)) {}
  int order() const override { return 70; }
  void after_loss(launch::Loop& loop) override { f(loop); }
  std::function<void(launch::Loop&)> f;
};

nn::Module made_net(std::int64_t outputs = 3) {
  manual_seed(3);
  return nn::Sequential(nn::Flatten(), nn::Linear(samples * pixels, outputs));
}

// Of each row of a batch: the shares of samples, by their places.
std::vector<std::vector<float>> shares_of(const Tensor& x) {
  const Tensor means = mean(x, {2, 3});
  std::vector<std::vector<float>> all;
  for (std::int64_t row = 0; row < x.size(0); ++row)
    all.push_back(select(means, 0, row).to_vector<float>());
  return all;
}

// x of each batch of so many epochs, and whether the loss was that of the shares in it.
std::vector<std::vector<float>> seen(launch::Job& job, std::shared_ptr<launch::Callback> mix,
                                     int epochs, double smoothing, std::uint64_t seed = 1) {
  std::vector<std::vector<float>> all;
  const nn::CrossEntropyLoss loss{.label_smoothing = smoothing};
  data::DataLoader training(
      std::make_shared<OneHot>(),
      {.batch_size = 4 / job.world(), .shuffle = true, .shard = job.place(), .seed = seed});
  data::DataLoader validation(std::make_shared<OneHot>(),
                              {.batch_size = 4, .shard = job.place(), .exact = true});
  const auto watch = [&](launch::Loop& loop) {
    const auto shares = shares_of(loop.batch.x);
    double wanted = 0;
    for (std::int64_t row = 0; row < loop.batch.size(); ++row) {
      const Tensor output = narrow(loop.output.detach(), 0, row, 1);
      double sum = 0;
      for (std::int64_t k = 0; k < samples; ++k) {
        const double share = shares[row][k];
        sum += share;
        if (share == 0) continue;
        const Tensor y = Tensor::from(std::vector<std::int64_t>{k % 3}, {1}, Device{});
        wanted += share * loss(output, y).item<float>() / static_cast<double>(loop.batch.size());
        if (!loop.training) CHECK(share == 1);
      }
      CHECK(sum == doctest::Approx(1).epsilon(1e-6));
    }
    CHECK(loop.loss.item<float>() == doctest::Approx(wanted).epsilon(1e-5));
    if (loop.training) all.push_back(loop.batch.x.to_vector<float>());
  };
  launch::Learner learner(job, {&training, &validation}, made_net(),
                          {.loss = loss,
                           .optimizer = launch::optimizer_of<nn::SGD>(nn::SGDOptions{}),
                           .callbacks = {std::move(mix), std::make_shared<Watch>(watch)}});
  learner.fit(epochs, 0.1);
  return all;
}

}  // namespace

TEST_CASE("losses have the shares of the samples, own ones of half or more, in training alone") {
  launch::Job job;
  for (const double smoothing : {0.0, 0.1}) {
    const auto batches = seen(job, std::make_shared<launch::MixUp>(), 4, smoothing);
    REQUIRE(batches.size() == 8);
    int mixed = 0;
    for (const auto& batch : batches) {
      for (std::size_t row = 0; row < 4; ++row) {
        float most = 0;
        for (std::size_t k = 0; k < samples; ++k)
          most = std::max(most, batch[(row * samples + k) * pixels]);
        CHECK(most >= 0.5f);
        mixed += most < 1;
      }
    }
    CHECK(mixed > 8);  // of 32, some with themselves
  }
}

TEST_CASE("the box of CutMix is another image's, and losses have the shares of the pixels") {
  launch::Job job;
  const auto batches = seen(job, std::make_shared<launch::CutMix>(), 8, 0.1);
  std::set<float> values;
  int mixed = 0;
  for (const auto& batch : batches) {
    values.insert(batch.begin(), batch.end());
    for (std::size_t image = 0; image < 4 * samples; ++image) {
      const auto* const from = &batch[image * pixels];
      const auto ones = std::count(from, from + pixels, 1.0f);
      mixed += ones > 0 && ones < pixels;
    }
  }
  CHECK(values == std::set<float>{0, 1});
  CHECK(mixed > 8);
}

TEST_CASE("what is drawn is a function of the seed, the epoch, the batch and the rank") {
  launch::Job job;
  const auto once = seen(job, std::make_shared<launch::MixUp>(), 2, 0);
  CHECK(seen(job, std::make_shared<launch::MixUp>(), 2, 0) == once);
  CHECK(seen(job, std::make_shared<launch::MixUp>(), 2, 0, 2) != once);
  std::set<std::vector<float>> all(once.begin(), once.end());
  CHECK(all.size() == 4);
  // A share is drawn for each batch of each rank.
  std::set<float> shares[2];
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    launch::Job one(group);
    for (const auto& batch : seen(one, std::make_shared<launch::MixUp>(), 2, 0)) {
      shares[one.rank()].insert(batch.begin(), batch.end());
    }
  });
  CHECK(shares[0].size() > 3);
  CHECK(shares[0] != shares[1]);
}

TEST_CASE("a y of numbers is mixed itself") {
  launch::Job job;
  data::DataLoader training(std::make_shared<OneHot>(true), {.batch_size = 4, .seed = 1});
  int batches = 0;
  const auto watch = [&](launch::Loop& loop) {
    const auto shares = shares_of(loop.batch.x);
    for (std::int64_t row = 0; row < 4; ++row) {
      double wanted = 0;
      for (std::int64_t k = 0; k < samples; ++k) wanted += shares[row][k] * static_cast<double>(k);
      CHECK(loop.batch.y.to_vector<float>()[row] == doctest::Approx(wanted).epsilon(1e-5));
    }
    ++batches;
  };
  launch::Learner learner(
      job, {&training}, made_net(1),
      {.loss = nn::MSELoss{},
       .callbacks = {std::make_shared<launch::MixUp>(), std::make_shared<Watch>(watch)}});
  learner.fit(1, 0.01);
  CHECK(batches == 2);
}

TEST_CASE("what cannot be mixed is an error") {
  CHECK_THROWS_AS(launch::MixUp(0), Error);
  struct Codes : OneHot {
    data::Batch get(std::span<const std::int64_t> indices) const override {
      data::Batch batch = OneHot::get(indices);
      batch.x = cast(mean(batch.x, {2, 3}), DType::i64);
      return batch;
    }
  };
  struct Two : OneHot {
    data::Batch get(std::span<const std::int64_t> indices) const override {
      data::Batch batch = OneHot::get(indices);
      batch.more = {{"numbers", mean(batch.x, {2, 3})}};
      return batch;
    }
  };
  struct Flat : OneHot {
    data::Batch get(std::span<const std::int64_t> indices) const override {
      data::Batch batch = OneHot::get(indices);
      batch.x = flatten(batch.x, 1);
      return batch;
    }
  };
  launch::Job job;
  const auto error = [&](data::DatasetRef set, std::shared_ptr<launch::Callback> mix) {
    data::DataLoader training(std::move(set), {.batch_size = 4});
    launch::Learner learner(job, {&training}, made_net(),
                            {.loss = nn::CrossEntropyLoss{}, .callbacks = {std::move(mix)}});
    return testing::error_of([&] { learner.fit(1); });
  };
  testing::check_has(error(std::make_shared<Codes>(), std::make_shared<launch::MixUp>()),
                     "x is i64");
  testing::check_has(error(std::make_shared<Two>(), std::make_shared<launch::MixUp>()), "numbers");
  testing::check_has(error(std::make_shared<Flat>(), std::make_shared<launch::CutMix>()),
                     "[B, C, H, W]");
}
