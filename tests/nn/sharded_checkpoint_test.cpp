// SPDX-License-Identifier: Apache-2.0
// Sharded checkpoints: what any number of ranks has saved goes on at any other, in FSDP, in DDP and
// in one process; each rank's file has its part, and the index says which elements that are.
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/requested_bytes.h>
#include <peal/nn/parallel/sharded/checkpoint_index.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "sharded_checkpoint_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

constexpr int before = 3, after = 6;  // steps until it is saved, and in all

struct Alone {
  std::vector<double> losses;
  NamedTensors values, moments;  // when it is saved
  Alone() {
    Training training(How::plain);
    training.steps(0, before);
    values = training.values();
    moments = training.moments();
    losses = training.steps(before, after);
  }
};

const Alone& alone() {
  static const Alone training;
  return training;
}

void check_losses(const std::vector<double>& losses) {
  REQUIRE(losses.size() == alone().losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    CHECK(std::abs(losses[i] - alone().losses[i]) < 1e-10);
  }
}

void save_by(How how, int world, const std::filesystem::path& folder) {
  ranks(world, [&](const Group& group, int) {
    Training training(how, group);
    training.steps(0, before);
    nn::save_sharded(folder, training.parts, group, {{"steps", "3"}});
  });
}

// With an optimizer that has had other steps, and other values, before; those that are frozen, too.
void check_goes_on(How how, int world, const std::filesystem::path& folder) {
  CAPTURE(world);
  CAPTURE(name_of(how));
  ranks(world, [&](const Group& group, int) {
    nn::GPT net = fresh(make_gpt);
    net.transformer.wpe.weight.detach().zero_();
    Training training(how, group, net);
    training.steps(10, 12);
    const nn::Checkpoint at = nn::load_sharded(folder, training.parts, group);
    CHECK(at.metadata == Metadata{{"steps", "3"}});
    CHECK(difference(training.values(), alone().values) < 1e-10);
    check_losses(training.steps(before, after));
  });
}

struct Five : nn::Module {
  Tensor w = add_parameter("w", Tensor::from(std::vector<double>{1, 2, 3, 4, 5}, {5}));
  Tensor count = add_buffer("count", full({2}, 7.0, DType::f64));
  Tensor forward(const Tensor& x) override { return sum(x * w); }
};

}  // namespace

TEST_CASE("of replicas that have the same pieces the first saves them, and all load") {
  const Folder folder;
  save_by(How::hybrid, 4, folder.path);
  check_goes_on(How::plain, 1, folder.path);
  check_goes_on(How::units, 3, folder.path);
  check_goes_on(How::hybrid, 4, folder.path);
  check_goes_on(How::hybrid, 2, folder.path);
}

TEST_CASE("saved by FSDP at 1, 2 and 4 ranks, it goes on at any number in any wrapper") {
  for (const int world : {4, 2, 1}) {
    const Folder folder;
    CAPTURE(world);
    save_by(How::units, world, folder.path);
    CHECK(folder.entries() == static_cast<std::size_t>(world) + 1);
    for (const int others : {1, 2, 3, 4}) {
      check_goes_on(How::units, others, folder.path);
      if (others > 1 && world != 2) check_goes_on(How::fsdp, others, folder.path);
    }
    for (const How how : {How::ddp, How::zero}) check_goes_on(how, world == 4 ? 3 : 2, folder.path);
    Training plain(How::plain);
    nn::load_sharded(folder.path, plain.parts);
    CHECK(difference(plain.values(), alone().values) < 1e-10);
    CHECK(difference(plain.moments(), alone().moments) < 1e-10);
    check_losses(plain.steps(before, after));
  }
}

TEST_CASE("saved by owners of an optimizer's state, or by one process, it goes on sharded") {
  const Folder folder;
  for (const int world : {3, 4}) {
    save_by(How::zero, world, folder.path / "zero");
    for (const How how : {How::units, How::zero, How::ddp}) {
      check_goes_on(how, 2, folder.path / "zero");
    }
    check_goes_on(How::zero, 4, folder.path / "zero");
  }
  save_by(How::ddp, 2, folder.path / "ddp");
  check_goes_on(How::units, 3, folder.path / "ddp");
  Training plain(How::plain);
  plain.steps(0, before);
  nn::save_sharded(folder.path / "plain", plain.parts, {}, {{"steps", "3"}});
  check_goes_on(How::units, 4, folder.path / "plain");
}

