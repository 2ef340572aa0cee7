// SPDX-License-Identifier: Apache-2.0
// FSDP over a mesh of two dimensions (HSDP): shards within its rows, replicas along its columns.
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/sgd.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

using comm::Collective;
using comm::DeviceMesh;
using Mesh = std::array<int, 2>;

DeviceMesh mesh_of(const Group& group, const Mesh& shape) {
  return {group, {shape[0], shape[1]}, {"replicate", "shard"}};
}

// A backward of each microbatch, of which the last alone is reduced.
void backward_in_two(FSDP& fsdp, nn::Module model, const Group& group, int step) {
  const auto backward = [&](int micro) {
    const Batch batch = batch_of(model, 2 * group.world(), 2 * step + micro);
    mul(loss_of(fsdp, rows_of(batch, group.rank(), group.world())), 0.5).backward();
  };
  {
    const auto scope = fsdp.no_sync();
    backward(0);
  }
  backward(1);
}

// What 20 accumulated and clipped steps make on a mesh, beside one process.
template <class M>
void check_steps(M (*make)(), const Mesh& shape, const nn::WrapPolicy& wrap) {
  const int world = shape[0] * shape[1];
  ranks(world, [&](const Group& group, int) {
    M model = fresh(make), whole = fresh(make);
    FSDP fsdp(model, group, {.wrap = wrap, .device_mesh = mesh_of(group, shape)});
    nn::AdamW optimizer(fsdp.local_parameters()), expected(whole.named_parameters());
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      expected.zero_grad();
      backward_in_two(fsdp, model, group, step);
      for (int micro = 0; micro < 2; ++micro) {
        mul(loss_of(whole, batch_of(whole, 2 * world, 2 * step + micro)), 0.5).backward();
      }
      const double norm = fsdp.clip_grad_norm_(0.5);
      const Tensor theirs = nn::clip_grad_norm_(whole.parameters(), 0.5);
      CHECK(norm == doctest::Approx(theirs.item<double>()).epsilon(1e-12));
      optimizer.step();
      expected.step();
    }
    CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-10);
    CHECK(difference(fsdp.optimizer_state_dict(optimizer), expected.state_dict()) < 1e-10);
  });
}

// Two parts, of which a rank may leave one out.
struct Optional : nn::Module {
  nn::Linear a = add("a", nn::Linear(3, 3));
  nn::Linear b = add("b", nn::Linear(3, 3));
  bool with_b = true;
  Tensor forward(const Tensor& x) override { return with_b ? b(a(x)) : a(x); }
};

}  // namespace

TEST_CASE("on any mesh steps are those of one process") {
  for (const Mesh& shape : {Mesh{2, 2}, Mesh{1, 4}, Mesh{4, 1}, Mesh{2, 1}, Mesh{1, 2}}) {
    CAPTURE(shape[0]);
    CAPTURE(shape[1]);
    check_steps(make_conv, shape, nn::wrap_by_type({"Linear"}));
    check_steps(make_gpt, shape, nn::wrap_by_type({"GptBlock"}));
  }
}

