// SPDX-License-Identifier: Apache-2.0
// Answers to the exercises 4 to 6 of docs/book/12-pipelines.md.
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/parallel/tensor/layers.h>

#include <doctest/doctest.h>

#include <vector>

namespace {

using namespace peal;

// The collectives of a step through two layers that follow each other.
template <class First, class Second>
std::uint64_t calls_of(First make_first, Second make_second) {
  std::uint64_t calls = 0;
  comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
    manual_seed(1);
    auto first = make_first(group);
    auto second = make_second(group);
    const Tensor x = ones({4, 8}).set_requires_grad();
    const auto before = group.counters();
    sum(second(relu(first(x)))).backward();
    const auto sent = group.counters() - before;
    if (group.rank() > 0) return;
    for (const comm::Collective what : comm::all_collectives) calls += sent[what].calls;
  });
  return calls;
}

}  // namespace

TEST_CASE("12.4: columns, then rows: two collectives; the other way round four") {
  const auto good =
      calls_of([](const auto& group) { return nn::ColumnParallelLinear(8, 16, group); },
               [](const auto& group) { return nn::RowParallelLinear(16, 8, group); });
  const auto bad = calls_of(
      [](const auto& group) {
        return nn::RowParallelLinear(8, 16, group, {.input_is_parallel = false});
      },
      [](const auto& group) {
        return nn::ColumnParallelLinear(16, 8, group, {.gather_output = true});
      });
  CHECK(good == 2);  // the sum of y, and back that of x's gradient
  CHECK(bad == 4);   // h is summed and y gathered, and back h's gradient is summed and x's gathered
}

TEST_CASE("12.5: with sums that are not linear in between, parts cannot be added up") {
  // relu(a) + relu(b) is not relu(a + b): so a layer that is cut by rows ends with its sum, before
  // what follows.
  const Tensor a = tensor({1.0, -3.0}), b = tensor({-2.0, 4.0});
  CHECK(!equal(relu(a) + relu(b), relu(a + b)));
}

TEST_CASE("12.6: without parts a rank would have all queries, and no values") {
  // Queries, keys and values of two heads, a number each: 0 1, 2 3, 4 5.
  const Tensor qkv = arange(0, 6, 1, DType::f32).reshape({6, 1});
  const nn::Cut together{.whole = {6, 1}, .dim = 0, .parts = 1},
      apart{.whole = {6, 1}, .dim = 0, .parts = 3};
  CHECK(part_of(qkv, together, 0, 2).to_vector<float>() == std::vector<float>{0, 1, 2});
  CHECK(part_of(qkv, apart, 0, 2).to_vector<float>() == std::vector<float>{0, 2, 4});
}
