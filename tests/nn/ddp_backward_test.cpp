// SPDX-License-Identifier: Apache-2.0
// Backwards of other kinds under DDP: one inside another, on several threads, given up alike on all
// ranks.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>

#include <thread>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Two steps, of a model that `set` has set up.
template <class M>
void train_twice(const Group& group, int rank, const nn::BucketCaps& caps,
                 const std::function<void(M&)>& set) {
  Twins<M> pair(group, {.buckets = caps}, set);
  for (int k = 0; k < 2; ++k) {
    pair.model.zero_grad();
    pair.alone.zero_grad();
    loss(*pair.ddp, rank + 1).backward();
    loss(pair.alone, rank + 1).backward();
    check_averaged(pair.model, pair.alone, group);
  }
}

struct Deep : nn::Module {
  nn::Linear stem = add("stem", nn::Linear(3, 3));
  nn::Sequential body = add("body", nn::mlp({3, 4, 3}));
  nn::Linear head = add("head", nn::Linear(3, 2));
  bool recompute = false;
  Tensor forward(const Tensor& x) override {
    const Tensor y = stem(x);
    return head(recompute ? again(body, y) : body(y));
  }
};

}  // namespace

TEST_CASE("a backward inside a backward is a part of the same step") {
  two([](const Group& group, int rank) {
    for (const nn::BucketCaps& caps : {nn::BucketCaps{}, apart}) {
      train_twice<Deep>(group, rank, caps, [](Deep& model) { model.recompute = true; });
    }
  });
}

namespace {

// `shared` is used in two segments, or in one and outside of it.
struct Twice : nn::Module {
  nn::Linear stem = add("stem", nn::Linear(3, 3, false));
  nn::Linear shared = add("shared", nn::Linear(3, 3, false));
  bool first = false, second = false;  // recomputed
  Tensor forward(const Tensor& x) override {
    const Tensor y = stem(x);
    const Tensor z = (first ? again(shared, y) : shared(y)) * 2.0;
    return second ? again(shared, z) : shared(z);
  }
};

}  // namespace

TEST_CASE("a gradient in two parts is whole where its bucket has waited, and else named to all") {
  for (const auto& [first, second] : {std::pair(true, true), std::pair(true, false)}) {
    const auto train = [&](const Group& group, int rank, const nn::BucketCaps& caps) {
      train_twice<Twice>(group, rank, caps, [&](Twice& model) {
        model.first = first;
        model.second = second;
      });
    };
    two([&](const Group& group, int rank) { train(group, rank, {}); });
    const std::string message =
        failure([&](const Group& group, int rank) { train(group, rank, apart); });
    CAPTURE(message);
    CHECK(message.find("shared.weight got another part of its gradient after bucket 0") !=
          std::string::npos);
    CHECK(message.find("no_sync()") != std::string::npos);
  }
}

TEST_CASE("a backward that an exception ends on one thread leaves none behind for another") {
  two([](const Group& group, int rank) {
    Twins<Mlp> pair(group);  // one bucket of four gradients
    DDP& ddp = *pair.ddp;
    int seen = 0;
    for (const Tensor& parameter : pair.model.parameters()) {
      parameter.grad_slot().add_hook([&](const Tensor&) {
        if (++seen == 2) throw Error("once");
      });
    }
    std::thread(with_context([&] { CHECK_THROWS_WITH(loss(ddp, 1).backward(), "once"); })).join();
    std::thread(with_context([&] {
      ddp.zero_grad();
      loss(ddp, rank + 1).backward();
      CHECK(ddp.reducer().exposed_seconds() > 0);  // it has waited for all
    })).join();
    loss(pair.alone, rank + 1).backward();
    check_averaged(pair.model, pair.alone, group);
  });
}

TEST_CASE("after the same exception on all ranks another wrapper goes on") {
  two([](const Group& group, int rank) {
    auto net = nn::mlp({3, 4, 2}), alone = nn::mlp({3, 4, 2});
    make_whole(net);
    make_whole(alone);
    bool throws = true;
    net.parameters()[0].grad_slot().add_hook([&](const Tensor&) {
      if (throws) throw Error("no memory");
    });
    for (const bool first : {true, false}) {
      DDP ddp(net, group, {.buckets = apart});
      if (first) {
        CHECK_THROWS_WITH(loss(ddp, rank + 1).backward(), "no memory");
        throws = false;
      } else {
        ddp.zero_grad();
        loss(ddp, rank + 1).backward();
      }
    }
    loss(alone, rank + 1).backward();
    check_averaged(net, alone, group);
  });
}
