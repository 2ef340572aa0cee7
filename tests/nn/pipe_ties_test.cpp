// SPDX-License-Identifier: Apache-2.0
// Tied parameters of a pipe: layers of several ranks share one, and a step is that of one process.
#include <peal/comm/group/device_mesh.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>

#include <unistd.h>
#include <filesystem>
#include <set>

#include "pipe_ranks.h"

using namespace peal;
using namespace peal::testing;
using comm::pipeline::Kind;

namespace {

// A weight in the first, the middle and the last layers, a bias in two, and more between.
nn::Sequential tied_model() {
  manual_seed(11);
  const Tensor wide = randn({6, 6}) * 0.3, bias = randn({6}) * 0.1;
  nn::Sequential net{nn::Linear(5, 6), nn::Linear(wide, bias), nn::Tanh(), nn::Linear(6, 6),
                     nn::Tanh(),       nn::Linear(wide),       nn::Tanh(), nn::Linear(6, 6),
                     nn::Tanh(),       nn::Linear(wide, bias), nn::Tanh(), nn::Linear(6, 2)};
  net.to(DType::f64);
  return net;
}

constexpr nn::AdamWOptions tied_adam{.lr = 0.01, .weight_decay = 0.1};

struct File {
  File() : path(std::filesystem::temp_directory_path() / concat("peal_pipe_ties_", getpid())) {}
  ~File() { std::filesystem::remove(path); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const std::filesystem::path path;
};

Tensor loss_of(nn::Sequential& net, int step) {
  return squares(net(input_of(step)), target_of()) * (1.0 / rows);
}

}  // namespace

TEST_CASE("tied parameters of every schedule are those of one process, at 1 to 4 ranks") {
  const Trained one = trained_alone(tied_model, 3);
  for (const auto mode : {nn::CheckpointMode::never, nn::CheckpointMode::always}) {
    every_schedule({1, 4}, [&](const Group& group, nn::PipeOptions options) {
      options.checkpoint = mode;
      check_like(one, tied_model, group, options, 3);
    });
  }
}

TEST_CASE("copies of a tied parameter have the same bits after a hundred steps") {
  ranks(3, [](const Group& group, int) {
    nn::Pipe pipe(group, tied_model(), {.micro_batches = 2});
    nn::AdamW optimizer(pipe.local().named_parameters(), tied_adam);
    for (int step = 0; step < 100; ++step) {
      optimizer.zero_grad();
      pipe.step(input_of(step % 5), target_of(), squares);
      optimizer.step();
    }
    std::map<std::string, std::string> bits;
    for (const auto& [name, p] : pipe.local().named_parameters()) {
      bits[name] = {static_cast<const char*>(p.raw()), p.view().bytes()};
    }
    for (const auto& copies : {std::vector<std::string>{"1.weight", "5.weight", "9.weight"},
                               std::vector<std::string>{"1.bias", "9.bias"}}) {
      std::set<std::string> different;
      std::size_t holders = 0;
      for (const std::string& name : copies) {
        const std::string mine = bits.contains(name) ? bits.at(name) : "";
        for (const std::string& theirs : group.all_gather_object(mine)) {
          if (theirs.empty()) continue;
          different.insert(theirs);
          ++holders;
        }
      }
      PEAL_CHECK(holders >= 2 && different.size() == 1, copies[0], " has ", holders,
                 " holders and ", different.size(), " values");
    }
  });
}

TEST_CASE("gradients of tied parameters add up over steps, and are clipped as one") {
  nn::Sequential whole = tied_model();
  for (int step = 0; step < 2; ++step) loss_of(whole, step).backward();
  const double norm = nn::clip_grad_norm_(whole.parameters(), 0.01).item<double>();
  State expected;
  for (const auto& [name, p] : whole.named_parameters()) {
    expected[name] = p.grad().to_vector<double>();
  }
  for (const Kind kind : comm::pipeline::all_kinds) {
    CAPTURE(name(kind));
    ranks(4, [&](const Group& group, int rank) {
      nn::Pipe pipe(group, tied_model(), {.kind = kind, .micro_batches = 3});
      for (int step = 0; step < 2; ++step) pipe.step(input_of(step), target_of(), squares);
      const double got = pipe.clip_grad_norm_(0.01);
      PEAL_CHECK(std::abs(got - norm) < 1e-10, "norm ", got, ", of one process ", norm);
      for (const auto& [name, p] : pipe.local().named_parameters()) {
        const bool is_wide = name == "5.weight" || name == "9.weight";
        const std::string first = is_wide ? "1.weight" : name == "9.bias" ? "1.bias" : name;
        PEAL_CHECK(farthest(p.grad().to_vector<double>(), expected.at(first)) < 1e-12, "rank ",
                   rank, ": ", name);
      }
    });
  }
}

TEST_CASE("tied parameters begin alike, and may be frozen") {
  ranks(3, [](const Group& group, int rank) {
    nn::Sequential net = tied_model();
    net.child("5").get_parameter("weight").copy_(full({6, 6}, rank + 1.0, DType::f64));
    net.requires_grad_("1.bias", false);
    nn::Pipe pipe(group, net, {.micro_batches = 2});
    for (const auto& [name, p] : pipe.local().named_parameters()) {
      if (name == "1.weight" || name == "5.weight" || name == "9.weight") {
        PEAL_CHECK(p.to_vector<double>()[0] == 1, "rank ", rank, ": ", name);
      }
    }
    pipe.step(input_of(0), target_of(), squares);
    for (const auto& [name, p] : pipe.local().named_parameters()) {
      if (p.requires_grad()) PEAL_CHECK(p.grad().defined(), name);
    }
  });
}

TEST_CASE("a tied parameter that is frozen on one of its ranks alone is an Error on all") {
  for (const int frozen : {0, 2}) {
    const auto said = heard(3, [&](const Group& group, int rank) {
      nn::Pipe pipe(group, tied_model(), {.micro_batches = 2});
      for (const auto& [name, p] : pipe.local().named_parameters()) {
        const bool tied = name == "1.weight" || name == "5.weight" || name == "9.weight";
        if (rank == frozen && tied) p.set_requires_grad(false);
      }
      pipe.step(input_of(0), target_of(), squares);
    });
    for (const std::string& error : said) {
      CAPTURE(error);
      CHECK(error.find("is frozen on this rank, and where it is tied to it") != error.npos);
    }
  }
}

TEST_CASE("of a state in which tied parameters differ the last one's value counts on all ranks") {
  const File file;
  ranks(3, [&file](const Group& group, int rank) {
    nn::Pipe pipe(group, tied_model(), {.micro_batches = 2});
    NamedTensors state = pipe.state_dict();
    for (auto& [name, tensor] : state) {
      if (name == "1.weight") tensor = full({6, 6}, 5.0, DType::f64);
      if (name == "9.weight") tensor = full({6, 6}, 9.0, DType::f64);
    }
    if (rank == 0) save_safetensors(file.path, state);
    group.barrier().wait();
    for (const bool file_of_all : {false, true}) {
      if (file_of_all) {
        nn::load_sharded(file.path, {{"model", pipe.saved()}}, group);
      } else {
        pipe.load_state_dict(state);
      }
      for (const auto& [name, p] : pipe.local().named_parameters()) {
        if (name == "1.weight" || name == "5.weight" || name == "9.weight") {
          PEAL_CHECK(p.to_vector<double>()[0] == 9, "rank ", rank, ": ", name);
          p.detach().zero_();
        }
      }
    }
  });
}

TEST_CASE("a state has tied parameters and their optimizer's state once") {
  const File file;
  const auto alone = [](nn::Sequential& net, nn::AdamW& optimizer, int step) {
    optimizer.zero_grad();
    const Tensor loss = loss_of(net, step);
    loss.backward();
    optimizer.step();
    return loss.item<double>();
  };
  nn::Sequential net = tied_model();
  nn::AdamW optimizer(net.named_parameters(), tied_adam);
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) losses.push_back(alone(net, optimizer, step));
  for (const Kind kind : {Kind::one_f_one_b, Kind::zb_v}) {
    for (const int world : {3, 2}) {  // saves, and goes on
      ranks(world, [&](const Group& group, int rank) {
        nn::Pipe pipe(group, tied_model(), {.kind = kind, .micro_batches = 3});
        nn::AdamW own(pipe.parameters(), tied_adam);
        const std::vector<nn::Part> parts{{"model", pipe.saved()}, {"optimizer", pipe.saved(own)}};
        const int first = world == 3 ? 0 : 2;
        if (first > 0) nn::load(file.path, parts);
        for (int step = first; step < first + 2; ++step) {
          own.zero_grad();
          const double loss = pipe.step(input_of(step), target_of(), squares);
          const double off = std::abs(loss - losses[static_cast<std::size_t>(step)]);
          PEAL_CHECK(off < 1e-10, "step ", step, ": loss off by ", off);
          own.step();
        }
        if (first > 0) return;
        for (const nn::Part& part : parts) part.consolidate_state_dict();
        if (rank == 0) nn::save(file.path, parts);
      });
    }
    nn::Sequential resumed = tied_model();
    nn::AdamW whole(resumed.named_parameters(), tied_adam);
    nn::load(file.path, {{"model", resumed}, {"optimizer", whole}});
    for (int step = 2; step < 4; ++step) {
      CHECK(std::abs(alone(resumed, whole, step) - losses[static_cast<std::size_t>(step)]) < 1e-10);
    }
  }
}

