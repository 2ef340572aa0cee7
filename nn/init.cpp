// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/random.h>
#include <peal/nn/init.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

namespace peal::nn::init {
namespace {

void check_weight(std::string_view who, const Shape& weight) {
  PEAL_CHECK(weight.dim() >= 2 && weight.numel() > 0, who,
             ": a weight has at least two dimensions [out, in, ...], got ", weight);
}

void overwrite(const Tensor& x, const Tensor& values) {
  const NoGrad guard;
  x.copy_(cast(values, x.dtype()).to(x.device()));
}

// x becomes what `make` turns those drawn into, which it may write: now, or, where x has no memory
// yet, once it has.
template <class Draw, class Make>
void overwrite(const Tensor& x, Draw draw, Make make) {
  if (!is_deferred(x)) return overwrite(x, make(draw()));
  const DeferInit scope;
  defer_write(x, [drawn = draw(), make](const Tensor& all) {
    Tensors values;
    for (const Tensor& each : drawn) values.push_back(materialized(each));
    overwrite(all, make(values));
  });
  x.storage()->bump_version();
}

Tensors nothing_drawn() { return {}; }
Tensors drawn_normal(const Shape& shape) { return {randn(shape, DType::f64, Device{})}; }

// x with erf(x) = y: Newton's steps from Winitzki's approximation (2008), good to 2e-3.
double inverse_erf(double y) {
  constexpr double a = 0.147;
  const double l = std::log1p(-y * y), t = 2 / (std::numbers::pi * a) + l / 2;
  double x = std::copysign(std::sqrt(std::sqrt(t * t - l / a) - t), y);
  for (int i = 0; i < 4; ++i) {
    const double slope = 2 * std::numbers::inv_sqrtpi * std::exp(-x * x);
    if (slope < 1e-300) break;
    x -= (std::erf(x) - y) / slope;
  }
  return x;
}

double kaiming_deviation(std::string_view who, const Tensor& weight,
                         const KaimingOptions& options) {
  check_weight(who, weight.shape());
  const std::int64_t fan =
      options.mode == FanMode::fan_in ? fan_in(weight.shape()) : fan_out(weight.shape());
  return calculate_gain(options.nonlinearity, options.a) / std::sqrt(static_cast<double>(fan));
}

double xavier_deviation(std::string_view who, const Tensor& weight, double gain) {
  check_weight(who, weight.shape());
  const std::int64_t both = fan_in(weight.shape()) + fan_out(weight.shape());
  return gain * std::sqrt(2.0 / static_cast<double>(both));
}

Tensor dirac_values(const Shape& shape, std::int64_t groups) {
  const Tensor values = Tensor::zeros(shape, DType::f64, Device{});
  std::int64_t window = 1, middle = 0;
  for (int d = 2; d < shape.dim(); ++d) {
    window *= shape[d];
    middle = middle * shape[d] + shape[d] / 2;
  }
  const std::int64_t own = shape[0] / groups;
  for (std::int64_t group = 0; group < groups && window > 0; ++group) {
    for (std::int64_t i = 0; i < std::min(own, shape[1]); ++i) {
      values.data<double>()[((group * own + i) * shape[1] + i) * window + middle] = 1;
    }
  }
  return values;
}

// The rows of a column in the order of its keys: the first of them become 0.
void thin_out(const Tensor& values, const Tensor& keys, double sparsity, double deviation) {
  const std::int64_t rows = values.size(0), columns = values.size(1);
  const auto none = static_cast<std::int64_t>(std::ceil(sparsity * static_cast<double>(rows)));
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  for (std::int64_t column = 0; column < columns; ++column) {
    const double* key = keys.data<double>() + column * rows;
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](std::int64_t a, std::int64_t b) { return key[a] < key[b]; });
    for (std::int64_t i = 0; i < rows; ++i) {
      double& value = values.data<double>()[order[static_cast<std::size_t>(i)] * columns + column];
      value = i < none ? 0 : value * deviation;
    }
  }
}

