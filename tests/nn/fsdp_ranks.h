// SPDX-License-Identifier: Apache-2.0
// What the tests of FSDP share: small models in f64, and what one process makes of all ranks'
// batches.
#pragma once

#include <peal/autograd/grad_slot.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/parallel/sharded/fsdp.h>
#include <peal/tests/difference.h>
#include <peal/tests/errors.h>

#include <cmath>

#include "ddp_ranks.h"

namespace peal::testing {

using FSDP = nn::FullyShardedDataParallel;

// As BasicNet, of images [N, 1, 8, 8].
struct SmallConv : nn::Module {
  nn::Conv2d conv1 = add("conv1", nn::Conv2d(1, 3, 3));
  nn::Conv2d conv2 = add("conv2", nn::Conv2d(3, 5, 3));
  nn::Linear fc1 = add("fc1", nn::Linear(20, 7));
  nn::Linear fc2 = add("fc2", nn::Linear(7, 3));
  Tensor forward(const Tensor& x) override {
    const Tensor y = max_pool2d(relu(conv2(relu(conv1(x)))), 2);
    return fc2(relu(fc1(flatten(y, 1))));
  }
};

inline SmallConv make_conv() { return {}; }
inline nn::GPT make_gpt() { return nn::GPT({11, 6, 2, 3, 5}); }
inline nn::WrapPolicy wrap_layers() { return nn::wrap_by_type({"Conv2d", "Linear"}); }

// A batch of a step, of which each rank takes its rows.
struct Batch {
  Tensor x, y;
};
inline Batch batch_of(nn::Module any, int rows, int step) {
  manual_seed(static_cast<std::uint64_t>(step) + 100);
  if (any.as<nn::GPT>() != nullptr) {
    return {randint(0, 11, {rows, 5}), randint(0, 11, {rows, 5})};
  }
  const bool images = any.as<SmallConv>() != nullptr;
  const Shape shape = images ? Shape{rows, 1, 8, 8} : Shape{rows, 3};
  return {randn(shape, DType::f64), randint(0, 2, {rows})};
}

// The mean over the rows.
inline Tensor loss_of(nn::Module& model, const Batch& batch) {
  const Tensor logits = model(batch.x);
  const std::int64_t classes = logits.size(-1);
  return cross_entropy(reshape(logits, {-1, classes}), reshape(batch.y, {-1}));
}

inline Batch rows_of(const Batch& batch, int rank, int world) {
  const std::int64_t each = batch.x.size(0) / world;
  return {batch.x.rows(rank * each, (rank + 1) * each),
          batch.y.rows(rank * each, (rank + 1) * each)};
}

// A model in f64, of the same values each time.
template <class M>
M fresh(M (*make)()) {
  manual_seed(7);
  M model = make();
  model.to(DType::f64);
  return model;
}

inline double difference(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].first == b[i].first);
    REQUIRE(a[i].second.shape() == b[i].second.shape());
    const auto mine = cast(a[i].second, DType::f64).to_vector<double>(),
               theirs = cast(b[i].second, DType::f64).to_vector<double>();
    for (std::size_t k = 0; k < mine.size(); ++k) {
      most = larger(most, std::abs(mine[k] - theirs[k]));
    }
  }
  return most;
}

// What each of the ranks fails with.
inline std::vector<std::string> failures(int world,
                                         const std::function<void(const Group&, int)>& f) {
  std::vector<std::string> all(static_cast<std::size_t>(world));
  try {
    ranks(world, [&](const Group& group, int rank) {
      try {
        f(group, rank);
      } catch (const Error& error) {
        all[static_cast<std::size_t>(rank)] = error.what();
        throw;
      }
    });
  } catch (const Error&) {
  }
  return all;
}

}  // namespace peal::testing
