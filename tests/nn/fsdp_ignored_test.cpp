// SPDX-License-Identifier: Apache-2.0
// FSDP that leaves modules of a model alone (ignored_modules).
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>
#include <peal/tests/folder.h>

#include <algorithm>
#include <string_view>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

using comm::Collective;

NamedTensors gradients_of(const NamedTensors& parameters) {
  NamedTensors all;
  for (const auto& [name, parameter] : parameters) all.emplace_back(name, parameter.grad());
  return all;
}

// Those of a plain model on these rows.
NamedTensors gradients_on(const Batch& batch) {
  SmallConv plain = fresh(make_conv);
  loss_of(plain, batch).backward();
  return gradients_of(plain.named_parameters());
}

struct WithNorm : nn::Module {
  nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(3));
  nn::Linear head = add("head", nn::Linear(3, 2));
  Tensor forward(const Tensor& x) override { return head(norm(x)); }
};

}  // namespace

TEST_CASE("ignored modules are not cut, and their gradients are each rank's own") {
  for (const int world : {1, 2, 3, 4}) {
    ranks(world, [&](const Group& group, int rank) {
      SmallConv model = fresh(make_conv);
      const Batch batch = batch_of(model, 2 * world, 1);
      const Batch mine = rows_of(batch, rank, world);
      FSDP fsdp(model, group,
                {.wrap = nn::wrap_by_type({"Linear"}), .ignored_modules = {"conv2", "fc1"}});
      CHECK(fsdp.units().size() == 2);  // fc1 is none
      loss_of(fsdp, mine).backward();
      const NamedTensors own = gradients_on(mine), averages = gradients_on(batch);
      const auto find = [](const NamedTensors& all, const std::string& name) {
        for (const auto& [key, tensor] : all) {
          if (key == name) return tensor;
        }
        FAIL(name);
        return Tensor();
      };
      double squares = 0;
      for (const auto& [name, parameter] : fsdp.local_parameters()) {
        const bool ignored = name.starts_with("conv2") || name.starts_with("fc1");
        const Tensor whole = find(averages, name);
        if (ignored) {
          CHECK(parameter.same_as(find(model.named_parameters(), name)));
          CHECK(difference({{name, parameter.grad()}}, {{name, find(own, name)}}) == 0);
        } else {
          CHECK_FALSE(parameter.same_as(find(model.named_parameters(), name)));
          for (const double g : whole.to_vector<double>()) squares += g * g;
        }
      }
      CHECK(fsdp.local_parameters().size() == own.size());
      CHECK(fsdp.clip_grad_norm_(1e-3) == doctest::Approx(std::sqrt(squares)).epsilon(1e-12));
      CHECK(difference({{"", find(gradients_of(model.named_parameters()), "fc1.weight")}},
                       {{"", find(own, "fc1.weight")}}) == 0);  // not scaled
    });
  }
}

TEST_CASE("what is ignored is no part of a collective, and frozen there trains as one process") {
  for (const bool tied : {false, true}) {
    two([&](const Group& group, int rank) {
      // GPT's token table is its head, too.
      nn::GPT model = fresh(make_gpt), whole = fresh(make_gpt);
      const std::string path = tied ? "transformer.wte" : "transformer.wpe";
      for (nn::GPT* each : {&model, &whole}) each->requires_grad_(path, false);
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"GptBlock"}), .ignored_modules = {path}});
      nn::AdamW optimizer(fsdp.local_parameters()), expected(whole.named_parameters());
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        expected.zero_grad();
        const Batch batch = batch_of(model, 4, step);
        loss_of(fsdp, rows_of(batch, rank, 2)).backward();
        loss_of(whole, batch).backward();
        optimizer.step();
        expected.step();
      }
      CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
      CHECK_FALSE(contains(fsdp.explain(), path));
    });
  }
}

