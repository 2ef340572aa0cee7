// SPDX-License-Identifier: Apache-2.0
// The state of ZeroRedundancyOptimizer: it lies with its owners, comes together as that of the
// optimizer by itself, and goes into any number of ranks.
#include <peal/nn/checkpoint.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <numeric>

#include "zero_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

const std::vector<Shape> shapes{{6, 5}, {5}, {4, 3}, {3}, {2, 2}};

// After `steps` of one process.
struct Alone {
  NamedTensors list = leaves(shapes);
  std::unique_ptr<nn::Optimizer> optimizer;
  Alone(const MakeOptimizer& make, int steps) : optimizer(make(nullptr, list).optimizer) {
    run(0, steps);
  }
  void run(int begin, int end) {
    for (int step = begin; step < end; ++step) {
      give_gradients(list, step);
      optimizer->step();
    }
  }
};

std::size_t bytes_of(const NamedTensors& state) {
  return std::accumulate(state.begin(), state.end(), std::size_t{0},
                         [](std::size_t sum, const auto& entry) {
                           return sum + (entry.second.dim() > 0 ? entry.second.view().bytes() : 0);
                         });
}

}  // namespace

TEST_CASE("a state from any world goes on in any other, bit for bit") {
  for (const auto& [name, make] : optimizers()) {
    CAPTURE(name);
    Alone alone(make, 4);
    const auto half = values_of(alone.list);
    NamedTensors whole;
    for (const auto& [key, tensor] : alone.optimizer->state_dict()) {
      whole.emplace_back(key, tensor.clone());
    }
    alone.run(4, 8);
    for (const int before : {1, 2, 3, 4}) {
      CAPTURE(before);
      NamedTensors saved;
      ranks(before, [&](const Group& group, int rank) {
        const NamedTensors list = leaves(shapes);
        const auto optimizer = make(&group, list).optimizer;
        for (int step = 0; step < 4; ++step) {
          give_gradients(list, step);
          optimizer->step();
        }
        const int to = before - 1;
        optimizer->consolidate_state_dict(to);
        if (rank != to) return;
        check_same(optimizer->state_dict(), whole);
        CHECK(values_of(list) == half);
        for (const auto& [key, tensor] : optimizer->state_dict()) {
          saved.emplace_back(key, tensor.clone());
        }
      });
      for (const int after : {1, 2, 3, 4}) {
        ranks(after, [&](const Group& group, int) {
          CAPTURE(after);
          const NamedTensors list = leaves(shapes);
          for (std::size_t p = 0; p < list.size(); ++p) {
            const Tensor there = cast(Tensor::from(half[p], {list[p].second.numel()}), DType::f32);
            list[p].second.detach({list[p].second.numel()}).copy_(there);
          }
          const auto optimizer = make(&group, list).optimizer;
          optimizer->load_state_dict(saved);
          for (int step = 4; step < 8; ++step) {
            give_gradients(list, step);
            optimizer->step();
          }
          CHECK(values_of(list) == values_of(alone.list));
        });
      }
    }
  }
}

TEST_CASE("each rank has the state of what it owns, and together they have all of it") {
  const MakeOptimizer make = of<nn::AdamW>(nn::AdamWOptions{.lr = 0.1});
  const Alone alone(make, 2);
  const std::size_t whole = bytes_of(alone.optimizer->state_dict());
  for (const int world : {1, 2, 3, 4}) {
    std::vector<std::size_t> bytes(static_cast<std::size_t>(world));
    ranks(world, [&](const Group& group, int rank) {
      const NamedTensors list = leaves(shapes);
      Zero<nn::AdamW> optimizer(group, list, nn::AdamWOptions{.lr = 0.1});
      for (int step = 0; step < 2; ++step) {
        give_gradients(list, step);
        optimizer.step();
      }
      const auto at = static_cast<std::size_t>(rank);
      bytes[at] = bytes_of(optimizer.local_state_dict());
      CHECK(bytes[at] == 8 * static_cast<std::size_t>(optimizer.placement().loads()[at]));
    });
    CHECK(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}) == whole);
  }
}

