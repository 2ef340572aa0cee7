// SPDX-License-Identifier: Apache-2.0
// What ops could take by the machine's ceilings, and the costs that lists and types have.
#include <doctest/doctest.h>
#include <peal/autograd/ops/gradients.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/ops/optimizer.h>
#include <peal/autograd/profile.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>

using namespace peal;

namespace {

// Of the only op that f() runs outside of others.
template <class F>
OpCost cost_in(F&& f) {
  context().trace = std::make_shared<Trace>();
  f();
  const auto rows = context().trace->rows();
  context().trace.reset();
  REQUIRE(rows.size() == 1);
  return rows[0].forward.cost;
}

constexpr double f32_bytes = 4;

const Ceilings some{100e9, 400e9, {{1e6, 50e9}, {1e9, 10e9}}};

}  // namespace

TEST_CASE("the least time is that of the ceiling which binds") {
  const auto check = [](const Least& least, double seconds, std::string_view by) {
    CHECK(least.seconds == doctest::Approx(seconds));
    CHECK(least.by == by);
  };
  check(least_time({50e9, 1e9}, 1, some), 0.5, "f32");
  check(least_time({50e9, 1e9, 50e9}, 1, some), 0.125, "bf16");
  check(least_time({50e9, 1e9, 45e9}, 1, some), 0.1625, "bf16");  // one after the other
  check(least_time({50e9, 1e9, 10e9}, 1, some), 0.425, "f32");
  check(least_time({1e9, 10e9}, 1, some), 1.0, "bytes");
  check(least_time({}, 1, some), 0.0, "");
  // The same bytes in many calls lie nearer.
  check(least_time({1e9, 10e9}, 10, some), 1.0, "bytes");
  check(least_time({1e9, 10e9}, 10000, some), 0.2, "bytes");
  // More than was measured: as the largest.
  check(least_time({0, 1e12}, 1, some), 100.0, "bytes");
  check(least_time({1, 1}, 1, Ceilings{}), 0.0, "");
}

TEST_CASE("the table has the largest gap first, not the longest op") {
  const auto trace = std::make_shared<Trace>();
  context().trace = trace;
  const auto run = [](std::string_view name, int ms, const OpCost& cost) {
    TraceSpan span(name);
    TraceSpan::add(cost);
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  };
  run("near", 20, {100e9, 0});  // could take a second
  run("far", 2, {0, 0});
  run("between", 1, {50e9, 0});  // half a second
  context().trace.reset();
  const std::string table = profile_table(*trace, 1, some);
  CAPTURE(table);
  const auto at = [&](const char* name) { return table.find(name); };
  REQUIRE(at("\nsum") != std::string::npos);
  CHECK(at("\nfar") < at("\nbetween"));
  CHECK(at("\nbetween") < at("\nnear"));
  CHECK(at("\nnear") < at("\nsum"));
  CHECK(table.find(" 1000.000 f32 ") != std::string::npos);
  CHECK(table.find(" 1500.000 ") != std::string::npos);  // of all
}

TEST_CASE("lists: what is changed is read and written") {
  const double n = 35;
  const auto made = [] { return Tensor::zeros({5, 7}); };
  const Tensor p = made(), g = made(), m = made(), v = made(), third = made();
  CHECK(cost_in([&] { adam_step(p, g, m, v, {}); }) == OpCost{n, 7 * f32_bytes * n});
  CHECK(cost_in([&] { sgd_step(p, g, {}, {.lr = 1}); }) == OpCost{n, 3 * f32_bytes * n});
  const Stepped all{p, g, m, v, {}, third};
  CHECK(cost_in([&] {
          rule_step({&all, 1}, {.rule = Rule::amsgrad});
        }) == OpCost{n, 9 * f32_bytes * n});
  const Stepped low{p, Tensor::zeros({5, 7}, DType::bf16), m, v,
                    Tensor::zeros({5, 7}, DType::bf16)};
  CHECK(cost_in([&] { adam_step({&low, 1}, {}); }) == OpCost{n, (6 * f32_bytes + 2 * 2) * n});
  const Tensors list{p, g};
  CHECK(cost_in([&] { clip_norm(list, 2, 1); }) == OpCost{2 * n, 2 * f32_bytes * n + 8});
  CHECK(cost_in([&] { norm_of(list, 2); }) == OpCost{2 * n, 2 * f32_bytes * n + 8});
  CHECK(cost_in([&] { scale_all(list, 2); }) == OpCost{2 * n, 4 * f32_bytes * n});
  CHECK(cost_in([&] { add_(p, g); }) == OpCost{n, 3 * f32_bytes * n});
}

TEST_CASE("products of two-byte numbers are counted apart, elementwise work on them is not") {
  const Tensor a = Tensor::zeros({3, 5}, DType::bf16), b = Tensor::zeros({5, 7}, DType::bf16);
  const double flops = 2 * 3 * 5 * 7;
  CHECK(cost_in([&] { matmul(a, b); }) == OpCost{flops, 2 * (15 + 35 + 21), flops});
  CHECK(cost_in([&] { matmul(ones({3, 5}), ones({5, 7})); }).low_flops == 0);
  CHECK(cost_in([&] { relu(a); }) == OpCost{15, 2 * 30});
  const Tensor x = Tensor::zeros({1, 2, 4, 4}, DType::bf16),
               w = Tensor::zeros({3, 2, 3, 3}, DType::bf16);
  const OpCost windows = cost_in([&] { conv2d(x, w); });
  CHECK(windows.flops == 2 * (3 * 2 * 2) * (2 * 3 * 3));
  CHECK(windows.low_flops == windows.flops);
}

TEST_CASE("a loss of classes reads an element of a row, unless the target is smoothed") {
  const Tensor logs = Tensor::zeros({6, 100}), target = Tensor::zeros({6}, DType::i64);
  const auto bytes = [&](const auto& loss) { return cost_in(loss).bytes; };
  CHECK(bytes([&] { nll_loss(logs, target, Reduction::none); }) == 6 * (4 + 8 + 4));
}

TEST_CASE("the ceilings of this machine are there") {
  const Ceilings here = measure_ceilings();
  CHECK(here.flops > 0);
  CHECK(here.low_flops > 0);
  REQUIRE(here.traffic.size() >= 2);
  double before = 0;
  for (const auto& [operands, bytes] : here.traffic) {
    CHECK(operands > before);
    CHECK(bytes > 0);
    before = operands;
  }
  CHECK(here.bytes(1) == here.traffic.front().bytes);
  CHECK(here.bytes(1e15) == here.traffic.back().bytes);
}