TEST_CASE("values, buffers and states of ignored modules are this rank's") {
  two([](const Group& group, int rank) {
    WithNorm model;
    {
      const NoGrad guard;
      model.norm.named_parameters()[0].second.copy_(full({3}, 1.0 + rank));
    }
    FSDP fsdp(model, group, {.ignored_modules = {"norm"}});
    nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 0.0});
    const Tensor x = mul(randn({4, 3}), 1.0 + rank);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      sum(mul(fsdp(x), fsdp(x))).backward();
      optimizer.step();
    }
    const NamedTensors state = fsdp.state_dict();
    WithNorm plain;
    plain.load_state_dict(state);
    const auto texts = [&](const NamedTensors& tensors) {
      std::string text;
      for (const auto& [name, tensor] : tensors) {
        for (const double v : cast(tensor, DType::f64).to_vector<double>()) {
          text += concat(name, " ", v, "\n");
        }
      }
      return group.all_gather_object(text);
    };
    CHECK(plain.norm.named_parameters()[0].second.to_vector<float>()[0] == 1.0F + rank);
    const auto norms = texts(model.norm.named_buffers());  // running mean and variance
    CHECK(norms[0] != norms[1]);
    const auto heads = texts(plain.head.named_parameters());
    CHECK(heads[0] == heads[1]);
    // The optimizer's, too, and it loads.
    const NamedTensors moments = fsdp.optimizer_state_dict(optimizer);
    const auto of_norm = [&](const auto& each) { return each.first.starts_with("norm.weight."); };
    CHECK(std::any_of(moments.begin(), moments.end(), of_norm));
    fsdp.load_optimizer_state_dict(optimizer, moments);
    CHECK(difference(fsdp.optimizer_state_dict(optimizer), moments) == 0);
    fsdp.zero_grad();
    for (const auto& [name, parameter] : fsdp.local_parameters()) {
      CHECK_FALSE(parameter.grad().defined());
    }
  });
}

TEST_CASE("a sharded checkpoint has the optimizer's state of ignored modules, too") {
  const Folder folder;
  NamedTensors expected;
  const auto train = [](FSDP& fsdp, nn::Optimizer& optimizer, const Group& group, int step) {
    optimizer.zero_grad();
    const Batch batch = batch_of(fresh(make_conv), 6, step);
    loss_of(fsdp, rows_of(batch, group.rank(), group.world())).backward();
    for (const auto& [name, parameter] : fsdp.local_parameters()) {
      if (name.starts_with("fc1")) {
        group.all_reduce(parameter.grad(), comm::ReduceOp::avg).wait();
      }
    }
    optimizer.step();
  };
  for (const int world : {2, 3}) {
    ranks(world, [&](const Group& group, int rank) {
      SmallConv model = fresh(make_conv);
      FSDP fsdp(model, group, {.ignored_modules = {"fc1"}});
      nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 0.1});
      const std::vector<nn::Part> parts{{"model", fsdp}, {"optimizer", fsdp.saved(optimizer)}};
      if (world == 2) {
        train(fsdp, optimizer, group, 1);
        nn::save_sharded(folder.path, parts, group);
        train(fsdp, optimizer, group, 2);
        const NamedTensors state = fsdp.state_dict();
        if (rank == 0) {
          for (const auto& [name, tensor] : state) expected.emplace_back(name, tensor.clone());
        }
      } else {
        nn::load_sharded(folder.path, parts, group);
        train(fsdp, optimizer, group, 2);
        CHECK(difference(fsdp.state_dict(), expected) < 1e-12);
      }
    });
  }
}

TEST_CASE("a checkpoint of ignored modules that differ between ranks is an Error on all") {
  const Folder folder;
  for (const bool differ : {false, true}) {
    CAPTURE(differ);
    two([&](const Group& group, int rank) {
      SmallConv model = fresh(make_conv);
      FSDP fsdp(model, group, {.ignored_modules = {"fc1"}});
      nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 0.0, .weight_decay = 0.0});
      const Batch batch = batch_of(model, 4, 1);
      loss_of(fsdp, differ ? rows_of(batch, rank, 2) : batch).backward();
      optimizer.step();  // moments
      const nn::Part of_optimizer{"optimizer", fsdp.saved(optimizer)};
      nn::Part of_model{"model", fsdp};
      const auto save = [&](const nn::Part& part) {
        return std::pair{error_of([&] { nn::save_sharded(folder.path, {part}, group); }),
                         error_of([&] { part.consolidate_state_dict(); })};
      };
      const auto check = [&](const nn::Part& part, bool fails, const std::string& name) {
        const auto [sharded, together] = save(part);
        CHECK((sharded == "nothing") != fails);
        CHECK((together == "nothing") != fails);
        if (!fails) return;
        check_has(sharded, name + " of digest");
        check_has(sharded, "(ignored_modules) one file cannot have");
        check_has(together, name + " of digest");
        check_has(together, "(ignored_modules) one file cannot have");
      };
      check(of_model, false, "");
      check(of_optimizer, differ, "fc1.weight.exp_avg");
      if (!differ) return;
      const NoGrad guard;
      if (rank == 1) add_(model.fc1.named_parameters()[1].second, full({7}, 1.0, DType::f64));
      check(of_model, true, "fc1.bias");
      CHECK(fsdp.state_dict().size() == 8);  // each rank's own
    });
  }
}