TEST_CASE("more ranks than parameters: some own none, and the state is whole") {
  ranks(4, [](const Group& group, int rank) {
    const NamedTensors list = leaves({{3}, {2}}), same = leaves({{3}, {2}});
    Zero<nn::Adam> optimizer(group, list, nn::AdamOptions{.lr = 0.1});
    nn::Adam plain(same, {.lr = 0.1});
    give_gradients(list, 0);
    give_gradients(same, 0);
    optimizer.step();
    plain.step();
    check_same(list, same);
    optimizer.consolidate_state_dict(3);
    if (rank == 3) check_same(optimizer.state_dict(), plain.state_dict());
  });
}

TEST_CASE("a state that does not lie here is an error, and so is one of an earlier step") {
  two([](const Group& group, int rank) {
    const NamedTensors list = leaves({{3}, {2}});
    Zero<nn::SGD> optimizer(group, list, nn::SGDOptions{.lr = 0.1, .momentum = 0.9});
    const auto error = [&] { return error_of([&] { (void)optimizer.state_dict(); }); };
    check_has(error(), "call consolidate_state_dict(to) on all of them");
    check_has(error(), concat("[zero] rank ", rank));
    check_has(error_of([&] { optimizer.consolidate_state_dict(2); }),
              "expected a rank from 0 to 1, got 2");
    give_gradients(list, 0);
    optimizer.step();
    optimizer.consolidate_state_dict(1);
    check_has(error(), rank == 1 ? "nothing" : "the state of SGD lies with 2 ranks");
    optimizer.step();
    check_has(error(), "call consolidate_state_dict(to) on all of them");
  });
}

TEST_CASE("a state that does not fit is the same error on all ranks, and nothing has changed") {
  std::vector<std::string> errors(2);
  two([&](const Group& group, int rank) {
    const NamedTensors list = leaves({{3}, {2}});
    const nn::AdamOptions options{.lr = 0.1};
    Zero<nn::Adam> optimizer(group, list, options);
    give_gradients(list, 0);
    optimizer.step();
    const NamedTensors wrong_list = leaves({{3}, {4}});
    nn::Adam wrong(wrong_list, options);
    give_gradients(wrong_list, 0);
    wrong.step();
    errors[static_cast<std::size_t>(rank)] =
        error_of([&] { optimizer.load_state_dict(wrong.state_dict()); });
    CHECK(optimizer.local_state_dict().back().first ==
          (rank == 0 ? "a.exp_avg_sq" : "b.exp_avg_sq"));
  });
  check_has(errors[0], "b.exp_avg");
  CHECK(errors[0] == errors[1]);
}

TEST_CASE("a checkpoint's file is that of the optimizer by itself") {
  const Folder folder;
  const std::string shared = (folder.path / "shared").string();
  const std::string plain = (folder.path / "plain").string();
  const MakeOptimizer make = of<nn::AdamW>(nn::AdamWOptions{.lr = 0.1});
  const Alone alone(make, 3);
  nn::save(plain, {{"optimizer", *alone.optimizer}});
  ranks(3, [&](const Group& group, int rank) {
    const NamedTensors list = leaves(shapes);
    const auto optimizer = make(&group, list).optimizer;
    for (int step = 0; step < 3; ++step) {
      give_gradients(list, step);
      optimizer->step();
    }
    const nn::Part part("optimizer", *optimizer);
    part.consolidate_state_dict();
    if (rank == 0) nn::save(shared, {part});
    group.barrier().wait();
    nn::load(plain, {part});
    part.consolidate_state_dict();
    if (rank == 0) check_same(optimizer->state_dict(), alone.optimizer->state_dict());
  });
  CHECK(content_of(shared) == content_of(plain));
}
