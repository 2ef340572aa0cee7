// SPDX-License-Identifier: Apache-2.0
// Inputs and comparisons for the tests of ops.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace peal::test {

// Values of a fixed stream, normal, that f32 holds exactly: so f32 and f64 ops get equal inputs.
inline std::vector<float> normals(std::int64_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = draw(engine);
  return values;
}

template <class T>
Tensor tensor_of(const std::vector<float>& values, const Shape& shape) {
  std::vector<T> converted;
  for (float value : values) converted.push_back(static_cast<T>(value));
  return Tensor::from(converted, shape);
}

template <class T>
Tensor normal(const Shape& shape, unsigned seed) {
  return tensor_of<T>(normals(shape.numel(), seed), shape);
}

inline std::vector<double> doubles(const Tensor& tensor) {
  std::vector<double> out;
  visit(tensor.dtype(), [&]<class T>() {
    const Tensor here = tensor.to(Device{});
    const T* data = here.data<T>();
    for (std::int64_t i = 0; i < here.numel(); ++i) out.push_back(static_cast<double>(data[i]));
  });
  return out;
}

// The largest difference, over the largest magnitude of b (at least 1e-30); infinite where sizes
// differ or a NaN meets a number.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0, scale = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return INFINITY;
    if (std::isnan(a[i]) || a[i] == b[i]) continue;
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  for (double value : b) {
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  }
  return most / scale;
}
inline double distance(const Tensor& a, const Tensor& b) {
  return distance(doubles(a), doubles(b));
}

}  // namespace peal::test
