// SPDX-License-Identifier: Apache-2.0
// Entries that take lists of tensors: CUDA's kernels against the CPU's, for more tensors than one
// launch takes, of odd sizes, on and off boundaries of 16 bytes.
#include "both.h"

#include <peal/autograd/ops/gradients.h>
#include <peal/autograd/ops/optimizer.h>
#include <peal/tests/errors.h>

#include <algorithm>
#include <limits>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

constexpr Device cpu{}, cuda{DeviceType::cuda, 0};

// More than a launch's sixty; some without elements, one of several chunks.
std::int64_t size_of_number(std::size_t i) {
  return i == 5 ? 20001 : static_cast<std::int64_t>(i * 37 % 300);
}
constexpr std::size_t count = 66;

// Far above the square of any mean, so that a variance does not cancel out.
double mean_square(double x) { return std::abs(x) + 20; }

// Parameters in `dtype`, or masters of such; with as many tensors of state as wanted.
// squares: the first of these is a mean of squares, not below 0.
std::vector<Stepped> parameters(Device device, DType dtype, bool master, int states, bool squares) {
  std::vector<Stepped> list;
  for (std::size_t i = 0; i < count; ++i) {
    const Shape shape{size_of_number(i)};
    const auto seed = static_cast<unsigned>(10 * i);
    const auto shift = static_cast<std::int64_t>(i % 3);
    const DType within = computed_in(dtype);
    const auto place = [&](const Tensor& x, std::int64_t by) { return placed(x, device, by); };
    Stepped each{place(random(within, shape, seed), shift),
                 place(random(dtype, shape, seed + 1), shift),
                 {},
                 {}};
    const Tensor first = random(within, shape, seed + 2);
    if (states > 0) each.first = place(squares ? map(first, mean_square) : first, shift);
    if (states > 1)
      each.second = place(map(random(within, shape, seed + 3), magnitude), i % 2 == 0 ? shift : 0);
    if (states > 2) each.third = place(map(random(within, shape, seed + 5), magnitude), shift);
    if (master) each.rounded = place(random(dtype, shape, seed + 4), 0);
    list.push_back(each);
  }
  return list;
}

template <class Step>
void compare(DType dtype, int states, Step&& step, bool squares = false) {
  const bool master = is_low_precision(dtype);
  CAPTURE(concat(dtype));
  const std::vector<Stepped> expected = parameters(cpu, dtype, master, states, squares);
  const std::vector<Stepped> got = parameters(cuda, dtype, master, states, squares);
  step(kernels(cpu), expected);
  step(kernels(cuda), got);
  for (std::size_t i = 0; i < count; ++i) {
    CAPTURE(i);
    const double bound = bound_of(computed_in(dtype));
    CHECK(distance(got[i].param, expected[i].param) <= bound);
    if (states > 0) CHECK(distance(got[i].first, expected[i].first) <= bound);
    if (states > 1) CHECK(distance(got[i].second, expected[i].second) <= bound);
    if (states > 2) CHECK(distance(got[i].third, expected[i].third) <= bound);
    // Masters apart by less than f32 rounds may round to neighbours.
    if (master) CHECK(distance(got[i].rounded, expected[i].rounded) <= bound_of(dtype));
  }
}

Tensors gradients(Device device, float odd) {
  Tensors list;
  for (std::size_t i = 0; i < count; ++i) {
    const Shape shape{size_of_number(i)};
    const DType dtype = floating_types[i % floating_types.size()];
    Tensor x = random(dtype, shape, static_cast<unsigned>(i));
    if (i == 61 && odd != 0) {
      visit(dtype, [&]<class T>() { x.data<T>()[shape[0] / 2] = static_cast<T>(odd); });
    }
    list.push_back(placed(x, device, static_cast<std::int64_t>(i % 2)));
  }
  return list;
}

}  // namespace

TEST_CASE("steps of SGD and Adam over a list, and of masters") {
  for (const DType dtype : floating_types) {
    compare(dtype, 0, [](const Kernels& table, std::span<const Stepped> list) {
      table.sgd("sgd", list.front().param, list, {.lr = 0.1, .weight_decay = 0.01});
    });
    for (const bool first : {false, true}) {
      if (first && dtype != DType::f32) break;
      compare(dtype, 1, [&](const Kernels& table, std::span<const Stepped> list) {
        table.sgd("sgd", list.front().param, list,
                  {.lr = 0.1,
                   .momentum = 0.9,
                   .dampening = first ? 0 : 0.1,
                   .weight_decay = 0.01,
                   .nesterov = first,
                   .first = first});
      });
    }
    for (const bool decoupled : {false, true}) {
      if (decoupled && dtype != DType::f32) break;
      compare(dtype, 2, [&](const Kernels& table, std::span<const Stepped> list) {
        table.adam("adam", list.front().param, list,
                   {.lr = 0.1, .weight_decay = 0.1, .step = 3, .decoupled = decoupled});
      });
    }
  }
}

