// SPDX-License-Identifier: Apache-2.0
// Synchronised batch norm where backward does not come to the same gradients first on all ranks: a
// rank whose loss leaves out what stands behind the last norm comes to the norm's collective before
// any gradient, and steps begin before it on all of them. All ranks have the gradients of one that
// has their batches.
#include <peal/autograd/autocast.h>
#include <peal/autograd/checkpoint.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

using Takes = std::vector<bool>;  // by rank: whether its loss goes through `out`

struct NetWithEnd : nn::Module {
  nn::Linear in = add("in", nn::Linear(3, 4));
  nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(4));
  nn::Linear out = add("out", nn::Linear(4, 2));
  NetWithEnd() { to(DType::f64); }
  Tensor middle(const Tensor& x) { return norm(in(x)); }
  Tensor run(const Tensor& x, bool takes) { return takes ? out(middle(x)) : middle(x); }
  Tensor recomputed(const Tensor& x, bool takes) {
    const Tensor y = checkpoint([this](const Tensor& t) { return middle(t); }, x);
    return takes ? out(y) : y;
  }
};

Tensor batch(int rank, int step) {
  std::vector<double> values;
  for (int i = 0; i < 12; ++i) values.push_back((rank * 31 + step * 17 + i * 7) % 23 / 8.0 - 1.25);
  return Tensor::from(values, {4, 3});
}

Tensor loss_of(const Tensor& y) { return sum(y * y); }

// The sum of all ranks' losses, of a model that has the batches of those in `active`.
Tensor loss_of_all(NetWithEnd& alone, int step, const Takes& takes, const Takes& active) {
  Tensors parts;
  for (std::size_t r = 0; r < takes.size(); ++r) {
    if (active[r]) parts.push_back(batch(static_cast<int>(r), step));
  }
  const Tensor y = alone.middle(cat(parts));
  Tensor total = Tensor::zeros({}, DType::f64);
  std::int64_t at = 0;
  for (std::size_t r = 0; r < takes.size(); ++r) {
    if (!active[r]) continue;
    const Tensor own = narrow(y, 0, at, 4);
    total = total + loss_of(takes[r] ? alone.out(own) : own);
    at += 4;
  }
  return total;
}

// A model under DDP, and the same alone.
struct BothWithEnd {
  BothWithEnd(const Group& group, nn::DDPOptions options)
      : world(static_cast<std::size_t>(group.world())) {
    net.load_state_dict(alone.state_dict());
    nn::convert_sync_batchnorm(net, group);
    options.buckets = apart;
    ddp = std::make_unique<DDP>(net, group, options);
  }
  Tensor loss(int rank, int step, const Takes& takes) {
    return loss_of(
        ddp->call(&NetWithEnd::run, batch(rank, step), takes[static_cast<std::size_t>(rank)]));
  }
  Tensor loss_alone(int step, const Takes& takes) {
    return loss_of_all(alone, step, takes, Takes(world, true)) / static_cast<double>(world);
  }
  void check() {
    const NamedTensors mine = net.named_parameters(), theirs = alone.named_parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      CAPTURE(mine[i].first);
      const Tensor got = mine[i].second.grad(), want = theirs[i].second.grad();
      REQUIRE(got.defined() == want.defined());
      if (got.defined()) CHECK(max(abs(got - want)).item<double>() < 1e-12);
    }
    net.zero_grad();
    alone.zero_grad();
  }

  std::size_t world;
  NetWithEnd net, alone;
  std::unique_ptr<DDP> ddp;
};

// Which ranks take `out` in a step: other ones in each, or always one, the last.
Takes takes_of(int world, int step, bool is_static, int one = -1) {
  const int bits = is_static ? 1 << (one < 0 ? world - 1 : one) : step * 5 + 1;
  Takes takes;
  for (int r = 0; r < world; ++r) takes.push_back((bits >> r & 1) != 0);
  return takes;
}

