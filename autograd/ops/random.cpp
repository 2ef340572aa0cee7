// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/core/in_place.h>
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/counting.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/order.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/random.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/scan.h>
#include <peal/autograd/ops/shape.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

namespace peal {
namespace {

// These two: `op` is text of the program's, as it may be looked at later.
void fill_uniform(std::string_view op, const Tensor& x, double low, double high,
                  Generator& generator) {
  check_floating(op, x);
  PEAL_CHECK(low <= high, op, ": expected low <= high, got [", low, ", ", high, ")");
  const RandomRange words = generator.reserve(static_cast<std::uint64_t>(x.numel()));
  const auto fill = [op, words, low, high](const Tensor& all) {
    kernels(all.device()).uniform(op, all, all, words, low, high);
  };
  if (!defer_write(x, fill)) fill(x);
}

void fill_normal(std::string_view op, const Tensor& x, Generator& generator) {
  check_floating(op, x);
  const RandomRange words = generator.reserve(static_cast<std::uint64_t>(x.numel() + 1));
  const auto fill = [op, words](const Tensor& all) {
    kernels(all.device()).normal(op, all, all, words);
  };
  if (!defer_write(x, fill)) fill(x);
}

// f64 in [0, 1), of 48 random bits: two draws of 24, exactly.
Tensor fine_uniform(std::string_view op, const Shape& shape, Device device, Generator& generator) {
  const Tensor high = Tensor::empty(shape, DType::f64, device),
               low = Tensor::empty(shape, DType::f64, device);
  fill_uniform(op, high, 0, 1, generator);
  fill_uniform(op, low, 0, 1, generator);
  return high + low * 0x1p-24;
}

// On a CPU, where the host has the elements at hand; a NaN is no number from `low` to `high`.
void check_each(std::string_view op, const char* what, const Tensor& x, double low, double high) {
  if (x.device().type != DeviceType::cpu) return;
  const NoGrad guard;
  PEAL_CHECK(all(logical_and(ge(x, low), le(x, high))).item<bool>(), op, ": expected ", what,
             " from ", low, " to ", high, ", and one of shape ", x.shape(), " is none");
}

// f64 in [0, infinity), of rate 1.
Tensor exponentials(std::string_view op, const Shape& shape, Device device, Generator& generator) {
  return neg(log(1 - fine_uniform(op, shape, device, generator)));
}

}  // namespace

Tensor uniform(const Shape& shape, double low, double high, DType dtype, Device device,
               Generator& generator) {
  const OpName op("uniform");
  const Tensor out = empty_or_deferred(shape, dtype, device);
  fill_uniform("uniform", out, low, high, generator);
  return out;
}
Tensor rand(const Shape& shape, DType dtype, Device device, Generator& generator) {
  const OpName op("rand");
  const Tensor out = empty_or_deferred(shape, dtype, device);
  fill_uniform("rand", out, 0, 1, generator);
  return out;
}
Tensor rand_like(const Tensor& x, Generator& generator) {
  return rand(x.shape(), x.dtype(), x.device(), generator);
}

Tensor randn(const Shape& shape, DType dtype, Device device, Generator& generator) {
  const OpName op("randn");
  const Tensor out = empty_or_deferred(shape, dtype, device);
  fill_normal("randn", out, generator);
  return out;
}
Tensor randn_like(const Tensor& x, Generator& generator) {
  return randn(x.shape(), x.dtype(), x.device(), generator);
}

Tensor normal(double mean, double deviation, const Shape& shape, DType dtype, Device device,
              Generator& generator) {
  const OpName op("normal");
  PEAL_CHECK(deviation >= 0, "normal: a deviation must not be negative, got ", deviation);
  return randn(shape, dtype, device, generator) * deviation + mean;
}
Tensor normal(const Tensor& mean, const Tensor& deviation, Generator& generator) {
  const OpName op("normal");
  check_alike("normal", mean, deviation);
  check_each("normal", "deviations", deviation, 0, INFINITY);
  const Shape shape = broadcast("normal", mean.shape(), deviation.shape());
  return randn(shape, mean.dtype(), mean.device(), generator) * deviation.detach() + mean.detach();
}
Tensor normal(const Tensor& mean, double deviation, Generator& generator) {
  const OpName op("normal");
  PEAL_CHECK(deviation >= 0, "normal: a deviation must not be negative, got ", deviation);
  return randn_like(mean, generator) * deviation + mean.detach();
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, DType dtype, Device device,
               Generator& generator) {
  const OpName op("randint");
  PEAL_CHECK(low < high, "randint: expected low < high, got [", low, ", ", high, ")");
  const double span = static_cast<double>(high) - static_cast<double>(low);
  const Tensor drawn = fine_uniform("randint", shape, device, generator) * span;
  constexpr double half = 9223372036854775808.0;  // 2^63, past which there is no i64
  if (span <= half) return cast(cast(drawn, DType::i64) + low, dtype);
  constexpr std::int64_t quarter = std::int64_t{1} << 62;
  return cast(cast(floor(drawn - half), DType::i64) + (low + quarter + quarter), dtype);
}
Tensor randint(std::int64_t high, const Shape& shape, DType dtype, Device device,
               Generator& generator) {
  return randint(0, high, shape, dtype, device, generator);
}

Tensor randperm(std::int64_t n, DType dtype, Device device, Generator& generator) {
  const OpName op("randperm");
  PEAL_CHECK(n >= 0, "randperm: a count must not be negative, got ", n);
  PEAL_CHECK(generator.shift == nullptr, "randperm: the host draws, which a graph cannot replay");
  const RandomRange words = generator.reserve(2 * static_cast<std::uint64_t>(n));
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  PhiloxBlock block{};
  for (std::size_t i = order.size(); i > 1; --i) {
    // Two words an element, of a block of four that is made once.
    const std::uint64_t at = 2 * (order.size() - i);
    if (at % 4 == 0) block = philox(words.seed, (words.offset + at) / 4);
    const std::uint64_t word = std::uint64_t{block.word[at % 4]} << 32 | block.word[at % 4 + 1];
    std::swap(order[i - 1], order[static_cast<std::size_t>(word % i)]);
  }
  return cast(Tensor::from(order, {n}, device), dtype);
}

Tensor bernoulli(const Tensor& x, Generator& generator) {
  const OpName op("bernoulli");
  check_floating("bernoulli", x);
  check_each("bernoulli", "probabilities", x, 0, 1);
  return cast(lt(fine_uniform("bernoulli", x.shape(), x.device(), generator), x.detach()),
              x.dtype());
}

Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement,
                   Generator& generator) {
  const OpName op("multinomial");
  check_floating("multinomial", weights);
  PEAL_CHECK(weights.dim() == 1 || weights.dim() == 2,
             "multinomial: expected weights [n] or [rows, n], got shape ", weights.shape());
  PEAL_CHECK(samples >= 1, "multinomial: expected at least 1 sample, got ", samples);
  if (weights.dim() == 1) {
    return squeeze(multinomial(unsqueeze(weights, 0), samples, replacement, generator), 0);
  }
  const Tensor p = cast(weights.detach(), DType::f64);
  const std::int64_t rows = p.size(0), n = p.size(1);
  if (rows == 0) return Tensor::empty({0, samples}, DType::i64, p.device());
  PEAL_CHECK(n > 0, "multinomial: no weights in shape ", weights.shape());
  const Tensor wrong = cast(logical_not(ge(p, 0)) | eq(p, INFINITY), DType::i64);
  PEAL_CHECK(sum(wrong).item<std::int64_t>() == 0,
             "multinomial: a weight is negative, infinite or NaN");
  const std::int64_t least = min(sum(cast(gt(p, 0), DType::i64), {1})).item<std::int64_t>();
  const std::int64_t wanted = replacement ? 1 : samples;
  PEAL_CHECK(least >= wanted, "multinomial: ", wanted,
             " different indices are wanted of each row, ", "and one has ", least, " of ", n,
             " weights above 0");
  if (!replacement && samples > 1) {
    // The order of exponential times of these rates is that of draws without replacement.
    return topk(p / exponentials("multinomial", p.shape(), p.device(), generator), samples).indices;
  }
  const Tensor sums = cumsum(p, 1);
  const Tensor at = fine_uniform("multinomial", {rows, samples}, p.device(), generator) *
                    narrow(sums, 1, n - 1, 1);
  return searchsorted(sums, at, true);
}