TEST_CASE("steps of every rule over a list, and of masters") {
  for (int number = 0; number <= static_cast<int>(Rule::lion); ++number) {
    const auto rule = static_cast<Rule>(number);
    const bool squares = rule >= Rule::rmsprop && rule <= Rule::adadelta;
    CAPTURE(number);
    for (const DType dtype : floating_types) {
      if (dtype != DType::f32 && dtype != DType::bf16 && rule != Rule::amsgrad) continue;
      compare(
          dtype, states_of(rule),
          [&](const Kernels& table, std::span<const Stepped> list) {
            table.rule_step("rule_step", list.front().param, list,
                            {.rule = rule,
                             .rate = 0.1,
                             .weight_decay = 0.01,
                             .shrink = 0.99,
                             .beta1 = 0.8,
                             .beta2 = 0.7,
                             .eps = 0.1,
                             .root_scale = 1.25,
                             .grad_rate = 0.2});
          },
          squares);
    }
  }
}

TEST_CASE("a rule's tensors of state must be there") {
  const Stepped one{
      random(DType::f32, {3}, 1), random(DType::f32, {3}, 2), random(DType::f32, {3}, 3), {}};
  CHECK(error_of([&] {
          rule_step({&one, 1}, {.rule = Rule::adamax});
        }) == "rule_step: rule 7 has 2 tensors of state, and a parameter of shape [3] came with 1");
}

TEST_CASE("a parameter's master and its gradient must fit") {
  const Stepped wrong{
      random(DType::f64, {3}, 1), random(DType::f16, {3}, 2), {}, {}, random(DType::f16, {3}, 3)};
  CHECK(error_of([&] {
          sgd_step({&wrong, 1}, {.lr = 1});
        }) == "sgd_step: a parameter f64 is not the master of one in f16");
  const std::vector<Stepped> mixed = {
      {random(DType::f64, {3}, 1), random(DType::f64, {3}, 2), {}, {}},
      {random(DType::f32, {3}, 1), random(DType::f32, {3}, 2), {}, {}}};
  CHECK(error_of([&] { sgd_step(mixed, {.lr = 1}); }) ==
        "sgd_step: a list of parameters of several types or devices");
}

TEST_CASE("norms of a list") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Tensors here = gradients(cpu, 0), there = gradients(cuda, 0);
  for (const double p : {1.0, 2.0, 3.0, infinity}) {
    CAPTURE(p);
    CHECK(norm_of(there, p) == doctest::Approx(norm_of(here, p)).epsilon(1e-6));
  }
  CHECK(norm_of({}, 2) == 0);
  for (const float odd :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Tensors ill = gradients(cpu, odd), ill_there = gradients(cuda, odd);
    for (const double p : {2.0, infinity}) {
      CHECK(std::isnan(norm_of(ill, p)) == std::isnan(odd));
      CHECK(std::isnan(norm_of(ill_there, p)) == std::isnan(odd));
      CHECK(!std::isfinite(norm_of(ill_there, p)));
    }
  }
}

TEST_CASE("a list clipped to a norm, without a wait") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double p : {1.0, 2.0, infinity}) {
    for (const double most : {0.5, 1e9}) {
      CAPTURE(p);
      CAPTURE(most);
      const Tensors here = gradients(cpu, 0), there = gradients(cuda, 0);
      const Tensor norm = clip_norm(there, p, most);
      CHECK(norm.device() == cuda);
      CHECK(norm.item<double>() ==
            doctest::Approx(clip_norm(here, p, most).item<double>()).epsilon(1e-6));
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(distance(there[i], here[i]) <= std::max(bound_of(here[i].dtype()), 1e-6));
      }
    }
  }
  CHECK(clip_norm({}, 2, 1).item<double>() == 0);
  const Tensors ill = gradients(cuda, std::numeric_limits<float>::quiet_NaN());
  clip_norm(ill, 2, 1);
  CHECK(std::isnan(norm_of({&ill[1], 1}, 2)));
}

TEST_CASE("a factor for a list, and whether all is finite") {
  const Tensors here = gradients(cpu, 0), there = gradients(cuda, 0);
  scale_all(here, 0.25);
  scale_all(there, 0.25);
  for (std::size_t i = 0; i < count; ++i) CHECK(distance(there[i], here[i]) == 0);
  CHECK(scale_all_finite(here, 2));
  CHECK(scale_all_finite(there, 2));
  for (std::size_t i = 0; i < count; ++i) CHECK(distance(there[i], here[i]) == 0);
  for (const Device device : {cpu, cuda}) {
    CHECK_FALSE(scale_all_finite(gradients(device, std::numeric_limits<float>::infinity()), 0.5));
    CHECK_FALSE(scale_all_finite(gradients(device, std::numeric_limits<float>::quiet_NaN()), 0.5));
    CHECK_FALSE(scale_all_finite(gradients(device, 1e4f), 1e36));  // it was finite before
  }
}
