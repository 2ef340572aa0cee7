// SPDX-License-Identifier: Apache-2.0
// Skip connections of a pipe: straight from the layer that stashes to the one that pops, and in
// every schedule what one process computes.
#include "pipe_ranks.h"

using namespace peal;
using namespace peal::testing;
using comm::pipeline::Kind;

namespace {

struct Stash : nn::Skippable {
  explicit Stash(std::vector<std::string> names) : Skippable({.stash = names}) {}
  Tensor forward(const Tensor& x) override {
    double scale = 1;
    for (const std::string& name : skips().stash) stash(name, x * (scale += 0.5));
    return x;
  }
};

// Adds the first columns of what it pops, which may be of another width.
struct Pop : nn::Skippable {
  explicit Pop(std::vector<std::string> names) : Skippable({.pop = names}) {}
  Tensor forward(const Tensor& x) override {
    Tensor y = x * 0.5;
    for (const std::string& name : skips().pop) y = y + sum(pop(name), {1}, true) * 0.1;
    return y;
  }
};

// Passes on what it was given, and a number that wants no gradient, of another type.
struct StashMore : nn::Skippable {
  StashMore() : Skippable({.stash = {"same", "whole"}}) {}
  Tensor forward(const Tensor& x) override {
    stash("same", x);
    stash("whole", Tensor::from(std::vector<std::int64_t>{x.size(0)}, {1}));
    return x * 1.5;
  }
};
struct PopMore : nn::Skippable {
  PopMore() : Skippable({.pop = {"whole", "same"}}) {}
  Tensor forward(const Tensor& x) override {
    const double many = static_cast<double>(pop("whole").item<std::int64_t>());
    return x * (many / static_cast<double>(x.size(0))) + sum(pop("same"), {1}, true);
  }
};

// Of 16 layers: past one part or all, between neighbours, two of one pair, and within a part.
nn::Sequential skip_model() {
  manual_seed(3);
  nn::Sequential net{nn::Linear(5, 6), Stash({"long", "twin"}), nn::Linear(6, 7), nn::Tanh(),
                     StashMore(),      nn::Linear(7, 4),        Stash({"near"}),  Pop({"near"}),
                     nn::Linear(4, 4), Stash({"late"}),         nn::Tanh(),       nn::Linear(4, 3),
                     PopMore(),        Pop({"twin", "long"}),   nn::Linear(3, 2), Pop({"late"})};
  net.to(DType::f64);
  return net;
}

const Trained& by_one_process() {
  static const Trained trained = trained_alone(skip_model, 3);
  return trained;
}

}  // namespace

TEST_CASE("skips of every schedule are those of one process, at 1 to 4 ranks") {
  by_one_process();
  every_schedule({1, 4, 7}, [](const Group& group, const nn::PipeOptions& options) {
    check_like(by_one_process(), skip_model, group, options, 3);
  });
  for (const auto mode : {nn::CheckpointMode::always, nn::CheckpointMode::except_last}) {
    every_schedule({3}, [mode](const Group& group, nn::PipeOptions options) {
      options.checkpoint = mode;
      check_like(by_one_process(), skip_model, group, options, 3);
    });
  }
  ranks(3, [](const Group& group, int) {
    check_like(by_one_process(), skip_model, group,
               {.kind = Kind::interleaved, .micro_batches = 5, .chunks = 4}, 3);
    check_like(by_one_process(), skip_model, group, {.micro_batches = 5, .balance = {2, 12, 2}}, 3);
  });
}

TEST_CASE("a skip goes past the ranks between") {
  const auto bytes = [](const Group& group, bool skips) {
    nn::Sequential net{nn::Linear(64, 4), nn::Tanh(),        nn::Linear(4, 4),
                       nn::Tanh(),        nn::Linear(4, 64), nn::Tanh()};
    if (skips) {
      net.replace_child("0", Stash({"far"}));
      net.replace_child("1", nn::Linear(64, 4));
      net.replace_child("5", Pop({"far"}));
    }
    nn::Pipe pipe(group, net, {.micro_batches = 2});
    const Tensor x = full({8, 64}, 1.0);
    pipe.step(x, x, squares);
    const auto before = group.counters();
    pipe.step(x, x, squares);
    const auto after = group.counters() - before;
    const auto &sent = after[comm::Direction::send], &received = after[comm::Direction::recv];
    return concat(sent.calls, " ", sent.bytes, " ", received.calls, " ", received.bytes);
  };
  const auto of_middle = [&](bool skips) {
    std::string text;
    ranks(3, [&](const Group& group, int rank) {
      const std::string mine = bytes(group, skips);
      if (rank == 1) text = mine;
    });
    return text;
  };
  CHECK(of_middle(true) == of_middle(false));
  ranks(3, [](const Group& group, int) {
    const nn::Pipe pipe(group, skip_model(), {.micro_batches = 2, .balance = {2, 3, 11}});
    // The twins go along as one; "same" and "whole" go to the next part.
    PEAL_CHECK((pipe.problem().skips == std::vector<comm::pipeline::Skip>{{0, 2}}));
  });
}

