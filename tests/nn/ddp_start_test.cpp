// SPDX-License-Identifier: Apache-2.0
// The start of a wrapper: models are compared, and made equal where they differ.
#include <peal/comm/group/group_body.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/parallel/agree.h>

#include <set>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

TEST_CASE("a wrapper for each step trains as one wrapper, masters too") {
  two([](const Group& group, int rank) {
    const auto train = [&](bool one) {
      manual_seed(4);
      nn::Sequential net = nn::mlp({3, 4, 2});
      net.to(DType::bf16);
      nn::AdamW optimizer(net.parameters(), {.lr = 1e-4});
      std::unique_ptr<DDP> ddp;
      for (int k = 0; k < 20; ++k) {
        if (!one || k == 0) {
          ddp.reset();
          ddp = std::make_unique<DDP>(net, group);
        }
        optimizer.zero_grad();
        const Tensor y = (*ddp)(full({2, 3}, rank + 1.0, DType::bf16));
        sum(y * y).backward();
        optimizer.step();
      }
      std::vector<float> masters;
      for (const auto& [name, tensor] : optimizer.state_dict()) {
        if (!name.ends_with("master")) continue;
        CHECK(same_everywhere(tensor, group));
        for (const float value : tensor.to_vector<float>()) masters.push_back(value);
      }
      CHECK(!masters.empty());
      return masters;
    };
    CHECK(train(true) == train(false));
  });
}

TEST_CASE("masters are equal after a wrap, also where one rank's parameters were not") {
  two([](const Group& group, int rank) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    net.to(DType::bf16);
    nn::AdamW optimizer(net.parameters(), {.lr = 1e-4});
    for (int k = 0; k < 2; ++k) {
      if (rank == 1) fill_(net.parameters()[static_cast<std::size_t>(k)], 0.5);
      DDP ddp(net, group);
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        const Tensor y = ddp(full({2, 3}, rank + 1.0, DType::bf16));
        sum(y * y).backward();
        optimizer.step();
      }
    }
    for (const auto& [name, tensor] : optimizer.state_dict()) {
      CAPTURE(name);
      CHECK(same_everywhere(tensor, group));
    }
  });
}

TEST_CASE("only what differs is written, on all ranks") {
  two([](const Group& group, int rank) {
    NamedTensors tensors;
    std::vector<std::uint64_t> before;
    for (int i = 0; i < 130; ++i) {
      const bool differs = i == 3 || i == 63 || i == 64 || i == 129;
      const double value = differs && rank == 1 ? -1 : i;
      tensors.emplace_back(concat(i), full({i % 7, 3}, value));  // some are empty
      before.push_back(tensors.back().second.storage()->version());
    }
    nn::make_equal(group, tensors);
    for (int i = 0; i < 130; ++i) {
      const Tensor& tensor = tensors[static_cast<std::size_t>(i)].second;
      const bool empty = tensor.numel() == 0;
      const bool differs = !empty && (i == 3 || i == 64 || i == 129);
      CAPTURE(i);
      CHECK((tensor.storage()->version() != before[static_cast<std::size_t>(i)]) == differs);
      for (const float value : tensor.to_vector<float>()) CHECK(value == static_cast<float>(i));
    }
  });
}

TEST_CASE("equal models are compared by one small message, and others shown in words") {
  two([](const Group& group, int rank) {
    std::string text;
    for (int i = 0; i < 1000; ++i) text += concat("parameter ", i, "\n");
    const std::uint64_t before = comm::body_of(group).sequence();
    nn::check_same(group, "the models", text);
    CHECK(comm::body_of(group).sequence() == before + 1);
    if (rank == 1) text += "one more\n";
    CHECK_THROWS_WITH(nn::check_same(group, "the models", text),
                      doctest::Contains("rank 0 has 'nothing more', rank 1 has 'one more'"));
  });
}

TEST_CASE("a digest sees every bit, and the length") {
  std::set<nn::Digest> seen;
  std::size_t made = 0;
  for (std::size_t size = 0; size < 40; ++size) {
    std::vector<std::byte> bytes(size);
    seen.insert(nn::digest(bytes));
    ++made;
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= std::byte{1} << bit % 8;
      seen.insert(nn::digest(bytes));
      ++made;
      bytes[bit / 8] ^= std::byte{1} << bit % 8;
    }
  }
  CHECK(seen.size() == made);
}