TEST_CASE("a plain checkpoint's file loads into sharded parts, and a model's file as well") {
  const Folder folder;
  Training plain(How::plain);
  plain.steps(0, before);
  nn::save(folder.path / "all", plain.parts, {{"steps", "3"}});
  nn::save_model(folder.path / "model", plain.model);
  for (const int world : {2, 3}) {
    check_goes_on(How::units, world, folder.path / "all");
    check_goes_on(How::zero, world, folder.path / "all");
    ranks(world, [&](const Group& group, int) {
      Training training(How::units, group);
      training.steps(0, 1);
      nn::load_sharded(folder.path / "model", {{"model", *training.fsdp}}, group);
      CHECK(difference(training.values(), alone().values) == 0);
      nn::load_sharded(folder.path / "all", {{"model", *training.fsdp}}, group, false);
      check_has(error_of([&] {
                  nn::load_sharded(folder.path / "all", {{"model", *training.fsdp}}, group);
                }),
                "not asked for: optimizer");
    });
  }
}

TEST_CASE("the same world gets back its very bits, and what was there before has gone") {
  const Folder folder;
  ranks(3, [&](const Group& group, int) {
    Training training(How::units, group);
    for (int turn = 0; turn < 3; ++turn) {
      training.steps(turn, turn + 1);
      nn::save_sharded(folder.path, training.parts, group);
    }
    const NamedTensors values = training.values(), moments = training.moments();
    training.steps(5, 7);
    nn::load_sharded(folder.path, training.parts, group);
    CHECK(difference(training.values(), values) == 0);
    CHECK(difference(training.moments(), moments) == 0);
  });
  CHECK(folder.entries() == 4);
  CHECK(std::filesystem::exists(folder.path / "shard-3-rank-2-of-3.safetensors"));
}

// A master has digits that its parameter has not, and starts again where that is younger.
TEST_CASE("masters of a model in bf16 keep their digits") {
  const auto in_bf16 = [] {
    nn::GPT model = fresh(make_gpt);
    model.to(DType::bf16);
    return model;
  };
  for (const How how : {How::units, How::zero}) {
    CAPTURE(name_of(how));
    const Folder folder;
    two([&](const Group& group, int) {
      Training training(how, group, in_bf16()), other(how, group, in_bf16());
      training.steps(0, before);
      nn::save_sharded(folder.path, training.parts, group);
      other.steps(7, 9);
      nn::load_sharded(folder.path, other.parts, group);
      CHECK(difference(other.moments(), training.moments()) == 0);
      training.steps(before, after);
      other.steps(before, after);
      CHECK(difference(other.values(), training.values()) == 0);
      CHECK(difference(other.moments(), training.moments()) == 0);
    });
  }
}

TEST_CASE("tied weights are written once, and are there by both names") {
  const Folder folder;
  save_by(How::units, 2, folder.path);
  const nn::CheckpointIndex index =
      nn::index_of_json(content_of(folder.path / nn::sharded_index_name), "index");
  int found = 0;
  for (const auto& [tensor, runs] : index.tensors) {
    if (tensor.name != "model.transformer.wte.weight" && tensor.name != "model.lm_head.weight") {
      continue;
    }
    ++found;
    for (const auto& run : runs) CHECK(run.tensor == index.tensors[0].runs[0].tensor);
  }
  CHECK(found == 2);
}

