// SPDX-License-Identifier: Apache-2.0
// What the tests of Pipe share: models of numbers that differ everywhere, what one process makes of
// them, and that a pipe makes the same.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/comm/pipeline/simulate.h>
#include <peal/nn/layers/activation.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/pipeline/pipe.h>
#include <peal/tests/difference.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ddp_ranks.h"

namespace peal::testing {

inline constexpr std::int64_t rows = 10;
inline constexpr nn::SGDOptions sgd{.lr = 0.1, .momentum = 0.9};

// Sixteen layers of uneven widths, from 5 to 2, the same on all ranks.
inline nn::Sequential uneven_model() {
  manual_seed(3);
  nn::Sequential net;
  const std::int64_t widths[] = {5, 7, 4, 6, 6, 3, 8, 5, 2};
  for (int i = 0; i < 8; ++i) {
    net.push_back(nn::Linear(widths[i], widths[i + 1]));
    net.push_back(nn::Tanh());
  }
  net.to(DType::f64);
  return net;
}

inline Tensor numbers(const Shape& shape, double scale) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    values.push_back(scale * static_cast<double>((i * 7 + 3) % 11 - 5));
  }
  return Tensor::from(values, shape);
}
inline Tensor input_of(int step) { return numbers({rows, 5}, 0.1 + step); }
inline Tensor target_of() { return numbers({rows, 2}, 0.2); }

inline Tensor squares(const Tensor& y, const Tensor& target) {
  const Tensor off = y - target;
  return sum(off * off);
}

using State = std::map<std::string, std::vector<double>>;

inline State state_of(const nn::Module& model) {
  State state;
  for (const auto& [name, tensor] : model.state_dict()) {
    state[name] = cast(tensor.detach(), DType::f64).to_vector<double>();
  }
  return state;
}

struct Trained {
  std::vector<double> losses;
  std::vector<State> states;  // after each step
};
using Net = std::function<nn::Sequential()>;

// By one process. `parts`: a step is that of so many micro-batches, one after the other, and
// `after` follows them.
inline Trained trained_alone(
    const Net& make, int steps, int parts = 1,
    const std::function<void(nn::Module&)>& after = [](nn::Module&) {}) {
  nn::Sequential net = make();
  nn::SGD optimizer(net.named_parameters(), sgd);
  Trained all;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    double total = 0;
    const auto blocks = comm::Blocks::balanced(rows, parts);
    for (int i = 0; i < parts; ++i) {
      const auto [at, count] = blocks[i];
      const Tensor x = input_of(step).rows(at, at + count);
      const Tensor loss = squares(net(x), target_of().rows(at, at + count)) * (1.0 / rows);
      loss.backward();
      total += loss.item<double>();
    }
    after(net);
    all.losses.push_back(total);
    optimizer.step();
    all.states.push_back(state_of(net));
  }
  return all;
}

inline double farthest(const std::vector<double>& a, const std::vector<double>& b) {
  PEAL_CHECK(a.size() == b.size(), "expected ", b.size(), " elements, got ", a.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = larger(most, std::abs(a[i] - b[i]));
  return most;
}

// Errors of a rank are of all; what it checks is told by exceptions, for ranks are threads.
inline void check_like(const Trained& one, const Net& make, const Group& group,
                       const nn::PipeOptions& options, int steps) {
  nn::Pipe pipe(group, make(), options);
  nn::SGD optimizer(pipe.parameters(), sgd);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const double loss = pipe.step(input_of(step), target_of(), squares);
    const double off = std::abs(loss - one.losses[static_cast<std::size_t>(step)]);
    PEAL_CHECK(off < 1e-10, "step ", step, ": loss off by ", off);
    optimizer.step();
  }
  for (const auto& [name, values] : state_of(pipe.local())) {
    const double off = farthest(values, one.states[static_cast<std::size_t>(steps - 1)].at(name));
    PEAL_CHECK(off < 1e-10, name, " is off by ", off);
  }
  const int bound = stash_bound(pipe.problem(), group.rank());
  PEAL_CHECK(pipe.stash() <= bound, "stash ", pipe.stash(), ", by formula ", bound);
}

// f of every schedule, 1 to 4 ranks and these numbers of micro-batches.
inline void every_schedule(
    std::initializer_list<int> micro_batches,
    const std::function<void(const Group& group, const nn::PipeOptions& options)>& f) {
  for (const auto kind : comm::pipeline::all_kinds) {
    for (int world = 1; world <= 4; ++world) {
      for (const int m : micro_batches) {
        CAPTURE(name(kind));
        CAPTURE(world);
        CAPTURE(m);
        CHECK_NOTHROW(ranks(
            world, [&](const Group& group, int) { f(group, {.kind = kind, .micro_batches = m}); }));
      }
    }
  }
}

// What each rank hears of a failure of one of them, whose own error is the first.
inline std::vector<std::string> heard(int world,
                                      const std::function<void(const Group&, int rank)>& f) {
  std::vector<std::string> all(static_cast<std::size_t>(world));
  try {
    ranks(world, [&](const Group& group, int rank) {
      try {
        f(group, rank);
      } catch (const Error& error) {
        all[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  } catch (const Error&) {  // of the barrier at the end of a group that has failed
  }
  return all;
}

}  // namespace peal::testing