nn::DDPOptions options_of(bool is_static) {
  return {.find_unused_parameters = !is_static, .static_graph = is_static};
}

void for_each_option(int world, const std::function<void(const Group&, int rank, bool)>& f) {
  for (const bool is_static : {false, true}) {
    ranks(world, [&](const Group& group, int rank) {
      CAPTURE(is_static);
      f(group, rank, is_static);
    });
  }
}

}  // namespace

TEST_CASE("a rank whose loss leaves out what stands behind the last layer that meets") {
  for (const int world : {2, 3, 5}) {
    for_each_option(world, [&](const Group& group, int rank, bool is_static) {
      BothWithEnd both(group, options_of(is_static));
      for (int step = 0; step < 6; ++step) {
        const Takes takes = takes_of(world, step, is_static);
        both.loss(rank, step, takes).backward();
        both.loss_alone(step, takes).backward();
        both.check();
      }
      for (const Tensor& buffer : both.net.buffers()) CHECK(same_everywhere(buffer, group));
    });
  }
}

TEST_CASE(
    "the same with buffers of each rank's own, an accumulation, and a graph gone through twice") {
  for_each_option(2, [](const Group& group, int rank, bool is_static) {
    nn::DDPOptions options = options_of(is_static);
    options.broadcast_buffers = false;
    BothWithEnd both(group, options);
    for (int step = 0; step < 9; step += 3) {
      {
        const auto guard = both.ddp->no_sync();
        const Takes takes = takes_of(2, step, is_static);
        both.loss(rank, step, takes).backward();
        both.loss_alone(step, takes).backward();
      }
      const Takes takes = takes_of(2, step + 1, is_static);
      const Tensor loss = both.loss(rank, step + 1, takes);
      const Tensor alone = both.loss_alone(step + 1, takes);
      loss.backward({}, true);
      alone.backward({}, true);
      both.check();
      loss.backward();
      alone.backward();
      both.check();
    }
  });
}

TEST_CASE("the same over samples") {
  for_each_option(3, [](const Group& group, int rank, bool is_static) {
    BothWithEnd both(group, options_of(is_static));
    for (int step = 0; step < 4; ++step) {
      const Takes takes = takes_of(3, step, is_static);
      // Of four samples on each rank, and so the average.
      both.ddp->backward(both.loss(rank, step, takes) / 4.0, 4);
      (both.loss_alone(step, takes) / 4.0).backward();
      both.check();
    }
  });
}

TEST_CASE("the same where ranks run out of batches, or begin later") {
  for (const int one : {0, 2}) {  // rank 0 has its first batch in the second epoch
    for_each_option(3, [&](const Group& group, int rank, bool is_static) {
      BothWithEnd both(group, options_of(is_static));
      nn::Join join(*both.ddp);
      int step = 0;
      for (int epoch = 0; epoch < 3; ++epoch) {
        const auto batches = [&](int r) { return epoch == 0 ? r : epoch == 1 || r != 1 ? 2 : 1; };
        for (int k = 0; join.next(k < batches(rank)); ++k, ++step) {
          const Takes takes = takes_of(3, step, is_static, one);
          Takes active;
          for (int r = 0; r < 3; ++r) active.push_back(k < batches(r));
          if (join.active()) {
            both.loss(rank, step, takes).backward();
          } else {
            REQUIRE(join.follow());
          }
          (loss_of_all(both.alone, step, takes, active) / 3.0).backward();
          both.check();
        }
      }
      CHECK(step == 6);
    });
  }
}

TEST_CASE("the same where the layer is recomputed in backward") {
  for_each_option(2, [](const Group& group, int rank, bool is_static) {
    BothWithEnd both(group, options_of(is_static));
    for (int step = 0; step < 4; ++step) {
      const Takes takes = takes_of(2, step, is_static);
      loss_of(both.ddp->call(&NetWithEnd::recomputed, batch(rank, step), takes[rank == 0 ? 0 : 1]))
          .backward();
      both.loss_alone(step, takes).backward();
      both.check();
    }
  });
}

