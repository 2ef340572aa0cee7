// SPDX-License-Identifier: Apache-2.0
// Models with tensor-parallel layers in other wrappers, over the other dimension of a mesh: FSDP
// and pipelines train as one process, with its norms and its states; and what cannot be right is
// refused.
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/core/out_of_memory.h>
#include <peal/comm/group/device_mesh.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/layers/activation.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/pipeline/pipe.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>
#include <peal/nn/parallel/sharded/sharded_ddp.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <limits>
#include <new>

#include "tensor_parallel_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

using comm::DeviceMesh;

// A GPT that is cut over one dimension of a mesh and sharded over the other.
struct Sharded {
  DeviceMesh mesh;
  nn::TensorParallel tp;
  FSDP fsdp;
  nn::AdamW optimizer;

  explicit Sharded(const DeviceMesh& over, bool sequence = false,
                   const nn::MixedPrecision& precision = {})
      : mesh(over),
        tp(nn::parallelize_module(fresh(gpt_of_four_heads), mesh.get_group("tp"),
                                  plan(true, sequence))),
        fsdp(tp, mesh.get_group("dp"),
             {.wrap = nn::wrap_by_type({"GptBlock"}), .mixed_precision = precision}),
        optimizer(fsdp.local_parameters(), adam) {}

  // Of this rank's share; the norm of all gradients before they are clipped.
  double step(int number) {
    const DeviceMesh& over = mesh;
    fsdp.zero_grad();
    const Batch all = tokens_of(number);
    const int places = over.get_group("dp").world();
    loss_of(fsdp, rows_of(all, over.get_local_rank("dp"), places)).backward();
    const double norm = fsdp.clip_grad_norm_(most);
    optimizer.step();
    return norm;
  }
};

DeviceMesh dp_tp(const Group& group, int dp, int tp) { return {group, {dp, tp}, {"dp", "tp"}}; }

// Of its parameters none is cut any more by its own name, as under weight_norm.
struct CutByNoName : nn::Module, nn::CutLayer {
  nn::Linear fc = add("fc", nn::Linear(2, 2));
  Group over;
  explicit CutByNoName(Group ranks) : over(std::move(ranks)) {}
  const Group& group() const override { return over; }
  std::optional<Shape> whole_shape(std::string_view) const override { return {}; }
  Tensor take_part(std::string_view, const Tensor& whole) const override { return whole; }
  Tensor bring_together(std::string_view, const Tensor& part, std::string_view) const override {
    return part;
  }
};

}  // namespace

TEST_CASE("sharded over one dimension of a mesh and cut over the other, a GPT is one process") {
  const Trained& one = by_one_process();
  for (const bool sequence : {false, true}) {
    for (const int dp : {1, 2}) {
      CAPTURE(sequence);
      CAPTURE(dp);
      ranks(2 * dp, [&](const Group& group, int) {
        Sharded here(dp_tp(group, dp, 2), sequence);
        PEAL_CHECK(difference(here.fsdp.state_dict(), one.start) == 0, "the start differs");
        for (std::size_t step = 0; step < steps; ++step) {
          const double norm = here.step(static_cast<int>(step));
          PEAL_CHECK(std::abs(norm - one.norms[step]) < 1e-10, "the norm of step ", step, " is ",
                     norm, ", of one process ", one.norms[step]);
        }
        CHECK(difference(here.fsdp.state_dict(), one.state) < 1e-10);
        CHECK(difference(only_tensors(here.fsdp.optimizer_state_dict(here.optimizer)),
                         only_tensors(one.moments)) < 1e-10);
      });
    }
  }
}

TEST_CASE("a norm of infinite order is the largest of all parts") {
  ranks(4, [](const Group& group, int rank) {
    Sharded here(dp_tp(group, 2, 2));
    loss_of(here.fsdp, tokens_of(0)).backward();
    for (const auto& [name, piece] : here.fsdp.local_parameters()) {
      if (piece.numel() > 0) fill_(piece.grad(), rank);
    }
    CHECK(here.fsdp.clip_grad_norm_(1.0, std::numeric_limits<double>::infinity()) == 3);
  });
}

