// SPDX-License-Identifier: Apache-2.0
// Batch norm where the batch lies on several ranks, by hand and by peal: what each rank knows
// alone, what it needs from the others, and that the result is that of one rank with the whole
// batch. The ranks are threads, so that nothing has to be launched. docs/book/08-batch-norm.md
// explains it.
//
// Run it:   build/release/examples/06_sync_batch_norm
#include <peal/autograd/ops/ops.h>
#include <peal/launch/spawn.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

using namespace peal;

namespace {

// One channel. Shares are of unequal size, and one is empty.
const std::vector<std::vector<float>> shares{{1, 2, 3}, {11}, {}};

Tensor batch(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size()), 1});
}

struct Statistics {
  double count = 0, mean = 0, variance = 0;
};

Statistics statistics_of(const std::vector<float>& values) {
  Statistics s{static_cast<double>(values.size())};
  for (const float x : values) s.mean += x / s.count;
  for (const float x : values) s.variance += (x - s.mean) * (x - s.mean) / s.count;
  return s;
}

// Of two batches together, from their statistics alone.
Statistics together(const Statistics& a, const Statistics& b) {
  const double count = a.count + b.count;
  if (count == 0) return {};
  const double mean = (a.count * a.mean + b.count * b.mean) / count;
  const double squares = a.count * (a.variance + (a.mean - mean) * (a.mean - mean)) +
                         b.count * (b.variance + (b.mean - mean) * (b.mean - mean));
  return {count, mean, squares / count};
}

std::string text(const Tensor& tensor) {
  std::string line;
  for (const float value : tensor.to_vector<float>()) {
    std::array<char, 32> number{};
    std::snprintf(number.data(), number.size(), "%8.4f", std::abs(value) < 5e-5 ? 0 : value);
    line += number.data();
  }
  return line.empty() ? "  (none)" : line;
}

}  // namespace

int main() {
  std::printf("             count    mean  variance\n");
  Statistics all;
  std::vector<float> whole;
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    const Statistics own = statistics_of(shares[rank]);
    std::printf("rank %zu       %5.0f %7.3f %9.3f\n", rank, own.count, own.mean, own.variance);
    all = together(all, own);
    whole.insert(whole.end(), shares[rank].begin(), shares[rank].end());
  }
  std::printf("together     %5.0f %7.3f %9.3f\n", all.count, all.mean, all.variance);
  std::vector<float> by_hand;
  for (const float x : whole) {
    by_hand.push_back(static_cast<float>((x - all.mean) / std::sqrt(all.variance + 1e-5)));
  }
  std::printf("by hand:  %s\n\n", text(batch(by_hand)).c_str());

  // The loss weighs values unequally: the sum of an output's own square, and of three times the
  // last.
  const auto loss_of = [](const Tensor& y, bool last) {
    const Tensor own = sum(y * y * y);
    return last ? own + 3.0 * sum(y) : own;
  };
  std::vector<std::string> outputs(shares.size()), gradients(shares.size());
  std::string statistics;
  launch::spawn(static_cast<int>(shares.size()), [&](launch::Job& job) {
    const auto rank = static_cast<std::size_t>(job.rank());
    nn::SyncBatchNorm norm(1, job.group());
    const Tensor x = batch(shares[rank]).set_requires_grad();
    const Tensor y = norm(x);
    loss_of(y, rank == 1).backward();
    outputs[rank] = text(y);
    gradients[rank] = text(x.grad());
    if (job.is_main()) statistics = text(norm.running_mean) + text(norm.running_var);
  });
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    std::printf("rank %zu    %s\n  gradient%s\n", rank, outputs[rank].c_str(),
                gradients[rank].c_str());
  }
  nn::BatchNorm1d norm(1);
  const Tensor x = batch(whole).set_requires_grad();
  const Tensor y = norm(x);
  (loss_of(y.rows(0, 3), false) + loss_of(y.rows(3, 4), true)).backward();
  std::printf("one rank  %s\n  gradient%s\n", text(y).c_str(), text(x.grad()).c_str());
  std::printf("running mean and variance: three ranks%s, one%s\n", statistics.c_str(),
              (text(norm.running_mean) + text(norm.running_var)).c_str());
  return 0;
}
