// SPDX-License-Identifier: Apache-2.0
// The profiler: work of known shapes to the last operation, totals that add up, a picture's JSON
// that parses, and nothing recorded where nobody asked.
#include <doctest/doctest.h>
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/profile.h>

#include <map>
#include <memory>
#include <thread>

#include <nlohmann/json.hpp>

using namespace peal;

namespace {

// What f() leaves in a Trace of its own.
template <class F>
std::map<std::string, Trace::Row> rows_of(F&& f) {
  context().trace = std::make_shared<Trace>();
  f();
  std::map<std::string, Trace::Row> rows;
  for (const Trace::Row& row : context().trace->rows()) rows[row.name] = row;
  context().trace.reset();
  return rows;
}

Tensor leaf(const Shape& shape) {
  const Tensor x = randn(shape);
  x.set_requires_grad();
  return x;
}

constexpr double f32 = 4;  // bytes

}  // namespace

TEST_CASE("a matrix product: 2 M N K, forward once and backward twice") {
  const Tensor a = leaf({3, 5}), b = leaf({5, 7});
  const auto rows = rows_of([&] { sum(matmul(a, b)).backward(); });
  const Trace::Row& row = rows.at("matmul");
  CHECK(row.forward.calls == 1);
  CHECK(row.backward.calls == 1);
  CHECK(row.forward.cost == OpCost{2 * 3 * 5 * 7, f32 * (15 + 35 + 21)});
  CHECK(row.backward.cost == OpCost{2 * 2 * 3 * 5 * 7, f32 * 2 * (15 + 35 + 21)});

  const Tensor many = leaf({4, 3, 5}), transposed = randn({4, 7, 5});
  const auto batch = rows_of([&] { sum(matmul(many, transposed, false, true)).backward(); });
  CHECK(batch.at("matmul").forward.cost.flops == 4 * 2 * 3 * 5 * 7);
  CHECK(batch.at("matmul").backward.cost.flops == 4 * 2 * 3 * 5 * 7);  // to one operand alone
}

TEST_CASE("linear: the bias is an addition an output, and a sum backward") {
  const Tensor x = randn({6, 5}), w = leaf({7, 5}), b = leaf({7});
  const auto rows = rows_of([&] { sum(linear(x, w, b)).backward(); });
  CHECK(rows.at("linear").forward.cost == OpCost{6 * 7 * (2 * 5 + 1), f32 * (30 + 35 + 7 + 42)});
  CHECK(rows.at("linear").backward.cost.flops == 6 * 7 * 2 * 5 + 42);
}

TEST_CASE("convolutions: windows, strides, groups") {
  const Tensor x = leaf({2, 4, 9, 8}), w = leaf({6, 4, 3, 3}), b = leaf({6});
  const double windows = 2.0 * 6 * 7 * 6, products = 2 * windows * 4 * 3 * 3;
  auto rows = rows_of([&] { sum(conv2d(x, w, b)).backward(); });
  CHECK(rows.at("conv2d").forward.cost ==
        OpCost{products + windows, f32 * (2 * 4 * 9 * 8 + 6 * 4 * 9 + 6 + windows)});
  CHECK(rows.at("conv2d").backward.cost.flops == 2 * products + windows);

  const Tensor input = randn({2, 4, 9, 8}), grouped = leaf({6, 2, 3, 3});
  rows = rows_of([&] {
    sum(conv2d(input, grouped, {}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2})).backward();
  });
  const double fewer = 2 * (2.0 * 6 * 5 * 4) * 2 * 3 * 3;
  CHECK(rows.at("conv2d").forward.cost.flops == fewer);
  CHECK(rows.at("conv2d").backward.cost.flops == fewer);  // the input needs no gradient
}

TEST_CASE("attention: a causal query sees the keys up to its own") {
  const Tensor q = leaf({2, 5, 12}), k = leaf({2, 5, 12}), v = leaf({2, 5, 12});
  const auto costs = [&](bool causal) {
    return rows_of([&] { sum(scaled_dot_product_attention(q, k, v, 3, causal)).backward(); })
        .at("scaled_dot_product_attention");
  };
  CHECK(costs(false).forward.cost.flops == 2 * (2.0 * 2 * 5 * 5 * 12));
  CHECK(costs(false).backward.cost.flops == 4 * (2.0 * 2 * 5 * 5 * 12));
  CHECK(costs(true).forward.cost.flops == 2 * (2.0 * 2 * 15 * 12));
  const auto rows = rows_of([&] { sum(self_attention(leaf({2, 5, 36}), 3, true)).backward(); });
  CHECK(rows.at("self_attention").forward.cost.flops == 2 * (2.0 * 2 * 15 * 12));
  CHECK(rows.at("self_attention").backward.cost.flops == 4 * (2.0 * 2 * 15 * 12));
}