void uniform_(const Tensor& x, double low, double high, Generator& generator) {
  const OpName op("uniform_");
  check_in_place("uniform_", x);
  fill_uniform("uniform_", x, low, high, generator);
  x.storage()->bump_version();
}
void normal_(const Tensor& x, double mean, double deviation, Generator& generator) {
  const OpName op("normal_");
  check_in_place("normal_", x);
  check_floating("normal_", x);
  if (is_deferred(x)) {
    PEAL_CHECK(deviation >= 0, "normal: a deviation must not be negative, got ", deviation);
    const DeferInit scope;
    const Tensor drawn = randn(x.shape(), x.dtype(), x.device(), generator);
    defer_write(x, [drawn, mean, deviation](const Tensor& all) {
      all.copy_(materialized(drawn) * deviation + mean);
    });
    return x.storage()->bump_version();
  }
  x.detach().copy_(normal(mean, deviation, x.shape(), x.dtype(), x.device(), generator));
}
void bernoulli_(const Tensor& x, double probability, Generator& generator) {
  const OpName op("bernoulli_");
  check_in_place("bernoulli_", x);
  PEAL_CHECK(probability >= 0 && probability <= 1, "bernoulli_: ", probability,
             " is no probability");
  const Tensor u = fine_uniform("bernoulli_", x.shape(), x.device(), generator);
  x.detach().copy_(cast(lt(u, probability), x.dtype()));
}
void exponential_(const Tensor& x, double rate, Generator& generator) {
  const OpName op("exponential_");
  check_in_place("exponential_", x);
  check_floating("exponential_", x);
  PEAL_CHECK(rate > 0, "exponential_: a rate must be above 0, got ", rate);
  const Tensor drawn = exponentials("exponential_", x.shape(), x.device(), generator) / rate;
  x.detach().copy_(cast(drawn, x.dtype()));
}
void random_(const Tensor& x, std::int64_t low, std::int64_t high, Generator& generator) {
  const OpName op("random_");
  check_in_place("random_", x);
  PEAL_CHECK(low < high, "random_: expected low < high, got [", low, ", ", high, ")");
  visit(x.dtype(), [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      // In i64: not every one is a double.
      const auto least = static_cast<std::int64_t>(std::numeric_limits<T>::min()),
                 most = static_cast<std::int64_t>(std::numeric_limits<T>::max());
      PEAL_CHECK(low >= least, "random_: ", low, " is not a value of ", x.dtype());
      PEAL_CHECK(high - 1 <= most, "random_: ", high - 1, " is not a value of ", x.dtype());
    }
  });
  x.detach().copy_(randint(low, high, x.shape(), x.dtype(), x.device(), generator));
}

void uniform_(Tensor&& x, double low, double high, Generator& generator) {
  check_temporary("uniform_", x);
  uniform_(static_cast<const Tensor&>(x), low, high, generator);
}
void normal_(Tensor&& x, double mean, double deviation, Generator& generator) {
  check_temporary("normal_", x);
  normal_(static_cast<const Tensor&>(x), mean, deviation, generator);
}
void bernoulli_(Tensor&& x, double probability, Generator& generator) {
  check_temporary("bernoulli_", x);
  bernoulli_(static_cast<const Tensor&>(x), probability, generator);
}
void exponential_(Tensor&& x, double rate, Generator& generator) {
  check_temporary("exponential_", x);
  exponential_(static_cast<const Tensor&>(x), rate, generator);
}
void random_(Tensor&& x, std::int64_t low, std::int64_t high, Generator& generator) {
  check_temporary("random_", x);
  random_(static_cast<const Tensor&>(x), low, high, generator);
}

}  // namespace peal