TEST_CASE("hooks of a step that begins in a recomputed segment are those of a backward") {
  struct Low : nn::Module {
    nn::Linear in = add("in", nn::Linear(3, 4));
    nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(4));
    nn::Linear out = add("out", nn::Linear(4, 2));
    Tensor run(const Tensor& x) {
      return checkpoint([this](const Tensor& t) { return norm(in(t)); }, x);
    }
  };
  std::atomic<int> in_segment{0};
  two([&](const Group& group, int rank) {
    Low net;
    nn::convert_sync_batchnorm(net, group);
    nn::DDPOptions options = options_of(false);
    options.buckets = apart;
    DDP ddp(net, group, options);
    ddp.register_comm_hook([&](nn::GradBucket& bucket) {
      in_segment += recomputing() ? 1 : 0;
      CHECK_FALSE(context().autocast.has_value());
      CHECK_FALSE(context().grad_enabled);
      return group.all_reduce(bucket.buffer, comm::ReduceOp::avg, bucket.label);
    });
    nn::Join join(ddp);
    for (int step = 0; join.next(rank == 0 || step < 3); ++step) {
      if (step == 4) break;
      const Autocast low(DType::bf16);
      net.zero_grad();
      if (join.active()) {
        loss_of(ddp.call(&Low::run, cast(batch(rank, step), DType::f32))).backward();
      } else {
        REQUIRE(join.follow());
      }
      CHECK(net.in.weight.grad().defined());
    }
  });
  CHECK(in_segment > 0);  // as nobody uses `out`, which comes first
}

TEST_CASE("a first step that all ranks give up teaches none of them when gradients come") {
  struct Late : nn::Module {
    nn::Linear in = add("in", nn::Linear(3, 3)), extra = add("extra", nn::Linear(3, 3));
    nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(3));
    Late() { to(DType::f64); }
    Tensor run(const Tensor& x, bool takes) { return norm(in(takes ? extra(x) : x)); }
  };
  ranks(2, [](const Group& group, int rank) {
    Late net, alone;
    net.load_state_dict(alone.state_dict());
    nn::convert_sync_batchnorm(net, group);
    nn::DDPOptions options = options_of(true);
    options.buckets = apart;
    options.order = {"extra.weight", "extra.bias"};
    DDP ddp(net, group, options);
    const auto loss = [&](int step) {
      return loss_of(ddp.call(&Late::run, batch(rank, step), rank == 1));
    };
    {
      const auto guard = ddp.no_sync();
      ddp.backward(loss(0), 4);
    }
    CHECK_THROWS_AS(loss(1).backward(), Error);
    net.zero_grad();
    for (int step = 2; step < 5; ++step) {
      loss(step).backward();
      const Tensor first = alone.in(batch(0, step)), second = alone.in(alone.extra(batch(1, step)));
      (loss_of(alone.norm(cat({first, second}))) / 2.0).backward();
      const NamedTensors mine = net.named_parameters(), theirs = alone.named_parameters();
      for (std::size_t i = 0; i < mine.size(); ++i) {
        CAPTURE(mine[i].first);
        CHECK(max(abs(mine[i].second.grad() - theirs[i].second.grad())).item<double>() < 1e-12);
      }
      net.zero_grad();
      alone.zero_grad();
    }
  });
}

