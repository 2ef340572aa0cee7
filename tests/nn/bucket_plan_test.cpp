// SPDX-License-Identifier: Apache-2.0
// The bucket plan over many parameter lists: each gradient once, none on top of another, caps kept.
#include <peal/autograd/core/rng.h>
#include <peal/nn/parallel/bucket_plan.h>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::nn;

namespace {

std::vector<ParameterSpec> random_parameters(std::uint64_t seed) {
  Generator generator{seed, 0};
  const auto draw = [&](std::uint32_t below) { return generator.reserve(1).word(0) % below; };
  constexpr DType dtypes[] = {DType::f32, DType::f32, DType::f32, DType::f64, DType::bf16};
  std::vector<ParameterSpec> parameters;
  const auto count = draw(40);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Shape shape{static_cast<std::int64_t>(draw(3000)), static_cast<std::int64_t>(draw(20))};
    parameters.push_back({concat("p", i), shape, dtypes[draw(5)], draw(6) != 0});
  }
  return parameters;
}

}  // namespace

TEST_CASE("a thousand random models") {
  const BucketCaps caps{.first_bytes = 20000, .bytes = 100000};
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const auto parameters = random_parameters(seed);
    const auto plan = plan_buckets(parameters, caps);
    std::vector<int> times(parameters.size());
    for (const Bucket& bucket : plan) {
      std::int64_t end = 0;
      int previous = static_cast<int>(parameters.size());
      REQUIRE(!bucket.entries.empty());
      const auto size = static_cast<std::int64_t>(size_of(bucket.dtype));
      for (const auto& [parameter, at] : bucket.entries) {
        const auto& spec = parameters[static_cast<std::size_t>(parameter)];
        CHECK(spec.dtype == bucket.dtype);
        CHECK(at >= end);
        CHECK(at * size % 64 == 0);
        CHECK(parameter < previous);  // in reverse order of registration
        // Whatever came before left room below the cap.
        CHECK(end * size < caps.bytes);
        end = at + spec.shape.numel();
        previous = parameter;
        ++times[static_cast<std::size_t>(parameter)];
      }
      CHECK(bucket.count == end);
    }
    for (std::size_t i = 0; i < parameters.size(); ++i)
      CHECK(times[i] == (parameters[i].requires_grad ? 1 : 0));
    CHECK(plan == plan_buckets(parameters, caps));
  }
}

TEST_CASE("BasicNet: the first bucket closes with fc1, the convolutions follow") {
  const std::vector<ParameterSpec> parameters = {
      {"conv1.weight", {32, 1, 3, 3}},  {"conv1.bias", {32}},
      {"conv2.weight", {64, 32, 3, 3}}, {"conv2.bias", {64}},
      {"fc1.weight", {128, 9216}},      {"fc1.bias", {128}},
      {"fc2.weight", {10, 128}},        {"fc2.bias", {10}}};
  const auto plan = plan_buckets(parameters);
  REQUIRE(plan.size() == 2);
  CHECK(plan[0].entries.size() == 4);
  CHECK(plan[0].entries.back().parameter == 4);
  CHECK(plan[1].entries.front().parameter == 3);
}

TEST_CASE("a bucket closes when it is as large as its cap, which is 1 MiB for the first, then 25") {
  const auto of = [](std::int64_t elements) {
    return ParameterSpec{concat("p", elements), {elements}};
  };
  constexpr std::int64_t mib = (std::int64_t{1} << 20) / 4;  // in elements
  // From the last to the first: 1 MiB closes the first bucket, and 25 MiB the second; 16 elements
  // less than that close none.
  const std::vector<ParameterSpec> parameters{of(1), of(16), of(25 * mib - 16), of(25 * mib),
                                              of(mib)};
  const auto plan = plan_buckets(parameters);
  REQUIRE(plan.size() == 4);
  CHECK(plan[0].count == mib);
  CHECK(plan[1].count == 25 * mib);
  CHECK(plan[2].count == 25 * mib);
  CHECK(plan[3].count == 1);
}

TEST_CASE(
    "last buckets get smaller: none holds more than what comes after it, down to a least size") {
  const std::vector<ParameterSpec> parameters(64, {"p", Shape{16}, peal::DType::f32, true});
  const auto sizes = [&](const peal::nn::BucketCaps& caps) {
    std::vector<std::int64_t> found;
    for (const auto& bucket : plan_buckets(parameters, caps)) found.push_back(bucket.count / 16);
    return found;
  };
  constexpr std::int64_t one = 64;  // bytes
  using Sizes = std::vector<std::int64_t>;
  CHECK(sizes({one, 24 * one, 0}) == Sizes{1, 24, 24, 15});
  CHECK(sizes({one, 24 * one, 3 * one}) == Sizes{1, 24, 20, 10, 5, 3, 1});
  CHECK(sizes({one, 24 * one, one}) == Sizes{1, 24, 20, 10, 5, 2, 1, 1});
  CHECK(sizes({one, 24 * one, 100 * one}) == Sizes{1, 24, 24, 15});
  // Each type's own rest counts, and what is delayed is not what a bucket before it waits for.
  std::vector<ParameterSpec> mixed = parameters;
  for (std::size_t i = 0; i < 32; ++i) mixed[i].delayed = true;
  const auto plan = plan_buckets(mixed, {one, 24 * one, 3 * one});
  std::vector<std::int64_t> found;
  for (const auto& bucket : plan) found.push_back(bucket.count / 16);
  CHECK(found == Sizes{1, 16, 8, 4, 3, 16, 8, 4, 3, 1});
  CHECK_THROWS_AS(plan_buckets(parameters, {one, one, -1}), peal::Error);
}

TEST_CASE("a bucket has gradients of one type on one device, and each kind has a small first one") {
  std::vector<ParameterSpec> parameters;
  for (int i = 0; i < 24; ++i) {
    parameters.push_back({.name = concat("p", i),
                          .shape = {64},
                          .dtype = i % 2 == 0 ? DType::f32 : DType::f64,
                          .part = i / 2 % 3});
  }
  const auto plan = plan_buckets(parameters, {.first_bytes = 1, .bytes = 600});
  for (const Bucket& bucket : plan) {
    for (const auto& entry : bucket.entries) {
      const ParameterSpec& spec = parameters[static_cast<std::size_t>(entry.parameter)];
      CHECK(spec.dtype == bucket.dtype);
      CHECK(spec.part == bucket.part);
    }
  }
  REQUIRE(plan.size() >= 6);
  for (std::size_t b = 0; b < 6; ++b) CHECK(plan[b].entries.size() == 1);  // the last six, by kind
  for (std::size_t b = 0; b < 6; ++b) {
    for (std::size_t other = 0; other < b; ++other) {
      CHECK((plan[b].dtype != plan[other].dtype || plan[b].part != plan[other].part));
    }
  }
  const std::string text = describe(parameters, plan);
  CHECK(text.find("parameter p2 f32 [64], device 1 of the model\n") != std::string::npos);
  CHECK(text.find("parameter p0 f32 [64]\n") != std::string::npos);
}
