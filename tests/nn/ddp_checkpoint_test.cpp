// SPDX-License-Identifier: Apache-2.0
// Checkpointed layers under DDP: every parameter is reduced once, with the whole gradient.
#include <peal/autograd/checkpoint.h>
#include <peal/nn/layers/layers.h>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Two layers of one weight, checkpointed apart or together, and one that only the first rank uses.
struct Tied : nn::Module {
  nn::Linear shared = add("shared", nn::Linear(3, 3));
  nn::Linear head = add("head", nn::Linear(3, 2));
  nn::Linear extra = add("extra", nn::Linear(3, 2));
  bool checkpointed = true, nested = false;
  bool with_extra = true;

  template <class F>
  Tensor run(const F& f, const Tensor& x) {
    return checkpointed ? checkpoint(f, x) : f(x);
  }
  Tensor forward(const Tensor& x) override {
    const auto layer = [this](const Tensor& in) { return shared(in); };
    const auto two = [&, this](const Tensor& in) { return run(layer, run(layer, in)); };
    const Tensor h = nested
                         ? run(
                               [this](const Tensor& in) {
                                 const auto inner = [this](const Tensor& t) { return shared(t); };
                                 return run(inner, run(inner, in));
                               },
                               x)
                         : two(x);
    const Tensor y = run([this](const Tensor& in) { return head(in); }, h);
    return with_extra ? y + run([this](const Tensor& in) { return extra(in); }, h) : y;
  }
};

}  // namespace

TEST_CASE("checkpointed layers, tied, nested and unused ones, are averaged as others") {
  for (const bool nested : {false, true}) {
    CAPTURE(nested);
    two([&](const Group& group, int rank) {
      Twins<Tied> pair(group, {.buckets = apart, .find_unused_parameters = true}, [&](Tied& model) {
        model.nested = nested;
        model.with_extra = rank == 0;
      });
      pair.alone.checkpointed = false;
      pair.alone.nested = nested;
      pair.alone.with_extra = rank == 0;
      for (int step = 0; step < 2; ++step) {
        pair.ddp->zero_grad();
        pair.alone.zero_grad();
        loss(*pair.ddp, rank + 1).backward();
        loss(pair.alone, rank + 1).backward();
        if (rank == 1) {
          for (const Tensor& p : pair.alone.extra.parameters()) {
            sum(p * 0).backward();
          }
        }
        check_averaged(pair.model, pair.alone, group);
      }
    });
  }
}