namespace {

// (a, b) -> (w a, b)
struct TiedFirst : nn::Module {
  Tensor w;
  explicit TiedFirst(const Tensor& shared) : w(add_parameter("w", shared)) {}
  Tensor forward(const Tensor& x) override { return x * cat({w, full({1}, 1.0, DType::f64)}, 0); }
};
// (h, b) -> h + w b
struct TiedLast : nn::Module {
  Tensor w;
  explicit TiedLast(const Tensor& shared) : w(add_parameter("w", shared)) {}
  Tensor forward(const Tensor& h) override {
    return narrow(h, 1, 0, 1) + w * narrow(h, 1, 1, 1).detach();
  }
};

}  // namespace

TEST_CASE("a tied gradient is that of both places, and of all replicas' average") {
  ranks(4, [](const Group& group, int) {
    const comm::DeviceMesh mesh(group, {2, 2}, {"dp", "pp"});
    const Tensor shared = full({1}, 1.0, DType::f64);
    nn::Pipe pipe(mesh.get_group("pp"), nn::Sequential{TiedFirst(shared), TiedLast(shared)}, {});
    // Of the first replica 1 and 2, of the second 3 and 4: (1 + 2) / 2 + (3 + 4) / 2. Who averages
    // before the places meet, or one of them twice, has 4.5 and 5.5.
    const bool first = mesh.get_local_rank("dp") == 0;
    const Tensor x =
        Tensor::from(first ? std::vector<double>{1, 2} : std::vector<double>{3, 4}, {1, 2});
    pipe.step(x, Tensor::zeros({1, 1}, DType::f64),
              [](const Tensor& y, const Tensor&) { return sum(y); });
    for (const Tensor& p : pipe.local().parameters()) {
      mesh.get_group("dp").all_reduce(p.grad().view(), comm::ReduceOp::avg).wait();
      PEAL_CHECK(p.grad().item<double>() == 5.0, "expected 5, got ", p.grad().item<double>());
    }
  });
}