// gain times what Gram and Schmidt make of the random matrix, in that shape.
Tensor orthonormal(const Tensor& random, const Shape& shape, double gain) {
  const std::int64_t rows = shape[0], columns = shape.numel() / rows;
  const bool tall = rows > columns;
  const auto count = static_cast<std::size_t>(tall ? columns : rows);
  const auto length = static_cast<std::size_t>(tall ? rows : columns);
  double* v = random.data<double>();
  const auto product = [&](const double* a, const double* b) {
    double total = 0;
    for (std::size_t i = 0; i < length; ++i) total += a[i] * b[i];
    return total;
  };
  // Twice, so that rounding does not tilt the vectors.
  for (std::size_t k = 0; k < count; ++k) {
    double* here = v + k * length;
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t before = 0; before < k; ++before) {
        const double* other = v + before * length;
        const double share = product(here, other);
        for (std::size_t i = 0; i < length; ++i) here[i] -= share * other[i];
      }
    }
    const double scale = 1 / std::sqrt(product(here, here));
    for (std::size_t i = 0; i < length; ++i) here[i] *= scale;
  }
  const Tensor values = Tensor::empty(shape, DType::f64, Device{});
  double* to = values.data<double>();
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t i = 0; i < length; ++i) {
      to[tall ? i * count + k : k * length + i] = gain * v[k * length + i];
    }
  }
  return values;
}

void symmetric_uniform(const Tensor& x, double deviation) {
  const double bound = std::sqrt(3.0) * deviation;
  init::uniform_(x, -bound, bound);
}

}  // namespace

std::int64_t fan_in(const Shape& weight) {
  PEAL_CHECK(weight.dim() >= 2 && weight[0] > 0,
             "fan_in: a weight has at least two dimensions [out, in, ...], got ", weight);
  return weight.numel() / weight[0];
}

std::int64_t fan_out(const Shape& weight) {
  PEAL_CHECK(weight.dim() >= 2 && weight[1] > 0,
             "fan_out: a weight has at least two dimensions [out, in, ...], got ", weight);
  return weight.numel() / weight[1];
}

double fan_in_bound(const Shape& weight) {
  return 1.0 / std::sqrt(static_cast<double>(fan_in(weight)));
}

Tensor uniform(const Shape& shape, double bound) { return peal::uniform(shape, -bound, bound); }

void uniform_(const Tensor& x, double low, double high) {
  overwrite(
      x, [&] { return Tensors{peal::uniform(x.shape(), low, high, computed_in(x.dtype()))}; },
      [](const Tensors& drawn) { return drawn[0]; });
}

void normal_(const Tensor& x, double mean, double deviation) {
  overwrite(
      x, [&] { return drawn_normal(x.shape()); },
      [mean, deviation](const Tensors& drawn) {
        double* const begin = drawn[0].data<double>();
        for (double* at = begin; at != begin + drawn[0].numel(); ++at) {
          *at = mean + deviation * *at;
        }
        return drawn[0];
      });
}

void constant_(const Tensor& x, double value) {
  overwrite(x, nothing_drawn,
            [value, shape = x.shape(), dtype = x.dtype(), device = x.device()](const Tensors&) {
              return full(shape, value, dtype, device);
            });
}

void zeros_(const Tensor& x) { init::constant_(x, 0); }
void ones_(const Tensor& x) { init::constant_(x, 1); }

void eye_(const Tensor& matrix) {
  PEAL_CHECK(matrix.dim() == 2, "eye_: expected a matrix, got shape ", matrix.shape());
  const auto ones_of = [shape = matrix.shape()](const Tensors&) {
    const Tensor values = Tensor::zeros(shape, DType::f64, Device{});
    for (std::int64_t i = 0; i < std::min(shape[0], shape[1]); ++i) {
      values.data<double>()[i * shape[1] + i] = 1;
    }
    return values;
  };
  overwrite(matrix, nothing_drawn, ones_of);
}