TEST_CASE("states of a cut and sharded model go into one process, and into other meshes") {
  NamedTensors model, moments;  // after three steps
  ranks(4, [&](const Group& group, int rank) {
    Sharded here(dp_tp(group, 2, 2));
    for (int step = 0; step < 3; ++step) here.step(step);
    const nn::Part whole{"model", here.fsdp}, state{"optimizer", here.fsdp.saved(here.optimizer)};
    for (const nn::Part& part : {whole, state}) part.consolidate_state_dict();
    if (rank == 0) {
      model = copies(whole.state_dict());
      moments = copies(state.state_dict());
    } else {
      check_has(error_of([&] { whole.state_dict(); }), "lies with 2 ranks");
    }
    const auto all = here.fsdp.summon_full_parameters();
    check_has(error_of([&] { nn::save_model("/none/model", here.tp); }), "is this rank's piece");
  });
  nn::GPT plain = fresh(gpt_of_four_heads);
  nn::AdamW optimizer(plain.named_parameters(), adam);
  plain.load_state_dict(model);
  optimizer.load_state_dict(moments);
  loss_of(plain, tokens_of(3)).backward();
  nn::clip_grad_norm_(plain.parameters(), most);
  optimizer.step();
  for (const auto& [dp, tp] : {std::pair(1, 4), std::pair(4, 1), std::pair(2, 2)}) {
    CAPTURE(dp);
    ranks(4, [&, dp = dp, tp = tp](const Group& group, int) {
      Sharded here(dp_tp(group, dp, tp));
      nn::Part{"model", here.fsdp}.load_state_dict(model);
      nn::Part{"optimizer", here.fsdp.saved(here.optimizer)}.load_state_dict(moments);
      CHECK(difference(here.fsdp.state_dict(), model) == 0);
      here.step(3);
      CHECK(difference(here.fsdp.state_dict(), plain.state_dict()) < 1e-10);
      if (tp == 1) return;
      NamedTensors wrong = model;
      wrong[0].second = wrong[0].second.rows(0, 6);
      check_has(error_of([&] { here.fsdp.load_state_dict(wrong); }),
                "expected [12, 8], got [6, 8]");
    });
  }
}

TEST_CASE("where each group that shards is one rank, any of those that have parts saves") {
  ranks(2, [](const Group& group, int rank) {
    Sharded here(dp_tp(group, 1, 2));
    here.step(0);
    const NamedTensors model = here.fsdp.state_dict(),
                       moments = here.fsdp.optimizer_state_dict(here.optimizer);
    for (const int to : {0, 1}) {
      nn::ShardedState whole = here.fsdp.saved(), state = here.fsdp.saved(here.optimizer);
      for (nn::ShardedState* const each : {&whole, &state}) each->consolidate_state_dict(to);
      if (rank == to) {
        CHECK(difference(whole.state_dict(), model) == 0);
        CHECK(difference(state.state_dict(), moments) == 0);
      } else {
        check_has(error_of([&] { whole.state_dict(); }), "lies with 2 ranks");
      }
    }
  });
}

TEST_CASE("a cut and sharded model in bf16 keeps alike what is whole") {
  ranks(4, [](const Group& group, int) {
    Sharded here(dp_tp(group, 2, 2), true, {.param_dtype = DType::bf16});
    for (int step = 0; step < 3; ++step) here.step(step);
    for (const auto& [name, piece] : here.fsdp.local_parameters()) {
      PEAL_CHECK(here.tp.cut_of(name) || same_everywhere(piece.detach(), here.mesh.get_group("tp")),
                 name, " differs between ranks that have the same of it");
    }
  });
}