TEST_CASE("replicas start as rank 0, stay equal, and talk within rows but for a part each") {
  ranks(4, [&](const Group& group, int rank) {
    manual_seed(static_cast<std::uint64_t>(rank));
    SmallConv model;
    model.to(DType::f64);
    const DeviceMesh mesh = mesh_of(group, {2, 2});
    FSDP fsdp(model, group, {.device_mesh = mesh});
    CHECK(contains(fsdp.explain(), "2 replicas of 2 shards"));
    const auto texts_of = [&](const NamedTensors& tensors) {
      std::string text;
      for (const auto& [name, tensor] : tensors) {
        for (const double value : tensor.to_vector<double>())
          text += concat(name, " ", value, "\n");
      }
      return group.all_gather_object(text);
    };
    nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1});
    std::int64_t mine = 0, all = 0;
    for (const auto& [name, piece] : fsdp.local_parameters()) mine += piece.numel();
    for (const auto& [name, tensor] : fsdp.state_dict()) all += tensor.numel();
    CHECK(std::abs(2 * mine - all) <= 2);
    for (int step = 0; step < 3; ++step) {
      const auto texts = texts_of(fsdp.local_parameters());
      CHECK(texts[0] == texts[2]);
      CHECK(texts[1] == texts[3]);
      CHECK(texts[0] != texts[1]);
      optimizer.zero_grad();
      const auto row = mesh.get_group("shard").counters();
      const auto column = mesh.get_group("replicate").counters();
      const auto everybody = group.counters();
      loss_of(fsdp, rows_of(batch_of(model, 4, step), rank, 4)).backward();
      const auto in_row = mesh.get_group("shard").counters() - row;
      const auto in_column = mesh.get_group("replicate").counters() - column;
      const auto in_all = group.counters() - everybody;
      CHECK(in_row[Collective::reduce_scatter].bytes ==
            2 * in_column[Collective::all_reduce].bytes);
      CHECK(in_row[Collective::all_gather].calls > 0);
      CHECK(in_column[Collective::all_gather].calls == 0);
      CHECK(in_all[Collective::all_gather].calls + in_all[Collective::reduce_scatter].calls == 0);
      optimizer.step();
    }
  });
}

TEST_CASE("a norm is one sum of all ranks, and so the same bits on all") {
  ranks(4, [&](const Group& group, int rank) {
    SmallConv model = fresh(make_conv);
    const DeviceMesh mesh = mesh_of(group, {2, 2});
    FSDP fsdp(model, group, {.device_mesh = mesh});
    loss_of(fsdp, rows_of(batch_of(model, 4, 1), rank, 4)).backward();
    const auto before = group.counters(), row_before = mesh.get_group("shard").counters();
    const double norm = fsdp.clip_grad_norm_(0.01);
    const auto all = group.counters() - before;
    const auto row = mesh.get_group("shard").counters() - row_before;
    CHECK(all[Collective::all_reduce].calls == 1);
    CHECK(row[Collective::all_reduce].calls == 0);
    const std::string bits = concat(std::bit_cast<std::uint64_t>(norm));
    for (const std::string& each : group.all_gather_object(bits)) CHECK(each == bits);
    CHECK(fsdp.clip_grad_norm_(0.01) == doctest::Approx(0.01).epsilon(1e-3));
  });
}

TEST_CASE("states of a mesh load at other meshes, and go on the same") {
  NamedTensors model_state, optimizer_state, end;
  const auto train = [](FSDP& fsdp, nn::AdamW& optimizer, const SmallConv& model,
                        const Group& group, int from) {
    for (int step = from; step < from + 3; ++step) {
      optimizer.zero_grad();
      const Batch batch = batch_of(model, 4, step);
      loss_of(fsdp, rows_of(batch, group.rank(), group.world())).backward();
      optimizer.step();
    }
  };
  ranks(4, [&](const Group& group, int rank) {
    SmallConv model = fresh(make_conv);
    FSDP fsdp(model, group, {.device_mesh = mesh_of(group, {2, 2})});
    nn::AdamW optimizer(fsdp.local_parameters());
    train(fsdp, optimizer, model, group, 0);
    const nn::ShardedState parts[]{fsdp.saved(), fsdp.saved(optimizer)};
    for (nn::ShardedState part : parts) part.consolidate_state_dict(3);
    if (rank == 3) {
      model_state = parts[0].state_dict();
      optimizer_state = parts[1].state_dict();
    }
    train(fsdp, optimizer, model, group, 3);
    const NamedTensors last = fsdp.state_dict();
    if (rank == 0) end = last;
  });
  for (const Mesh& shape : {Mesh{4, 1}, Mesh{1, 2}, Mesh{2, 1}, Mesh{2, 2}}) {
    ranks(shape[0] * shape[1], [&](const Group& group, int) {
      SmallConv model = fresh(make_conv);
      FSDP fsdp(model, group, {.device_mesh = mesh_of(group, shape)});
      nn::AdamW optimizer(fsdp.local_parameters());
      fsdp.load_state_dict(model_state);
      fsdp.load_optimizer_state_dict(optimizer, optimizer_state);
      train(fsdp, optimizer, model, group, 3);
      CHECK(difference(fsdp.state_dict(), end) < 1e-12);
    });
  }
}

