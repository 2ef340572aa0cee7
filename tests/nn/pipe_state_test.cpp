// SPDX-License-Identifier: Apache-2.0
// What a pipe saves is the model's and its optimizer's: it goes on in one process, and in a pipe of
// other ranks, schedule and balance.
#include <peal/nn/checkpoint.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>

#include <unistd.h>
#include <filesystem>
#include <memory>

#include "pipe_ranks.h"
#include "two_groups.h"

using namespace peal;
using namespace peal::testing;
using comm::pipeline::Kind;

namespace {

constexpr nn::AdamWOptions adam{.lr = 0.01, .weight_decay = 0.1};

struct Folder {
  Folder() : path(std::filesystem::temp_directory_path() / concat("peal_pipe_state_", getpid())) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path path;
};

struct Training {
  Training(const Group& group, const nn::PipeOptions& options)
      : pipe(group, uneven_model(), options),
        optimizer(two_groups(pipe.local().named_parameters(), adam)),
        parts{{"model", pipe.saved()}, {"optimizer", pipe.saved(optimizer)}} {}
  double step(int number) {
    optimizer.zero_grad();
    const double loss = pipe.step(input_of(number), target_of(), squares);
    optimizer.step();
    return loss;
  }
  nn::Pipe pipe;
  nn::AdamW optimizer;
  std::vector<nn::Part> parts;
};

double alone(nn::Sequential& net, nn::AdamW& optimizer, int number) {
  optimizer.zero_grad();
  const Tensor loss = squares(net(input_of(number)), target_of()) * (1.0 / rows);
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

// Of four steps by one process.
const std::vector<double>& losses() {
  static const std::vector<double> all = [] {
    nn::Sequential net = uneven_model();
    nn::AdamW optimizer(two_groups(net.named_parameters(), adam));
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) losses.push_back(alone(net, optimizer, step));
    return losses;
  }();
  return all;
}

void check_loss(double loss, int step) {
  const double off = std::abs(loss - losses()[static_cast<std::size_t>(step)]);
  PEAL_CHECK(off < 1e-10, "step ", step, ": loss off by ", off);
}

}  // namespace

TEST_CASE("a pipe's checkpoint goes on in one process, and in other pipes") {
  losses();
  const Folder folder;
  const auto file = folder.path / "run.safetensors", shards = folder.path / "run.checkpoint";
  ranks(3, [&](const Group& group, int rank) {
    Training training(group, {.kind = Kind::zb_v, .micro_batches = 4});
    for (int step = 0; step < 2; ++step) check_loss(training.step(step), step);
    for (const nn::Part& part : training.parts) part.consolidate_state_dict();
    if (rank == 0) nn::save(file, training.parts);
    nn::save_sharded(shards, training.parts, group);
  });
  for (const auto& from : {file, shards}) {
    CAPTURE(from.string());
    nn::Sequential net = uneven_model();
    nn::AdamW optimizer(two_groups(net.named_parameters(), adam));
    if (from == file) {
      nn::load(from, {{"model", net}, {"optimizer", optimizer}});
    } else {
      nn::load_sharded(from, {{"model", net}, {"optimizer", optimizer}});
    }
    for (int step = 2; step < 4; ++step) check_loss(alone(net, optimizer, step), step);
    for (const int world : {1, 2, 4}) {
      ranks(world, [&](const Group& group, int) {
        Training training(group, {.kind = world == 2 ? Kind::interleaved : Kind::one_f_one_b,
                                  .micro_batches = 3});
        if (from == file) {
          nn::load(from, training.parts);
        } else {
          nn::load_sharded(from, training.parts, group);
        }
        for (int step = 2; step < 4; ++step) check_loss(training.step(step), step);
      });
    }
  }
  // What one process saves, a pipe loads.
  nn::Sequential net = uneven_model();
  nn::AdamW optimizer(two_groups(net.named_parameters(), adam));
  for (int step = 0; step < 2; ++step) alone(net, optimizer, step);
  nn::save(file, {{"model", net}, {"optimizer", optimizer}});
  ranks(2, [&](const Group& group, int) {
    Training training(group, {.micro_batches = 2});
    nn::load(file, training.parts);
    for (int step = 2; step < 4; ++step) check_loss(training.step(step), step);
  });
}