TEST_CASE("parts of layers that do not divide among ranks: steps, norms and states") {
  const auto made =
      +[] { return nn::Sequential(nn::Linear(5, 6), nn::Tanh(), nn::Linear(6, 1, false)); };
  const auto batch_of_step = [](int step) {
    manual_seed(static_cast<std::uint64_t>(step) + 60);
    return Batch{randn({12, 5}, DType::f64), randn({12, 1}, DType::f64)};
  };
  const auto loss_of_rows = [](nn::Module& model, const Batch& batch) {
    return sum(square(model(batch.x) - batch.y)) / static_cast<double>(batch.x.size(0));
  };
  nn::Sequential net = fresh(made);
  nn::AdamW expected(net.named_parameters(), adam);
  std::vector<double> norms;
  NamedTensors after_two, moments;
  for (int step = 0; step < 3; ++step) {
    if (step == 2) after_two = copies(net.state_dict());
    expected.zero_grad();
    loss_of_rows(net, batch_of_step(step)).backward();
    norms.push_back(nn::clip_grad_norm_(net.parameters(), 0.3).item<double>());
    expected.step();
  }
  // Of the first layer 18 elements on 4 ranks are 5, 5, 5 and 3, of the second 3 are 1, 1, 1 and
  // none; on 3 ranks they are 6 each and 1 each; parts for three leave 12 and 2.
  for (const auto& [dp, tp] : {std::pair(4, 2), std::pair(3, 2), std::pair(2, 3)}) {
    CAPTURE(dp);
    CAPTURE(tp);
    ranks(dp * tp, [&, dp = dp, tp = tp](const Group& group, int rank) {
      const DeviceMesh mesh = dp_tp(group, dp, tp);
      nn::TensorParallel cut =
          nn::parallelize_module(fresh(made), mesh.get_group("tp"),
                                 {{"0", nn::ColwiseParallel{}}, {"2", nn::RowwiseParallel{}}});
      FSDP fsdp(cut, mesh.get_group("dp"), {.wrap = nn::wrap_by_name({"0", "2"})});
      nn::AdamW optimizer(fsdp.local_parameters(), adam);
      const nn::Part model{"model", fsdp}, state{"optimizer", fsdp.saved(optimizer)};
      if (!moments.empty()) {  // from the mesh before
        model.load_state_dict(after_two);
        state.load_state_dict(moments);
      }
      for (int step = moments.empty() ? 0 : 2; step < 3; ++step) {
        if (step == 2 && dp == 4) {
          PEAL_CHECK(difference(fsdp.state_dict(), after_two) < 1e-10);
          state.consolidate_state_dict();
          group.barrier().wait();  // nobody asks any more whether there are some
          if (rank == 0) moments = copies(state.state_dict());
        }
        fsdp.zero_grad();
        loss_of_rows(fsdp, rows_of(batch_of_step(step), mesh.get_local_rank("dp"), dp)).backward();
        const double norm = fsdp.clip_grad_norm_(0.3);
        PEAL_CHECK(std::abs(norm - norms[static_cast<std::size_t>(step)]) < 1e-10, "step ", step,
                   ": the norm is ", norm);
        optimizer.step();
      }
      PEAL_CHECK(difference(fsdp.state_dict(), net.state_dict()) < 1e-10);
    });
  }
}

