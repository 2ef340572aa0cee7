// SPDX-License-Identifier: Apache-2.0
// The start of a wrapper: models are compared, and made equal where they differ.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/make_equal.h>

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

TEST_CASE("masters are equal after a user's own broadcast of the parameters") {
  two([](const Group& group, int rank) {
    for (const bool as_list : {false, true}) {
      manual_seed(4);
      nn::Sequential net = nn::mlp({3, 4, 2});
      net.to(DType::bf16);
      DDP ddp(net, group);
      nn::AdamW optimizer(net.parameters(), {.lr = 1e-4});
      const auto step = [&] {
        optimizer.zero_grad();
        const Tensor y = ddp(full({2, 3}, rank + 1.0, DType::bf16));
        sum(y * y).backward();
        optimizer.step();
      };
      step();  // masters now have digits that the parameters have not
      const std::vector<Tensor> parameters = net.parameters();
      if (as_list) {
        group.broadcast_coalesced({parameters.begin(), parameters.end()}, 1).wait();
      } else {
        for (const Tensor& parameter : parameters) group.broadcast(parameter, 1).wait();
      }
      step();
      std::size_t masters = 0;
      for (const auto& [name, tensor] : optimizer.state_dict()) {
        CAPTURE(name);
        CHECK(same_everywhere(tensor, group));
        masters += name.ends_with("master") ? 1 : 0;
      }
      CHECK(masters == 4);
      for (const Tensor& parameter : parameters) CHECK(same_everywhere(parameter, group));
    }
  });
}

TEST_CASE("masters are equal after a broadcast of a parameter that is a part of a larger storage") {
  for (const bool as_list : {false, true}) {
    two([&](const Group& group, int rank) {
      const Tensor whole = ones({8}, DType::bf16), part = whole.detach({4}, 0);
      part.set_requires_grad();
      nn::SGD optimizer({part}, {.lr = 1});
      const auto step = [&](double grad) {
        optimizer.zero_grad();
        part.grad_slot().accumulate(full({4}, grad, DType::bf16));
        optimizer.step();
        return optimizer.state_dict().back().second.to_vector<float>();
      };
      // Digits of each rank's own, which round to the same.
      const double own = rank == 0 ? 0x1p-11 : 0x1p-10;
      CHECK(step(-own) == std::vector<float>(4, static_cast<float>(1 + own)));
      if (rank == 1) fill_(whole.detach({1}, 3), 2);
      if (as_list) {
        group.broadcast_coalesced({part.detach(), whole.detach({4}, 4)}, 0).wait();
      } else {
        group.broadcast(part.detach(), 0).wait();
      }
      CHECK(step(0) == std::vector<float>(4, 1));
      // And what is written into the rest of the storage leaves the digits of this part.
      step(-own);
      fill_(whole.detach({4}, 4), 3);
      CHECK(step(0) == std::vector<float>(4, static_cast<float>(1 + own)));
    });
  }
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
      const Storage& storage = *tensor.storage();
      const bool written = storage.version() != before[static_cast<std::size_t>(i)];
      CHECK(written == (differs && rank == 1));
      CHECK((storage.broadcasts() != 0) == differs);
      for (const float value : tensor.to_vector<float>()) CHECK(value == static_cast<float>(i));
    }
  });
}

TEST_CASE("equal models are compared by small messages, and others shown in words") {
  two([](const Group& group, int rank) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    const std::uint64_t before = group.sequence();
    const DDP ddp(net, group);
    // One for the models, and two for which of the parameters differ.
    CHECK(group.sequence() == before + 3);
    nn::Sequential other = nn::mlp({3, 4, rank == 1 ? 3 : 2});
    CHECK_THROWS_WITH(DDP(other, group), doctest::Contains("[ddp] the model is '"));
    CHECK_THROWS_WITH(DDP(other, group),
                      doctest::Contains("'parameter 3.weight f32 [3, 4]' on rank 1"));
  });
}

TEST_CASE("whatever differs between ranks is an error that shows it") {
  struct Net : nn::Module {
    nn::Linear a = add("a", nn::Linear(3, 3)), b = add("b", nn::Linear(3, 3));
    Tensor buffer = add_buffer("seen", Tensor::zeros({1}));
  };
  const auto fails = [](const std::string& words, const std::function<void(Net&)>& change,
                        const nn::DDPOptions& options, const nn::DDPOptions& others) {
    CAPTURE(words);
    two([&](const Group& group, int rank) {
      Net net;
      if (rank == 1) change(net);
      CHECK_THROWS_WITH(DDP(net, group, rank == 1 ? others : options),
                        doctest::Contains(words.c_str()));
    });
  };
  const auto differs = [&](const std::string& words, const std::function<void(Net&)>& change) {
    fails(words, change, {}, {});
  };
  const auto options = [&](const std::string& words, const nn::DDPOptions& one,
                           const nn::DDPOptions& other) {
    fails(
        words, [](Net&) {}, one, other);
  };
  differs("'parameter other.weight f32 [3, 3]' on rank 1",
          [](Net& net) { net.add("other", nn::Linear(3, 3)); });
  differs("'parameter a.weight f64 [3, 3]' on rank 1", [](Net& net) { net.a.to(DType::f64); });
  differs("a.weight f32 [3, 3]", [](Net& net) { net.a.weight.set_requires_grad(false); });
  differs("'tied again.weight is b.weight' on rank 1",
          [](Net& net) { net.add("again", nn::Module(net.b)); });
  differs("'buffer more f32 [2]' on rank 1",
          [](Net& net) { net.add_buffer("more", Tensor::zeros({2})); });
  options("'ignored a.weight' on rank 1", {}, {.ignored = {"a.weight"}});
  options("'bucket 0 of 3 f32", {}, {.buckets = apart});
  options("'check_every 5' on rank 1", {}, {.check_every = 5});
  options("'find_unused_parameters true' on rank 1", {}, {.find_unused_parameters = true});
  options("'static_graph true' on rank 1", {}, {.static_graph = true});
  options("'broadcast_buffers false' on rank 1", {}, {.broadcast_buffers = false});
  options("'delayed b.bias' on rank 1", {}, {.delayed = {"b.bias"}});
  options("'order a.weight' on rank 1", {}, {.order = {"a.weight", "a.bias"}});
  options("reduce bf16", {}, {.mixed_precision = {.reduce_dtype = DType::bf16}});
}

TEST_CASE("a tie to another parameter of the same shape is another model") {
  struct Net : nn::Module {
    explicit Net(bool first) { add("head", nn::Module(first ? a : b)); }
    nn::Linear a = add("a", nn::Linear(3, 3)), b = add("b", nn::Linear(3, 3));
  };
  two([](const Group& group, int rank) {
    Net net(rank == 0);
    CHECK_THROWS_WITH(DDP(net, group), doctest::Contains("'tied head.weight is a.weight'"));
    CHECK_THROWS_WITH(DDP(net, group),
                      doctest::Contains("'tied head.weight is b.weight' on rank 1"));
    Net same(true);
    const DDP ddp(same, group);
  });
}
