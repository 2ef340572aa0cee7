// SPDX-License-Identifier: Apache-2.0
// Mixed precision overlaps as f32 does: buckets begin while backward goes on, in the same places.
#include <peal/nn/layers/layers.h>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// x, of which backward says when it comes by.
Tensor gate(const Tensor& x, const std::function<void()>& seen) {
  return record("gate", x.detach().clone(), {x}, [=](const Tensor& g) {
    seen();
    return g;
  });
}

struct Layers : nn::Module {
  nn::Linear in = add("in", nn::Linear(3, 3)), middle = add("middle", nn::Linear(3, 3)),
             out = add("out", nn::Linear(3, 2));
  std::shared_ptr<std::function<void()>> seen = std::make_shared<std::function<void()>>();
  Tensor forward(const Tensor& x) override {
    return out(gate(middle(gate(in(gate(x, *seen)), *seen)), *seen));
  }
  Tensor twice(const Tensor& x) { return forward(x) + forward(x); }
};

const nn::MixedPrecision none{}, sums{.param_dtype = DType::bf16, .reduce_dtype = DType::f32},
    hooked{.param_dtype = DType::f16},
    kept{.param_dtype = DType::bf16, .keep_low_precision_grads = true};

using Counts = std::vector<std::uint64_t>;

// Of three steps: how many collectives had begun where backward passed each gate.
Counts begun(const nn::MixedPrecision& settings, bool twice, const Group& group) {
  Layers net;
  make_whole(net);
  DDP ddp(net, group, {.buckets = apart, .order = start_order(net), .mixed_precision = settings});
  Counts counts;
  std::uint64_t before = 0;
  *net.seen = [&] { counts.push_back(group.sequence() - before); };
  const Tensor x = full({2, 3}, 1.);
  x.set_requires_grad();
  for (int step = 0; step < 3; ++step) {
    ddp.zero_grad();
    const Tensor y = cast(twice ? ddp.call(&Layers::twice, x) : ddp(x), DType::f32);
    before = group.sequence();
    sum(y * y).backward();
  }
  return counts;
}

// A hook's buckets have a second collective each, which begins when the first one is over.
void check_at_least(const Counts& counts, const Counts& least) {
  REQUIRE(counts.size() == least.size());
  for (std::size_t i = 0; i < counts.size(); ++i) CHECK(counts[i] >= least[i]);
}

}  // namespace

TEST_CASE("buckets begin in mixed precision where they begin in f32") {
  two([](const Group& group, int) {
    const Counts f32{2, 4, 6, 2, 4, 6, 2, 4, 6};  // before out, middle and in
    CHECK(begun(none, false, group) == f32);
    CHECK(begun(sums, false, group) == f32);
    CHECK(begun(kept, false, group) == f32);
    check_at_least(begun(hooked, false, group), f32);
  });
}

TEST_CASE("parameters that are rounded once and used twice are complete after both uses") {
  two([](const Group& group, int) {
    const Counts f32 = begun(none, true, group);
    REQUIRE(f32.size() == 18);
    CHECK(Counts(f32.begin(), f32.begin() + 6) == Counts{0, 0, 0, 2, 4, 6});
    CHECK(begun(sums, true, group) == f32);
    check_at_least(begun(hooked, true, group), f32);
  });
}