TEST_CASE("what no checkpoint has, and groups whose ranks have other parts, are Errors on all") {
  const Folder folder;
  nn::save_sharded(folder.path, {{"model", fresh(gpt_of_four_heads)}});
  ranks(4, [&folder](const Group& group, int) {
    Sharded here(dp_tp(group, 2, 2));
    const nn::TensorParallel alone =
        nn::parallelize_module(fresh(gpt_of_four_heads), here.mesh.get_group("tp"), plan(true));
    nn::AdamW optimizer(alone.named_parameters(), adam);
    for (const nn::Part& part :
         {nn::Part{"model", here.fsdp}, nn::Part{"model", here.fsdp.saved(here.optimizer)},
          nn::Part{"model", alone}, nn::Part{"model", alone.saved(optimizer)}}) {
      check_has(error_of([&] { nn::save_sharded("/none/sharded", {part}, group); }),
                "of a tensor-parallel model");
      check_has(error_of([&] { nn::load_sharded(folder.path, {part}, group); }),
                "of a tensor-parallel model");
    }
    const std::string mixed = "cut over 2 ranks, of which rank";
    const auto cut = [&] {
      return nn::parallelize_module(fresh(gpt_of_four_heads), here.mesh.get_group("tp"),
                                    plan(true));
    };
    check_has(error_of([&] { const DDP ddp(cut(), group); }), mixed);
    check_has(error_of([&] { const DDP ddp(CutByNoName(group), group); }),
              "cut over 4 ranks, of which rank");
    check_has(error_of([&] { const FSDP fsdp(cut(), group); }), mixed);
    nn::Sequential layers{nn::Linear(4, 4), nn::Tanh(), nn::Tanh(), nn::Tanh()};
    nn::parallelize_module(layers, here.mesh.get_group("tp"), {{"0", nn::ColwiseParallel{}}});
    check_has(error_of([&] { const nn::Pipe pipe(group, layers, {}); }), mixed);
    check_has(error_of([&] {
                const nn::ZeroRedundancyOptimizer<nn::AdamW> zero(
                    here.mesh.get_group("dp"), nn::Parameters(cut().named_parameters()));
              }),
              "piece");
  });
}

namespace {

nn::Sequential eight_layers() {
  manual_seed(5);
  nn::Sequential net{nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 6), nn::Tanh(),
                     nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 4), nn::Linear(4, 2)};
  net.to(DType::f64);
  return net;
}

Tensor summed_squares(const Tensor& y, const Tensor& target) { return sum(square(y - target)); }

Batch numbers_of(int step) {
  manual_seed(static_cast<std::uint64_t>(step) + 50);
  return {randn({10, 6}, DType::f64), randn({10, 2}, DType::f64)};
}

}  // namespace