TEST_CASE("a rank's file has its own elements alone, and the index says which") {
  const Folder folder;
  ranks(4, [&](const Group& group, int) {
    Five five;
    FSDP fsdp(five, group);
    nn::save_sharded(folder.path, {{"model", fsdp}}, group);
  });
  // 5 on 4 ranks: 2, 2, 1, 0; buffers are rank 0's.
  const std::vector<std::vector<double>> expected{{1, 2}, {3, 4}, {5}, {}};
  for (int r = 0; r < 4; ++r) {
    const auto path = folder.path / concat("shard-1-rank-", r, "-of-4.safetensors");
    const Safetensors file = load_safetensors(path);
    CHECK(!file.checksum.empty());
    std::vector<double> got;
    for (const auto& [name, tensor] : file.tensors) {
      if (name == "model.w") got = tensor.to_vector<double>();
      CHECK((r == 0 || name == "model.w"));
    }
    CHECK(got == expected[static_cast<std::size_t>(r)]);
  }
  const std::string text = content_of(folder.path / nn::sharded_index_name);
  const nn::CheckpointIndex index = nn::index_of_json(text, "index");
  CHECK(nn::to_json(index) == text);
  CHECK(index.world == 4);
  CHECK(index.parts == std::vector<std::string>{"model"});
  REQUIRE(index.tensors.size() == 2);
  CHECK(index.tensors[0].tensor.name == "model.w");
  CHECK(index.tensors[0].tensor.shape == Shape{5});
  std::vector<std::int64_t> cuts;
  for (const auto& run : index.tensors[0].runs) {
    CHECK(run.file == cuts.size() / 2);
    cuts.push_back(run.begin);
    cuts.push_back(run.end);
  }
  CHECK(cuts == std::vector<std::int64_t>{0, 2, 2, 4, 4, 5});
  ranks(2, [&](const Group& group, int rank) {
    Five five;
    for (const Tensor& tensor : {five.w, five.count}) tensor.detach().zero_();
    FSDP fsdp(five, group);
    nn::load_sharded(folder.path, {{"model", fsdp}}, group);
    const Tensor mine = fsdp.local_parameters()[0].second;
    CHECK(mine.detach().to_vector<double>() ==
          (rank == 0 ? std::vector<double>{1, 2, 3} : std::vector<double>{4, 5}));
    CHECK(five.count.to_vector<double>() == std::vector<double>{7, 7});
  });
}

TEST_CASE("saving shards takes no more memory than a tensor of them, and a whole takes all") {
  constexpr std::int64_t layers = 8, wide = 128;
  constexpr std::size_t weight = wide * wide * 4, model = layers * (weight + wide * 4);
  const Folder folder;
  two([&](const Group& group, int rank) {
    nn::Sequential net;
    for (int i = 0; i < layers; ++i) net.push_back(nn::Linear(wide, wide));
    FSDP fsdp(net, group, {.wrap = nn::wrap_by_type({"Linear"})});
    nn::AdamW optimizer(fsdp.local_parameters());
    sum(fsdp(full({2, wide}, 1.0))).backward();
    optimizer.step();
    fsdp.zero_grad();
    const std::vector<nn::Part> parts{{"model", fsdp}, {"optimizer", fsdp.saved(optimizer)}};
    // Of both ranks, which are threads of one process.
    const auto peak_of = [&](const std::function<void()>& f) {
      group.barrier().wait();
      const std::size_t before = cpu_requested_bytes().now;
      if (rank == 0) cpu_reset_peak();
      group.barrier().wait();
      f();
      group.barrier().wait();
      return cpu_requested_bytes().most - before;
    };
    CHECK(peak_of([&] { nn::save_sharded(folder.path, parts, group); }) <= weight);
    CHECK(peak_of([&] {
            for (const nn::Part& part : parts) part.consolidate_state_dict();
            if (rank == 0) nn::save(folder.path / "whole", parts);
          }) >= 3 * model);
  });
}

TEST_CASE("numbers of all ranks go along as parts: random places and schedules") {
  const Folder folder;
  ranks(2, [&](const Group& group, int) {
    Five five;
    FSDP fsdp(five, group);
    nn::AdamW optimizer(fsdp.local_parameters());
    nn::StepLR schedule(optimizer, 1);
    const std::vector<nn::Part> parts{{"model", fsdp},
                                      {"optimizer", fsdp.saved(optimizer)},
                                      {"schedule", schedule},
                                      {"random", RandomState()}};
    fsdp(full({5}, 1.0, DType::f64)).backward();
    optimizer.step();
    schedule.step();
    randn({3});
    nn::save_sharded(folder.path, parts, group);
    const auto next = randn({3}).to_vector<float>();
    const double lr = optimizer.lr();
    schedule.step();
    nn::load_sharded(folder.path, parts, group);
    CHECK(optimizer.lr() == lr);
    CHECK(randn({3}).to_vector<float>() == next);
  });
}
