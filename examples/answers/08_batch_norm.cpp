// SPDX-License-Identifier: Apache-2.0
// Answers to the exercises of docs/book/08-batch-norm.md.
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

namespace {

using namespace peal;
using Shares = std::vector<std::vector<float>>;

struct Normed {
  std::vector<float> outputs, gradients;  // of all ranks, one behind the other
};

// The last value of all has three times its output in the loss, besides the cubes.
Normed normed(const Shares& shares) {
  std::size_t all = 0;
  for (const auto& share : shares) all += share.size();
  std::vector<Normed> of_ranks(shares.size());
  comm::run_ranks(static_cast<int>(shares.size()), [&](const comm::ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    std::size_t before = 0;
    for (std::size_t r = 0; r < rank; ++r) before += shares[r].size();
    const auto mine = static_cast<std::int64_t>(shares[rank].size());
    nn::SyncBatchNorm norm(1, group);
    const Tensor x = Tensor::from(shares[rank], {mine, 1}).set_requires_grad();
    const Tensor y = norm(x);
    Tensor loss = sum(y * y * y);
    if (mine > 0 && before + shares[rank].size() == all) {
      loss = loss + 3.0 * sum(y.rows(mine - 1, mine));
    }
    loss.backward();
    of_ranks[rank] = {y.to_vector<float>(), x.grad().to_vector<float>()};
  });
  Normed joined;
  for (const Normed& one : of_ranks) {
    joined.outputs.insert(joined.outputs.end(), one.outputs.begin(), one.outputs.end());
    joined.gradients.insert(joined.gradients.end(), one.gradients.begin(), one.gradients.end());
  }
  return joined;
}

}  // namespace

TEST_CASE("8.1: the gradient of rank 0's 2 comes from the others alone, through the mean") {
  const Normed all = normed({{1, 2, 3}, {2}, {}});
  CHECK(all.outputs[1] == doctest::Approx(0));  // it is the mean, so its own cube is flat there
  // dy is 6, 0, 6 and 3, whose mean goes back to each value, over a deviation of the root of 1/2.
  CHECK(all.gradients[1] == doctest::Approx(-3.75 / std::sqrt(0.5)).epsilon(1e-3));
}

TEST_CASE("8.2: whose the values are changes what ranks know alone, and no output or gradient") {
  const Normed apart = normed({{1, 2, 3}, {11}, {}}), last = normed({{}, {}, {1, 2, 3, 11}});
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(last.outputs[i] == doctest::Approx(apart.outputs[i]));
    CHECK(last.gradients[i] == doctest::Approx(apart.gradients[i]).epsilon(1e-3));
  }
}

TEST_CASE("8.3: without counts the mean is right where shares are equally large, and only there") {
  const auto mean_of_means = [](const Shares& shares) {
    double mean = 0;
    for (const auto& share : shares) {
      double own = 0;
      for (const float x : share) own += x / static_cast<double>(share.size());
      mean += own / static_cast<double>(shares.size());
    }
    return mean;
  };
  CHECK(mean_of_means({{1, 2, 3}, {11}}) == doctest::Approx(6.5));  // not 4.25: no output is right
  CHECK(mean_of_means({{1, 2}, {3, 11}}) == doctest::Approx(4.25));
}