TEST_CASE("a pipeline of cut layers is one process, its norms and its states, too") {
  nn::Sequential net = eight_layers();
  nn::SGD expected(net.named_parameters(), {.lr = 0.1, .momentum = 0.9});
  std::vector<double> norms;
  NamedTensors model, state;  // after two steps
  const auto step_alone = [&](int step) {
    expected.zero_grad();
    const Batch batch = numbers_of(step);
    (summed_squares(net(batch.x), batch.y) / 10.0).backward();
    norms.push_back(nn::clip_grad_norm_(net.parameters(), 0.3).item<double>());
    expected.step();
  };
  for (int step = 0; step < 3; ++step) {
    if (step == 2) model = copies(net.state_dict());
    if (step == 2) state = copies(expected.state_dict());
    step_alone(step);
  }
  const nn::TensorParallelPlan by_turns{{"0", nn::ColwiseParallel{}},
                                        {"2", nn::RowwiseParallel{}},
                                        {"4", nn::ColwiseParallel{}},
                                        {"6", nn::RowwiseParallel{}}};
  for (const auto kind : comm::pipeline::all_kinds) {
    for (const bool last_is_whole : {false, true}) {  // of the second stage nothing is cut
      CAPTURE(name(kind));
      CAPTURE(last_is_whole);
      ranks(4, [&](const Group& group, int rank) {
        const DeviceMesh mesh(group, {2, 2}, {"pp", "tp"});
        nn::Sequential cut = eight_layers();
        nn::TensorParallelPlan some = by_turns;
        if (last_is_whole) some.resize(2);
        nn::parallelize_module(cut, mesh.get_group("tp"), some);
        nn::Pipe pipe(mesh.get_group("pp"), cut, {.kind = kind, .micro_batches = 3});
        nn::SGD optimizer(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
        const auto step = [&](int number) {
          optimizer.zero_grad();
          const Batch batch = numbers_of(number);
          pipe.step(batch.x, batch.y, summed_squares);
          const double norm = pipe.clip_grad_norm_(0.3);
          PEAL_CHECK(std::abs(norm - norms[static_cast<std::size_t>(number)]) < 1e-10, "step ",
                     number, ": the norm is ", norm);
          optimizer.step();
        };
        for (int number = 0; number < 2; ++number) step(number);
        PEAL_CHECK(difference(pipe.state_dict(), model) < 1e-10);
        const nn::Part part{"optimizer", pipe.saved(optimizer)};
        part.consolidate_state_dict();
        if (rank == 0) {
          PEAL_CHECK(difference(only_tensors(part.state_dict()), only_tensors(state)) < 1e-10);
        }
        pipe.load_state_dict(model);
        part.load_state_dict(state);
        step(2);
        PEAL_CHECK(difference(pipe.state_dict(), net.state_dict()) < 1e-10);
      });
    }
  }
}

TEST_CASE("a pipeline of one rank whose layers are cut is saved by any rank that has parts") {
  ranks(2, [](const Group& group, int rank) {
    const DeviceMesh mesh(group, {1, 2}, {"pp", "tp"});
    nn::Sequential net = eight_layers(), cut = eight_layers();
    nn::parallelize_module(cut, mesh.get_group("tp"),
                           {{"0", nn::ColwiseParallel{}}, {"2", nn::RowwiseParallel{}}});
    nn::Pipe pipe(mesh.get_group("pp"), cut, {.micro_batches = 2});
    nn::SGD optimizer(pipe.parameters(), {.lr = 0.1, .momentum = 0.9});
    nn::SGD expected(net.named_parameters(), {.lr = 0.1, .momentum = 0.9});
    const Batch batch = numbers_of(0);
    pipe.step(batch.x, batch.y, summed_squares);
    optimizer.step();
    (summed_squares(net(batch.x), batch.y) / 10.0).backward();
    expected.step();
    for (const int to : {0, 1}) {
      nn::ShardedState whole = pipe.saved(), state = pipe.saved(optimizer);
      for (nn::ShardedState* const each : {&whole, &state}) each->consolidate_state_dict(to);
      if (rank == to) {
        CHECK(difference(whole.state_dict(), net.state_dict()) < 1e-10);
        CHECK(difference(only_tensors(state.state_dict()), only_tensors(expected.state_dict())) <
              1e-10);
      } else {
        check_has(error_of([&] { whole.state_dict(); }), "lies with 2 ranks");
      }
    }
  });
}

TEST_CASE("a rank that has no memory for its parts tells the others, and has an OutOfMemory") {
  for (const bool of_a_device : {true, false}) {
    const std::string all = failure([&](const Group& group, int rank) {
      nn::Sequential net{
          nn::Linear(deferred_tensor({4, 4}, DType::f32, Device{}, [&](const Tensor& weight) {
            if (rank == 1 && of_a_device) throw OutOfMemory("cuda: none is left");
            if (rank == 1) throw std::bad_alloc();
            weight.zero_();
          }))};
      bool ran_out = false;
      const std::string words = error_of([&] {
        try {
          nn::parallelize_module(net, group, {{"0", nn::ColwiseParallel{}}});
        } catch (const OutOfMemory&) {
          ran_out = true;
          throw;
        }
      });
      CHECK(ran_out == (rank == 1));
      check_has(words,
                "rank 1: 0.weight, which was made empty, cannot get its values: out of memory");
    });
    check_has(all, "out of memory");
  }
}

TEST_CASE("a rank that cannot cut its layers tells the others") {
  const std::string all = failure([](const Group& group, int rank) {
    nn::Sequential net{nn::Linear(4, 4), nn::Linear(4, 4)};
    if (rank == 1) {  // it finds that out where it makes its part
      net.child("1").get_parameter("weight").storage()->drop();
    }
    const std::string words = error_of([&] {
      nn::parallelize_module(net, group,
                             {{"0", nn::ColwiseParallel{}}, {"1", nn::RowwiseParallel{}}});
    });
    check_has(words, "rank 1: the model could not be cut");
  });
  check_has(all, "could not be cut");
}