TEST_CASE("an optimizer of other names on one rank is an Error on all where states are gathered") {
  const auto all = failures(2, [&](const Group& group, int rank) {
    SmallConv model = fresh(make_conv);
    FSDP fsdp(model, group);
    NamedTensors named = fsdp.local_parameters();
    if (rank == 1) named.back().first = "another";
    nn::AdamW optimizer(named, {.lr = 0.1});
    loss_of(fsdp, batch_of(model, 2, rank)).backward();
    optimizer.step();
    fsdp.optimizer_state_dict(optimizer);
  });
  for (const std::string& message : all) {
    check_has(message, "rank 1: another.exp_avg");
    check_has(message, "is of no parameter of the model; make the optimizer of local_parameters()");
  }
}

TEST_CASE("a sharded checkpoint in which tied parameters differ gives the last one's value") {
  const Folder folder;
  nn::GPT whole = fresh(make_gpt);
  NamedTensors state;
  for (auto& [name, tensor] : whole.state_dict()) {
    const bool is_tied = name == "lm_head.weight" || name == "transformer.wte.weight";
    const double value = name == "lm_head.weight" ? 2.0 : 1.0;
    state.emplace_back(name, is_tied ? full(tensor.shape(), value, DType::f64) : tensor.clone());
  }
  std::reverse(state.begin(), state.end());  // in the model's order, whatever the file's
  whole.load_state_dict(state);
  const std::filesystem::path file = folder.path / "model.safetensors";
  std::filesystem::create_directories(folder.path);
  save_safetensors(file, state);
  two([&](const Group& group, int) {
    nn::GPT model = fresh(make_gpt);
    FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"GptBlock"})});
    nn::load_sharded(file, {{"model", fsdp}}, group);
    CHECK(difference(fsdp.state_dict(), whole.state_dict()) == 0);
  });
}

TEST_CASE("a module may be called as the groups of an optimizer's state are") {
  struct Grouped : nn::Module {
    nn::Linear groups = add("groups", nn::Linear(3, 2));
    Tensor forward(const Tensor& x) override { return groups(x); }
  };
  const Folder folder;
  two([&](const Group& group, int rank) {
    Grouped model;
    model.to(DType::f64);
    FSDP fsdp(model, group);
    nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 0.1});
    loss_of(fsdp, batch_of(model, 2, rank)).backward();
    optimizer.step();
    const NamedTensors state = fsdp.optimizer_state_dict(optimizer);
    const std::vector<nn::Part> parts{{"optimizer", fsdp.saved(optimizer)}};
    nn::save_sharded(folder.path, parts, group);
    optimizer.step();
    for (const bool shards : {false, true}) {
      if (shards) {
        nn::load_sharded(folder.path, parts, group);
      } else {
        fsdp.load_optimizer_state_dict(optimizer, state);
      }
      CHECK(difference(fsdp.optimizer_state_dict(optimizer), state) == 0);
      optimizer.step();
    }
  });
}

TEST_CASE("in mixed precision ignored modules stay of their type") {
  two([](const Group& group, int) {
    struct Cast : nn::Module {
      nn::Linear low = add("low", nn::Linear(2, 2));
      nn::Linear own = add("own", nn::Linear(2, 2));
      Tensor forward(const Tensor& x) override { return own(cast(low(x), DType::f32)); }
    };
    Cast model;
    FSDP fsdp(model, group,
              {.ignored_modules = {"own"}, .mixed_precision = {.param_dtype = DType::bf16}});
    const Tensor y = fsdp(full({1, 2}, 1.0));
    CHECK(y.dtype() == DType::f32);
    sum(y).backward();
    CHECK(model.own.named_parameters()[0].second.grad().dtype() == DType::f32);
    CHECK(model.low.named_parameters()[0].second.dtype() == DType::bf16);
  });
}

TEST_CASE("ignored modules that there are not, or that differ between ranks, are an Error on all") {
  const auto told = [](const std::function<std::vector<std::string>(int)>& paths) {
    return failure([&](const Group& group, int rank) {
      SmallConv model;
      FSDP fsdp(model, group, {.ignored_modules = paths(rank)});
    });
  };
  using Paths = std::vector<std::string>;
  CHECK(contains(told([](int) { return Paths{"conv3"}; }),
                 "ignored_modules: the model has no module 'conv3'"));
  CHECK(contains(told([](int) { return Paths{"fc1.weight"}; }),
                 "ignored_modules: the model has no module 'fc1.weight'"));
  CHECK(
      contains(told([](int) { return Paths{""}; }), "ignored_modules: the model has no module ''"));
  CHECK(contains(told([](int rank) { return rank == 0 ? Paths{} : Paths{"fc1"}; }), "fc1"));
}
