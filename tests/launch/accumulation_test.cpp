// SPDX-License-Identifier: Apache-2.0
// Groups of batches for one step: what becomes of the last one, how batches are weighed, and a run
// that is taken up at every batch, within groups too.
#include <doctest/doctest.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/data/loader.h>
#include <peal/launch/training/accumulation.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace peal;
using namespace peal::testing;
using launch::Accumulation;
using launch::LastGroup;

static_assert(Stateful<Accumulation>);
static_assert(Stateful<launch::Gradients>);

namespace {

void ranks(int world, const std::function<void(const comm::ProcessGroup&)>& f) {
  comm::run_ranks(world, {.deadline = std::chrono::minutes(1)}, f);
}

// Sample i: x = i + 1, y = 0; so a loss of mean(w x) has the mean of x as its gradient.
struct Line : data::Dataset {
  explicit Line(std::int64_t n) : count(n) {}
  std::int64_t size() const override { return count; }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    std::vector<float> x;
    for (const std::int64_t index : indices) x.push_back(static_cast<float>(index + 1));
    return {Tensor::from(x, {std::ssize(x), 1}, Device{}), Tensor()};
  }
  std::int64_t count;
};

// Groups of `size`, over `epochs` of so many batches: each step's number of batches, 0 for a batch
// that is left out.
std::vector<std::int64_t> groups_of(std::int64_t batches, std::int64_t size, LastGroup last,
                                    int epochs = 1) {
  Accumulation groups(size, last);
  std::vector<std::int64_t> all;
  std::int64_t in_group = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (std::int64_t left = batches - 1; left >= 0; --left) {
      const Accumulation::Turn turn = groups.next(left);
      if (!turn.wanted) all.push_back(0);
      in_group += turn.wanted;
      if (!turn.step) continue;
      CHECK(turn.group == in_group);
      all.push_back(std::exchange(in_group, 0));
    }
  }
  return all;
}

using Counts = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("the last group is kept, dropped or carried over") {
  CHECK(groups_of(5, 2, LastGroup::keep) == Counts{2, 2, 1});
  CHECK(groups_of(6, 4, LastGroup::keep) == Counts{4, 2});
  CHECK(groups_of(6, 4, LastGroup::keep, 2) == Counts{4, 2, 4, 2});
  CHECK(groups_of(1, 4, LastGroup::keep) == Counts{1});
  CHECK(groups_of(3, 1, LastGroup::keep) == Counts{1, 1, 1});
  CHECK(groups_of(5, 2, LastGroup::drop) == Counts{2, 2, 0});
  CHECK(groups_of(6, 4, LastGroup::drop, 2) == Counts{4, 0, 0, 4, 0, 0});
  CHECK(groups_of(8, 4, LastGroup::drop) == Counts{4, 4});
  CHECK(groups_of(5, 2, LastGroup::carry, 2) == Counts{2, 2, 2, 2, 2});
  CHECK(groups_of(6, 4, LastGroup::carry) == Counts{4});
  for (std::int64_t n = 1; n < 20; ++n) {
    for (std::int64_t g = 1; g < 8; ++g) {
      CHECK(std::ssize(groups_of(n, g, LastGroup::keep)) == (n + g - 1) / g);
      CHECK(std::ssize(groups_of(n, g, LastGroup::carry, static_cast<int>(g))) == n);
    }
  }
  // Of a stream it is known whether there is another batch, and no more.
  Accumulation groups(3);
  CHECK(!groups.next(1).step);
  CHECK(groups.next(0).step);
  CHECK(!groups.next(1).step);
  check_has(error_of([] { Accumulation(0); }), "expected at least 1 batch a group, got 0");
  check_has(error_of([] { Accumulation(2).next(-1); }), "0 or more batches to come, got -1");
  check_has(error_of([&] {
              groups.load_state_dict({{"batches", Tensor::scalar(std::int64_t{3})}});
            }),
            "a group of 3 cannot have 3 and be open");
}