TEST_CASE("elementwise: an operation an element, each operand's bytes once") {
  const Tensor a = randn({8, 16}), row = randn({16});
  const auto rows = rows_of([&] { relu(a + row); });
  CHECK(rows.at("add").forward.cost == OpCost{128, f32 * (128 + 16 + 128)});
  CHECK(rows.at("relu").forward.cost == OpCost{128, f32 * 256});
  const auto half = rows_of([&] { transpose(a, 0, 1); });
  CHECK(half.begin()->second.forward.cost == OpCost{0, f32 * 256});
}

TEST_CASE("spans inside a span are its own: the rows of a thread fit into its time") {
  const auto start = Trace::Clock::now();
  const auto rows = rows_of([&] {
    const Tensor x = leaf({32, 10}), w = leaf({10, 10});
    const Tensor target = Tensor::from<std::int64_t>(std::vector<std::int64_t>(32, 3), {32});
    cross_entropy(linear(tanh(x), w), target).backward();
    TraceSpan outer("outer");
    const Tensor product = matmul(x, w);
    TraceSpan inner("inner");
    matmul(product, w);
  });
  const std::chrono::duration<double> passed = Trace::Clock::now() - start;
  double seconds = 0;
  for (const auto& [name, row] : rows) seconds += row.seconds();
  CHECK(seconds > 0);
  CHECK(seconds <= passed.count());
  CHECK(rows.contains("cross_entropy"));
  CHECK_FALSE(rows.contains("inner"));
  CHECK_FALSE(rows.contains("matmul"));
  CHECK(rows.at("outer").forward.cost.flops == 2 * (2.0 * 32 * 10 * 10));
  CHECK(rows.at("tanh").backward.calls == 1);
}

TEST_CASE("where no trace is, nothing records") {
  CHECK_FALSE(TraceSpan::recording());
  {
    TraceSpan span("one");
    CHECK_FALSE(TraceSpan::recording());
  }
  context().trace = std::make_shared<Trace>();
  CHECK_FALSE(TraceSpan::recording());
  {
    TraceSpan span("one");
    CHECK(TraceSpan::recording());
  }
  CHECK_FALSE(TraceSpan::recording());
  context().trace.reset();
}

TEST_CASE("the picture: every span as an event, inner ones inside outer ones") {
  const auto trace = std::make_shared<Trace>(/*most_events=*/5);
  context().trace = trace;
  {
    TraceSpan outer("outer \"quoted\"", true);
    matmul(ones({2, 3}), ones({3, 2}));
  }
  std::thread(with_context([] { TraceSpan span("elsewhere"); })).join();
  for (int i = 0; i < 4; ++i) TraceSpan span("more");
  context().trace.reset();

  const auto json = nlohmann::json::parse(trace->json("rank \"0\""));
  CHECK(json["otherData"]["spans left out"] == 2);  // of matmul, outer, elsewhere, 4 more
  std::map<std::string, nlohmann::json> events;
  int spans = 0, counters = 0;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "M") CHECK(event["args"]["name"] == "rank \"0\"");
    counters += event["ph"] == "C";
    if (event["ph"] != "X") continue;
    ++spans;
    events[event["name"]] = event;
  }
  CHECK(spans == 5);
  CHECK(counters == 5);
  const auto& outer = events.at("outer \"quoted\"");
  const auto& inner = events.at("matmul");
  CHECK(outer["cat"] == "backward");
  CHECK(inner["args"]["flops"] == 2 * 2 * 3 * 2);
  CHECK(outer["args"]["flops"] >= 2 * 2 * 3 * 2);
  CHECK(outer["tid"] == inner["tid"]);
  CHECK(events.at("elsewhere")["tid"] != outer["tid"]);
  // Written to a nanosecond, so compared to two.
  CHECK(outer["ts"].get<double>() <= inner["ts"].get<double>() + 0.002);
  CHECK(outer["ts"].get<double>() + outer["dur"].get<double>() >=
        inner["ts"].get<double>() + inner["dur"].get<double>() - 0.002);
}

TEST_CASE("the report names ops, rates and memory") {
  context().trace = std::make_shared<Trace>();
  const Tensor w = leaf({64, 64});
  for (int step = 0; step < 4; ++step) sum(matmul(w, w)).backward();
  const std::string report = profile_report(*context().trace, 4);
  context().trace.reset();
  for (const char* part : {"op ", "GFLOP/s", "could", "reached", "\nmatmul ", "\nsum ",
                           "ceilings of", "in bf16", "memory: tensors"}) {
    CAPTURE(report);
    CHECK(report.find(part) != std::string::npos);
  }
}

TEST_CASE("memory: the marks only rise, and a large tensor is seen") {
  const MemoryMarks before = memory_marks();
  const std::size_t in_use = cpu_allocator_statistics().in_use;
  const Tensor large = ones({1 << 22});
  const MemoryMarks after = memory_marks();
  CHECK(after.tensors >= in_use + (std::size_t{1} << 24));
  CHECK(after.resident >= before.resident);
  CHECK(after.resident > std::size_t{1} << 24);
}