TEST_CASE("state_dict() is the model's on all ranks, in its order") {
  for (const Kind kind : {Kind::gpipe, Kind::interleaved, Kind::zb_v}) {
    ranks(3, [kind](const Group& group, int rank) {
      nn::Pipe pipe(group, uneven_model(), {.kind = kind, .micro_batches = 2});
      const NamedTensors whole = pipe.state_dict(), expected = uneven_model().state_dict();
      PEAL_CHECK(whole.size() == expected.size(), "got ", whole.size(), " tensors");
      NamedTensors other;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        PEAL_CHECK(whole[i].first == expected[i].first, "got ", whole[i].first);
        PEAL_CHECK(whole[i].second.to_vector<double>() == expected[i].second.to_vector<double>());
        other.emplace_back(whole[i].first, whole[i].second * 2.0);
      }
      pipe.load_state_dict(other);
      for (const auto& [name, values] : state_of(pipe.local())) {
        const auto before = state_of(uneven_model()).at(name);
        for (std::size_t i = 0; i < values.size(); ++i) PEAL_CHECK(values[i] == 2 * before[i]);
      }
      other.emplace_back("16.weight", full({1}, 1.0, DType::f64));
      std::string error;
      try {
        pipe.load_state_dict(other);
      } catch (const Error& wrong) {
        error = wrong.what();
      }
      PEAL_CHECK(error.find("16.weight") != error.npos, "rank ", rank, ": ", error);
    });
  }
}

TEST_CASE(
    "a rank whose layers have no parameters has an optimizer, and saves and loads, as others") {
  const auto make = [] {
    manual_seed(3);
    nn::Sequential net{nn::Linear(6, 4), nn::Tanh()};
    net.to(DType::f64);
    return net;
  };
  manual_seed(4);
  const Tensor x = randn({8, 6}, DType::f64), target = randn({8, 4}, DType::f64);
  nn::Sequential net = make();
  nn::AdamW optimizer(net.named_parameters(), adam);
  const auto train = [&] {
    optimizer.zero_grad();
    (squares(net(x), target) * (1.0 / 8)).backward();
    optimizer.step();
  };
  train();
  NamedTensors model_before = net.state_dict(), before = optimizer.state_dict();
  for (NamedTensors* all : {&model_before, &before}) {
    for (auto& [name, tensor] : *all) tensor = tensor.clone();
  }
  train();
  const auto want = state_of(net);
  CHECK_NOTHROW(ranks(2, [&](const Group& group, int) {
    nn::Pipe pipe(group, make(), {.micro_batches = 2});
    nn::AdamW own(pipe.parameters(), adam);
    PEAL_CHECK(own.parameters().size() == (group.rank() == 0 ? 2U : 0U), "parameters");
    nn::ShardedState model = pipe.saved(), state = pipe.saved(own);
    model.load_state_dict(model_before);
    state.load_state_dict(before);
    own.zero_grad();
    pipe.step(x, target, squares);
    pipe.clip_grad_norm_(1e6);
    own.step();
    for (const auto& [name, values] : state_of(pipe.local())) {
      const double off = farthest(values, want.at(name));
      PEAL_CHECK(off < 1e-14, name, " is off by ", off);
    }
    state.consolidate_state_dict(0);
    if (group.rank() != 0) return;
    const std::size_t saved = state.state_dict().size();
    PEAL_CHECK(saved == before.size(), "expected ", before.size(), " tensors, saved ", saved);
  }));
}

TEST_CASE("an optimizer that is not a pipe's, or differs between ranks, is an Error on all") {
  const auto says = [](const std::function<std::unique_ptr<nn::AdamW>(nn::Pipe&, int rank)>& make,
                       const char* part) {
    const auto said = heard(2, [&](const Group& group, int rank) {
      nn::Pipe pipe(group, uneven_model(), {.micro_batches = 2});
      const auto optimizer = make(pipe, rank);
      pipe.saved(*optimizer).consolidate_state_dict(0);
    });
    for (const std::string& error : said) CHECK_MESSAGE(error.find(part) != error.npos, error);
  };
  says([](nn::Pipe& pipe,
          int) { return std::make_unique<nn::AdamW>(pipe.local().parameters(), adam); },
       "is of none of this rank's layers");
  says(
      [](nn::Pipe& pipe, int rank) {
        auto settings = adam;
        settings.lr = rank == 0 ? 0.01 : 0.02;
        return std::make_unique<nn::AdamW>(pipe.parameters(), settings);
      },
      "give it the same groups and settings on every rank");
}
