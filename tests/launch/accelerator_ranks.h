// SPDX-License-Identifier: Apache-2.0
// What the tests of the Accelerator share: ranks as threads with a Job each, a linear regression in
// f64, and what a plain loop of one process makes of it.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/data/tensor_dataset.h>
#include <peal/launch/spawn.h>
#include <peal/launch/training/accelerator/accelerator.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/schedulers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/difference.h>

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace peal::testing {

using Numbers = std::vector<double>;

// y = 2 x + 3, and a little off.
inline data::DatasetRef line(std::int64_t n) {
  Numbers x, y;
  for (std::int64_t i = 0; i < n; ++i) {
    x.push_back(static_cast<double>(i * 37 % 41) / 20 - 1);
    y.push_back(2 * x.back() + 3 + static_cast<double>(i % 5) / 50);
  }
  return std::make_shared<data::TensorDataset>(Tensor::from(x, {n, 1}, Device{}),
                                               Tensor::from(y, {n, 1}, Device{}));
}

struct Regression : nn::Module {
  nn::Linear inner = add("inner", nn::Linear(1, 3)), outer = add("outer", nn::Linear(3, 1));
  Regression() {
    double next = 0;
    for (const Tensor& p : parameters()) {
      for (std::int64_t i = 0; i < p.numel(); ++i) {
        p.data<float>()[i] = static_cast<float>(std::sin(next += 1));
      }
    }
    to(DType::f64);
  }
  Tensor forward(const Tensor& x) override { return outer(tanh(inner(x))); }
};

inline Tensor squared(const Tensor& out, const Tensor& y) { return mean((out - y) * (out - y)); }

inline Numbers values_of(const nn::Module& model) {
  Numbers all;
  for (const auto& [name, tensor] : model.state_dict()) {
    for (const double value : cast(tensor, DType::f64).to_vector<double>()) all.push_back(value);
  }
  return all;
}
inline Numbers values_of(const launch::PreparedModel& model) {
  Numbers all;
  for (const auto& [name, tensor] : model.state_dict()) {
    for (const double value : cast(tensor, DType::f64).to_vector<double>()) all.push_back(value);
  }
  return all;
}

inline double farthest(const Numbers& a, const Numbers& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = larger(most, std::abs(a[i] - b[i]));
  }
  return most;
}

// f on each rank, and what each gave, by rank.
template <class F>
auto on_ranks(int world, F&& f) {
  std::vector<std::invoke_result_t<F&, launch::Job&>> all(static_cast<std::size_t>(world));
  launch::spawn(world, [&](launch::Job& job) {
    manual_seed(1);
    all[static_cast<std::size_t>(job.rank())] = f(job);
  });
  return all;
}

// What the ranks fail with.
inline std::string failure_of(int world, const std::function<void(launch::Job&)>& f) {
  try {
    launch::spawn(world, f);
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

}  // namespace peal::testing
