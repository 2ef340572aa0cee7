// SPDX-License-Identifier: Apache-2.0
// PowerSGD as one process does it that sees what all ranks have, in f64 and plain loops: error
// feedback, and a warm start from numbers that the test knows.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/core/shape.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/parallel/bucket_plan.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace peal::testing {

struct PowerSGDSimulation {
  using Wide = std::vector<double>;
  std::int64_t r = 1;
  double min_compression_rate = 2;
  std::vector<Wide> q{};                    // by bucket, [r, columns] of each of its matrices
  std::vector<std::vector<Wide>> errors{};  // by bucket and rank

  bool sends_factors(const Shape& shape) const {
    if (shape.dim() < 2) return false;
    const auto rows = static_cast<double>(shape[0]), all = static_cast<double>(shape.numel());
    return (rows + all / rows) * static_cast<double>(r) * min_compression_rate < all;
  }

  // Another bucket, in the order of the plan.
  void add(const nn::Bucket& bucket, const std::vector<Shape>& shapes, std::size_t world) {
    Wide& first = q.emplace_back();
    for (const auto& entry : bucket.entries) {
      const Shape& shape = shapes[static_cast<std::size_t>(entry.parameter)];
      if (!sends_factors(shape)) continue;
      for (std::int64_t i = 0; i < r * (shape.numel() / shape[0]); ++i) {
        first.push_back(static_cast<float>(std::cos(static_cast<double>(first.size() + 1))));
      }
    }
    errors.emplace_back(world, Wide(static_cast<std::size_t>(bucket.count), 0.0));
  }

  // Where its matrices begin, as a hook's state has that: "NAME.q" [r * columns] of each.
  NamedTensors state_of(std::size_t b, const nn::Bucket& bucket,
                        const NamedTensors& parameters) const {
    NamedTensors state;
    const double* factor = q[b].data();
    for (const auto& entry : bucket.entries) {
      const auto& [name, tensor] = parameters[static_cast<std::size_t>(entry.parameter)];
      if (!sends_factors(tensor.shape())) continue;
      const std::int64_t size = r * (tensor.numel() / tensor.shape()[0]);
      state.emplace_back(name + ".q",
                         cast(Tensor::from(Wide(factor, factor + size), {size}), bucket.dtype));
      factor += size;
    }
    return state;
  }

  // What all ranks get for what each has, which is multiplied with `factor` then. Parameters that
  // no rank has used are no part of the step.
  Wide step(std::size_t b, const nn::Bucket& bucket, const std::vector<Shape>& shapes,
            std::vector<Wide> x, double factor = 1, const std::vector<int>& unused = {}) {
    if (factor == 0) return x[0];
    const auto world = static_cast<double>(x.size());
    for (std::size_t rank = 0; rank < x.size(); ++rank) {
      for (std::size_t i = 0; i < x[rank].size(); ++i) x[rank][i] += errors[b][rank][i] / factor;
    }
    Wide mean(x[0].size(), 0.0);
    for (const Wide& mine : x) {
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += mine[i] / world;
    }
    Wide out = mean;
    double* row = q[b].data();
    for (const auto& [parameter, at] : bucket.entries) {
      const Shape& shape = shapes[static_cast<std::size_t>(parameter)];
      if (!sends_factors(shape)) continue;
      const std::int64_t rows = shape[0], columns = shape.numel() / rows;
      if (std::find(unused.begin(), unused.end(), parameter) != unused.end()) {
        row += r * columns;
        continue;
      }
      const auto place = [&, at = at](std::int64_t i, std::int64_t j) {
        return static_cast<std::size_t>(at + i * columns + j);
      };
      restart(row, columns);
      make_orthogonal(row, columns);
      Wide p(static_cast<std::size_t>(r * rows), 0.0);
      for (std::int64_t k = 0; k < r; ++k) {
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < columns; ++j) {
            p[static_cast<std::size_t>(k * rows + i)] += mean[place(i, j)] * row[k * columns + j];
          }
        }
      }
      make_orthogonal(p.data(), rows);
      std::fill(row, row + r * columns, 0.0);
      for (std::int64_t k = 0; k < r; ++k) {
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < columns; ++j) {
            row[k * columns + j] += mean[place(i, j)] * p[static_cast<std::size_t>(k * rows + i)];
          }
        }
      }
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
          double& value = out[place(i, j)];
          value = 0;
          for (std::int64_t k = 0; k < r; ++k) {
            value += p[static_cast<std::size_t>(k * rows + i)] * row[k * columns + j];
          }
          for (std::size_t rank = 0; rank < x.size(); ++rank) {
            errors[b][rank][place(i, j)] = (x[rank][place(i, j)] - value) * factor;
          }
        }
      }
      row += r * columns;
    }
    return out;
  }

 private:
  // A row of zeros begins anew.
  void restart(double* rows, std::int64_t n) const {
    for (std::int64_t k = 0; k < r; ++k) {
      double* const mine = rows + k * n;
      if (std::any_of(mine, mine + n, [](double value) { return value != 0; })) continue;
      for (std::int64_t j = 0; j < n; ++j) {
        mine[j] = static_cast<float>(std::cos(static_cast<double>((k + 1) * (j + 1))));
      }
    }
  }
  void make_orthogonal(double* rows, std::int64_t n) const {
    for (std::int64_t i = 0; i < r; ++i) {
      double* const mine = rows + i * n;
      for (std::int64_t pass = 0; pass < 2; ++pass) {
        for (std::int64_t j = 0; j < i; ++j) {
          double dot = 0;
          for (std::int64_t k = 0; k < n; ++k) dot += rows[j * n + k] * mine[k];
          for (std::int64_t k = 0; k < n; ++k) mine[k] -= dot * rows[j * n + k];
        }
      }
      double square = 0;
      for (std::int64_t k = 0; k < n; ++k) square += mine[k] * mine[k];
      for (std::int64_t k = 0; k < n; ++k) mine[k] /= std::sqrt(square) + 1e-8;
    }
  }
};

}  // namespace peal::testing