TEST_CASE("a mesh in bf16 is exact where bf16 is") {
  ranks(4, [&](const Group& group, int rank) {
    nn::Linear model(2, 3);
    make_whole(model);
    FSDP fsdp(
        model, group,
        {.mixed_precision = {.param_dtype = DType::bf16}, .device_mesh = mesh_of(group, {2, 2})});
    mul(sum(fsdp(full({1, 2}, static_cast<double>(rank)))), 4.0).backward();
    for (const auto& [name, piece] : fsdp.local_parameters()) {
      const float each = name == "weight" ? 0 + 1 + 2 + 3 : 4;
      if (piece.numel() == 0) continue;
      for (const float value : piece.grad().to_vector<float>()) CHECK(value == each);
    }
  });
}

TEST_CASE("a mesh that is not of two dimensions, or of other ranks, is an Error on all") {
  const auto told = [](const std::function<DeviceMesh(const Group&)>& make) {
    const auto all = failures(4, [&](const Group& group, int) {
      const DeviceMesh mesh = make(group);
      SmallConv model;
      FSDP fsdp(model, group, {.device_mesh = mesh});
    });
    for (const std::string& each : all) CHECK(each == all[0]);
    return all[0];
  };
  CHECK(contains(told([](const Group& group) { return DeviceMesh(group, {4}); }),
                 "device_mesh: expected two dimensions, replicas and shards, got dim_0 4"));
  CHECK(contains(told([](const Group& group) {
                   return DeviceMesh(group, {1, 2, 2});
                 }),
                 "device_mesh: expected two dimensions"));
  CHECK(contains(told([](const Group& group) {
                   return DeviceMesh(group.split(group.rank() / 2), {1, 2});
                 }),
                 "is not of this group of 4 ranks"));
  CHECK(contains(told([](const Group& group) {
                   return DeviceMesh(group.split(0, -group.rank()), {2, 2});
                 }),
                 "is not of this group of 4 ranks"));
}

TEST_CASE("a mesh that one rank leaves out of its options is an Error on all") {
  const auto all = failures(2, [](const Group& group, int rank) {
    const DeviceMesh mesh = mesh_of(group, {1, 2});
    SmallConv model;
    nn::FSDPOptions options;
    if (rank == 0) options.device_mesh = mesh;
    FSDP fsdp(model, group, options);
  });
  for (const std::string& each : all) CHECK(contains(each, "device_mesh"));
}

TEST_CASE("a rank, or a whole replica, that leaves out a part of the model is an Error on all") {
  for (const int first : {2, 3}) {  // from this rank on
    const auto all = failures(4, [&](const Group& group, int rank) {
      Optional model;
      model.with_b = rank < first;
      FSDP fsdp(model, group,
                {.wrap = nn::wrap_by_name({"b"}), .device_mesh = mesh_of(group, {2, 2})});
      sum(fsdp(full({1, 3}, 1.0))).backward();
      group.barrier().wait();
    });
    for (const std::string& each : all) CHECK(contains(each, "all ranks must make the same calls"));
  }
}

TEST_CASE("what one rank finds wrong is told to those that wait for it in rows and columns") {
  const auto all = failures(4, [&](const Group& group, int rank) {
    Optional model;
    model.with_b = rank != 3;
    FSDP fsdp(model, group, {.device_mesh = mesh_of(group, {2, 2})});
    sum(fsdp(full({1, 3}, 1.0))).backward();
    group.barrier().wait();
  });
  for (const std::string& each : all) {
    CHECK(contains(each, "[fsdp] rank 3: step 1: b.weight, b.bias of the model got no gradient"));
  }
}
