// SPDX-License-Identifier: Apache-2.0
// What the tests of DDP share: ranks as threads, small models whose gradients are whole numbers,
// and what their average must be.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/parallel/ddp.h>

#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace peal::testing {

using Group = comm::ProcessGroup;
using DDP = nn::DistributedDataParallel;

// Every rank draws the same numbers. A minute is long enough for a busy machine.
inline void ranks(int world, const std::function<void(const Group&, int rank)>& f) {
  comm::run_ranks(world, {.deadline = std::chrono::minutes(1)},
                  [&](const comm::ProcessGroup& group) {
                    manual_seed(1);
                    f(group, group.rank());
                  });
}
inline void two(const std::function<void(const Group&, int rank)>& f) { ranks(2, f); }

// What two ranks fail with; fails the test where they don't.
inline std::string failure(const std::function<void(const Group&, int rank)>& f) {
  try {
    two(f);
  } catch (const Error& error) {
    return error.what();
  }
  FAIL("expected an Error");
  return {};
}

// Small whole numbers, the same on all ranks.
inline void make_whole(const nn::Module& model) {
  std::int64_t next = 0;
  for (const Tensor& p : model.parameters()) {
    for (std::int64_t i = 0; i < p.numel(); ++i) {
      p.data<float>()[i] = static_cast<float>(next++ * 5 % 7 - 3);
    }
  }
}

// The order of a plan before anything has come. As DDPOptions::order it makes the plan that there
// is without, which stays then.
inline std::vector<std::string> start_order(const nn::Module& model) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.named_parameters()) names.insert(names.begin(), name);
  return names;
}

// A loss whose gradients are whole numbers, where the model's are.
inline Tensor loss(nn::Module& model, double value) {
  const Tensor y = model(full({2, 3}, value));
  return sum(y * y);
}

inline constexpr nn::BucketCaps apart{.first_bytes = 1, .bytes = 1};  // a bucket a parameter

// A model under DDP, with whole numbers, and its like without. The wrapper has the model as `set`
// leaves it.
template <class M>
struct Twins {
  explicit Twins(
      const Group& group, const nn::DDPOptions& options = {},
      const std::function<void(M&)>& set = [](M&) {}) {
    set(model);
    make_whole(model);
    make_whole(alone);
    ddp = std::make_unique<DDP>(model, group, options);
  }
  M model, alone;
  std::unique_ptr<DDP> ddp;
};

struct Mlp : nn::Sequential {  // of four parameters
  Mlp() : nn::Sequential(nn::mlp({3, 4, 2})) {}
};

// f(x), whose graph is made anew when backward comes: what checkpointed activations do.
inline Tensor again(nn::Module here, const Tensor& x) {
  Tensor y;
  {
    const NoGrad guard;
    y = here(x);
  }
  return record("again", y, {x}, [here, x = save(x)](const Tensor& g) {
    nn::Module same = here;
    const Tensor in = x().detach().clone();
    in.set_requires_grad();
    const GradMode recorded(true);
    same(in).backward(g);
    return in.grad();
  });
}

inline bool same_everywhere(const Tensor& tensor, const comm::ProcessGroup& group) {
  const std::string mine(static_cast<const char*>(tensor.raw()), tensor.view().bytes());
  const auto all = group.all_gather_object(mine);
  return std::all_of(all.begin(), all.end(), [&](const auto& other) { return other == all[0]; });
}

// The gradients of `model` are the average of what ranks have in those of `alone`, which no wrapper
// has. Exact for whole numbers and two or four ranks.
inline void check_averaged(const nn::Module& model, const nn::Module& alone,
                           const comm::ProcessGroup& group) {
  const NamedTensors mine = model.named_parameters(), theirs = alone.named_parameters();
  REQUIRE(mine.size() == theirs.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    CAPTURE(mine[i].first);
    const Tensor expected = theirs[i].second.grad().clone();
    group.all_reduce(expected, comm::ReduceOp::avg).wait();
    CHECK(mine[i].second.grad().to_vector<float>() == expected.to_vector<float>());
  }
}

}  // namespace peal::testing