TEST_CASE("each batch of the last group weighs what it is worth, and so does each sample") {
  for (const int world : {1, 2}) {
    for (const bool by_samples : {false, true}) {
      ranks(world, [&](const comm::ProcessGroup& group) {
        nn::Linear net(1, 1, false);
        nn::DistributedDataParallel ddp(net, group);
        // 10 samples a rank in batches of 4, 4 and 2, in groups of 2; dealt so that rank 1's are
        // the others.
        data::DataLoader loader(
            std::make_shared<Line>(10 * world),
            {.batch_size = 4, .shard = Place{group.rank(), world}, .way = data::Way::contiguous});
        Accumulation groups(2);
        std::vector<float> steps;
        while (const auto batch = loader.next()) {
          const auto turn = groups.next(loader.left());
          const Tensor loss = mean(ddp(batch->x));
          const auto backward = [&] {
            if (by_samples) return ddp.backward(loss, static_cast<double>(batch->size()));
            (loss / static_cast<double>(turn.group)).backward();
          };
          if (!turn.step) {
            const auto local = ddp.no_sync();
            backward();
            continue;
          }
          backward();
          steps.push_back(net.parameters()[0].grad().item<float>());
          ddp.zero_grad();
        }
        // 1 to 8, then 9 and 10; of two ranks 11 to 18, 19 and 20 as well.
        CHECK(steps ==
              (world == 1 ? std::vector<float>{4.5F, 9.5F} : std::vector<float>{9.5F, 14.5F}));
      });
    }
  }
  // A group of batches that differ in size: 10 samples, of which the batch of 2 weighs 2.
  nn::Linear net(1, 1, false);
  nn::DistributedDataParallel ddp(net, comm::ProcessGroup::alone());
  data::DataLoader loader(std::make_shared<Line>(10), {.batch_size = 4});
  Accumulation groups(3);
  while (const auto batch = loader.next()) {
    const bool step = groups.next(loader.left()).step;
    const Tensor loss = mean(ddp(batch->x));
    if (step) {
      ddp.backward(loss, static_cast<double>(batch->size()));
    } else {
      const auto local = ddp.no_sync();
      ddp.backward(loss, static_cast<double>(batch->size()));
    }
  }
  CHECK(net.parameters()[0].grad().item<float>() == 5.5F);
}

namespace {

// A run that has all that a run may have, so that it can be left and taken up at each batch.
struct Run {
  Run(const comm::ProcessGroup& over, int workers, LastGroup last)
      : group(over),
        net(nn::Sequential(nn::Linear(1, 4), nn::Dropout(0.3), nn::Linear(4, 1))),
        ddp((manual_seed(3), reset(net), net), group),
        optimizer(net.named_parameters(), {.lr = 0.1}),
        loader(std::make_shared<Line>(10 * group.world()),
               {.batch_size = 2,
                .shuffle = true,
                .shard = Place{group.rank(), group.world()},
                .seed = 4,
                .workers = workers}),
        groups(2, last),
        gradients(net) {
    manual_seed(100 + static_cast<std::uint64_t>(group.rank()));
  }
  static void reset(nn::Module& module) {
    const NoGrad guard;
    for (const Tensor& parameter : module.parameters())
      parameter.copy_(randn(parameter.shape()) * 0.2);
  }
  std::vector<nn::Part> parts() {
    return {{"model", net},     {"optimizer", optimizer}, {"loader", loader},
            {"groups", groups}, {"gradients", gradients}, {"random", random}};
  }
  void batches(int count) {
    for (int k = 0; k < count; ++k) {
      auto batch = loader.next();
      if (!batch) batch = loader.next();  // of the next epoch
      const auto turn = groups.next(loader.left());
      if (!turn.wanted) continue;
      const Tensor loss = mean(ddp(batch->x)) / static_cast<double>(turn.group);
      if (!turn.step) {
        const auto local = ddp.no_sync();
        loss.backward();
        continue;
      }
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  std::vector<std::vector<float>> weights() const {
    std::vector<std::vector<float>> all;
    for (const Tensor& parameter : net.parameters()) all.push_back(parameter.to_vector<float>());
    return all;
  }

  comm::ProcessGroup group;
  nn::Sequential net;
  nn::DistributedDataParallel ddp;
  nn::AdamW optimizer;
  data::DataLoader loader;
  Accumulation groups;
  launch::Gradients gradients;
  RandomState random;
};

}  // namespace

TEST_CASE(
    "a run taken up at any batch of three epochs has the weights of the unbroken one, bit for "
    "bit") {
  const Folder folder;
  struct Case {
    int world;
    LastGroup last;
    bool twice;  // two breaks, mostly in one epoch
  };
  for (const auto& [world, last, twice] :
       {Case{1, LastGroup::keep, true}, Case{2, LastGroup::keep, false},
        Case{2, LastGroup::carry, false}}) {
    ranks(world, [&, last = last, twice = twice](const comm::ProcessGroup& group) {
      const std::string path = folder.path / concat("rank", group.rank());
      Run unbroken(group, 0, last);
      unbroken.batches(15);
      const auto expected = unbroken.weights();
      for (int at = 0; at <= 15; ++at) {
        CAPTURE(at);
        int done = at;
        {
          Run first(group, 2, last);
          first.batches(at);
          nn::save(path, first.parts());
        }
        if (twice && at < 15) {
          Run second(group, 0, last);
          nn::load(path, second.parts());
          second.batches(1);
          ++done;
          nn::save(path, second.parts());
        }
        Run resumed(group, 0, last);
        nn::load(path, resumed.parts());
        resumed.batches(15 - done);
        CHECK(resumed.weights() == expected);
      }
    });
  }
}