namespace {

// Two wrappers over one group, of which one has the norm: a backward goes through both.
struct Extra : nn::Module {
  nn::Linear body = add("body", nn::Linear(3, 3)), extra = add("extra", nn::Linear(3, 3));
  Extra() { to(DType::f64); }
};

// `always`: bits that the loss takes on all ranks in each step; a wrapper whose part is among them
// has no option.
void check_two_wrappers(bool net_first, int always) {
  for_each_option(2, [&](const Group& group, int rank, bool is_static) {
    nn::DDPOptions options = (always & 2) != 0 ? nn::DDPOptions() : options_of(is_static);
    options.buckets = apart;
    Extra before, before_alone;
    before_alone.load_state_dict(before.state_dict());
    std::unique_ptr<DDP> made;
    if (!net_first) made = std::make_unique<DDP>(before, group, options);
    BothWithEnd both(group, (always & 1) != 0 ? nn::DDPOptions() : options_of(is_static));
    if (net_first) made = std::make_unique<DDP>(before, group, options);
    // By step and rank: bit 0, the loss takes `out`; bit 1, it takes `extra`, behind all else.
    const int uses[6][2] = {{3, 0}, {0, 3}, {1, 2}, {2, 1}, {3, 3}, {0, 2}};
    for (int step = 0; step < 6; ++step) {
      // Of a static graph the rank that takes less is the first of the group in one, and the last
      // in the other.
      const auto& now = uses[is_static ? (net_first ? 0 : 1) : step];
      const auto takes = [&](int r, int bit) { return ((now[r] | always) >> bit & 1) != 0; };
      const Tensor x = batch(rank, step);
      const Tensor h = made->call([&](const Tensor& t) { return before.body(t); }, x);
      const Tensor y = both.ddp->call(&NetWithEnd::run, h, takes(rank, 0));
      const Tensor loss = loss_of(y);
      (takes(rank, 1) ? loss + loss_of(before.extra(x)) : loss).backward();

      const Tensor all = cat({batch(0, step), batch(1, step)});
      const Tensor middle = both.alone.middle(before_alone.body(all));
      Tensor total = Tensor::zeros({}, DType::f64);
      for (const int r : {0, 1}) {
        const Tensor own = narrow(middle, 0, r * 4, 4);
        total = total + loss_of(takes(r, 0) ? both.alone.out(own) : own);
        if (takes(r, 1)) total = total + loss_of(before_alone.extra(batch(r, step)));
      }
      (total / 2.0).backward();
      const NamedTensors mine = before.named_parameters(), theirs = before_alone.named_parameters();
      for (std::size_t i = 0; i < mine.size(); ++i) {
        CAPTURE(mine[i].first);
        const Tensor got = mine[i].second.grad(), want = theirs[i].second.grad();
        REQUIRE(got.defined() == want.defined());
        if (got.defined()) CHECK(max(abs(got - want)).item<double>() < 1e-12);
      }
      before.zero_grad();
      before_alone.zero_grad();
      both.check();
    }
  });
}

}  // namespace

TEST_CASE("two wrappers of one backward, the layer in one of them alone") {
  for (const bool net_first : {false, true}) {
    for (const int always : {0, 1, 2}) {
      CAPTURE(net_first);
      CAPTURE(always);
      check_two_wrappers(net_first, always);
    }
  }
}

TEST_CASE("told: a parameter that one rank uses before a layer that meets, and another behind it") {
  const std::string message = failure([](const Group& group, int rank) {
    struct Tied : nn::Module {
      nn::Linear in = add("in", nn::Linear(4, 4));
      nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(4));
      nn::Linear out = add("out", nn::Linear(4, 4));
      Tensor run(const Tensor& x, bool twice) { return out(norm(in(twice ? out(x) : x))); }
    } net;
    nn::convert_sync_batchnorm(net, group);
    DDP ddp(net, group, {.buckets = apart, .find_unused_parameters = true});
    sum(ddp.call(&Tied::run, randn({4, 4}), rank == 0)).backward();
  });
  CAPTURE(message);
  CHECK(message.find("SyncBatchNorm norm, backward") != std::string::npos);
  CHECK(message.find("bucket 0: out.bias") != std::string::npos);
  CHECK(message.find("use it before the layer on all of them") != std::string::npos);
}