void dirac_(const Tensor& weight, std::int64_t groups) {
  const Shape& shape = weight.shape();
  PEAL_CHECK(shape.dim() >= 3 && shape.dim() <= 5,
             "dirac_: expected a weight [out, in, kernel ...] of 3 to 5 dimensions, got ", shape);
  PEAL_CHECK(groups > 0 && shape[0] % groups == 0, "dirac_: ", groups, " groups do not divide ",
             shape[0], " outputs");
  overwrite(weight, nothing_drawn,
            [shape, groups](const Tensors&) { return dirac_values(shape, groups); });
}

void sparse_(const Tensor& matrix, double sparsity, double deviation) {
  PEAL_CHECK(matrix.dim() == 2 && sparsity >= 0 && sparsity <= 1,
             "sparse_: expected a matrix and a sparsity in [0, 1], got shape ", matrix.shape(),
             " and ", sparsity);
  const auto draw = [&] {
    const Tensor values = randn(matrix.shape(), DType::f64, Device{});
    return Tensors{values,
                   peal::uniform({matrix.size(1), matrix.size(0)}, 0, 1, DType::f64, Device{})};
  };
  overwrite(matrix, draw, [sparsity, deviation](const Tensors& drawn) {
    thin_out(drawn[0], drawn[1], sparsity, deviation);
    return drawn[0];
  });
}

void trunc_normal_(const Tensor& x, double mean, double deviation, double low, double high) {
  PEAL_CHECK(deviation > 0 && low < high,
             "trunc_normal_: expected a deviation above 0 and low < "
             "high, got ",
             deviation, ", ", low, " and ", high);
  // A uniform share of what lies between the bounds, turned back into a number.
  const auto area = [&](double bound) {
    return std::erf((bound - mean) / deviation / std::numbers::sqrt2);
  };
  overwrite(
      x,
      [&] {
        return Tensors{peal::uniform(x.shape(), area(low), area(high), DType::f64, Device{})};
      },
      [=](const Tensors& drawn) {
        double* const begin = drawn[0].data<double>();
        for (double* at = begin; at != begin + drawn[0].numel(); ++at) {
          *at = std::clamp(mean + deviation * std::numbers::sqrt2 * inverse_erf(*at), low, high);
        }
        return drawn[0];
      });
}

double calculate_gain(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::tanh:
      return 5.0 / 3;
    case Nonlinearity::relu:
      return std::sqrt(2.0);
    case Nonlinearity::leaky_relu:
      return std::sqrt(2 / (1 + slope * slope));
    case Nonlinearity::selu:
      return 3.0 / 4;
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid:
      break;
  }
  return 1;
}

void xavier_uniform_(const Tensor& weight, double gain) {
  symmetric_uniform(weight, xavier_deviation("xavier_uniform_", weight, gain));
}
void xavier_normal_(const Tensor& weight, double gain) {
  init::normal_(weight, 0, xavier_deviation("xavier_normal_", weight, gain));
}
void kaiming_uniform_(const Tensor& weight, const KaimingOptions& options) {
  symmetric_uniform(weight, kaiming_deviation("kaiming_uniform_", weight, options));
}
void kaiming_normal_(const Tensor& weight, const KaimingOptions& options) {
  init::normal_(weight, 0, kaiming_deviation("kaiming_normal_", weight, options));
}

void orthogonal_(const Tensor& weight, double gain) {
  check_weight("orthogonal_", weight.shape());
  const std::int64_t rows = weight.size(0), columns = weight.numel() / rows;
  overwrite(
      weight,
      [&] {
        return drawn_normal({std::min(rows, columns), std::max(rows, columns)});
      },
      [shape = weight.shape(), gain](const Tensors& drawn) {
        return orthonormal(drawn[0], shape, gain);
      });
}

}  // namespace peal::nn::init