TEST_CASE("what is stashed and popped is known when a pipe is built") {
  const auto refused = [](const nn::Sequential& net) {
    const auto said =
        heard(2, [&](const Group& group, int) { nn::Pipe pipe(group, net, {.micro_batches = 2}); });
    CHECK(said[0] == said[1]);
    return said[0];
  };
  const auto says = [&](const nn::Sequential& net, const char* part) {
    const std::string error = refused(net);
    CHECK_MESSAGE(error.find(part) != error.npos, error);
  };
  says(nn::Sequential{Stash({"a"}), nn::Tanh()},
       "skip 'a': 0 stashes it, and no layer behind pops it");
  says(nn::Sequential{nn::Tanh(), Pop({"a"})},
       "skip 'a': 1 pops it, and nothing before it stashes it");
  says(nn::Sequential{Pop({"a"}), Stash({"a"})},
       "skip 'a': 0 pops it, and nothing before it stashes it");
  says(nn::Sequential{Stash({"a"}), Pop({"a"}), Pop({"a"})}, "skip 'a': 1 pops it, and 2 again");
  says(nn::Sequential{Stash({"a"}), nn::Sequential(nn::Tanh(), Stash({"a"})), Pop({"a"})},
       "skip 'a': 0 stashes it, and 1.1 again");
  // One rank alone has it wrong; the group goes on.
  ranks(2, [](const Group& group, int rank) {
    std::string error;
    try {
      nn::Pipe pipe(group, nn::Sequential{Stash({rank == 1 ? "b" : "a"}), Pop({"a"})}, {});
    } catch (const Error& wrong) {
      error = wrong.what();
    }
    PEAL_CHECK(error.find("rank 1: skip 'a': 1 pops it") != error.npos, "got: ", error);
    nn::Pipe pipe(group, nn::Sequential{Stash({"a"}), Pop({"a"})}, {});
  });
}

TEST_CASE("a forward that does not do what its class declares is an Error on all ranks") {
  struct Forgets : nn::Skippable {
    explicit Forgets(nn::SkipNames names) : Skippable(names) {}
    Tensor forward(const Tensor& x) override { return x * 1.0; }
  };
  struct Undeclared : nn::Skippable {
    Undeclared() : Skippable({}) {}
    Tensor forward(const Tensor& x) override {
      stash("b", x);
      return x;
    }
  };
  const auto says = [](const nn::Sequential& net, const char* part) {
    const auto said = heard(2, [&](const Group& group, int) {
      nn::Pipe pipe(group, net, {.micro_batches = 2});
      const Tensor x = full({4, 2}, 1.0);
      pipe.step(x, x, squares);
    });
    for (const std::string& error : said) CHECK_MESSAGE(error.find(part) != error.npos, error);
  };
  says(nn::Sequential{Forgets({.stash = {"a"}}), Pop({"a"})},
       "expected a layer of part 0 to stash 'a' in its forward");
  says(nn::Sequential{Stash({"a"}), Forgets({.pop = {"a"}})},
       "expected a layer of part 1 to pop 'a' in its forward");
  says(nn::Sequential{Undeclared(), nn::Tanh()}, "stash 'b', which it does not declare");
  nn::Sequential alone{Pop({"a"})};
  CHECK_THROWS_WITH_AS(alone(full({1, 1}, 1.0)), doctest::Contains("there is no 'a' to pop"),
                       Error);
}

TEST_CASE("the loss alone and outputs of a model with skips") {
  every_schedule({4}, [](const Group& group, nn::PipeOptions options) {
    nn::Sequential whole = skip_model();
    const Tensor x = input_of(1), y = whole(x);
    nn::Pipe pipe(group, skip_model(), options);
    const double expected = squares(y, target_of()).item<double>() / rows;
    PEAL_CHECK(std::abs(pipe.evaluate(x, target_of(), squares) - expected) < 1e-10);
    const Tensor outputs = pipe.forward(x, true);
    PEAL_CHECK(farthest(outputs.to_vector<double>(), y.to_vector<double>()) < 1e-12);
  });
}
