// SPDX-License-Identifier: Apache-2.0
// The code that docs/HACKING.md shows, compiled from the document itself, does what it says.
#include <peal/autograd/ops/matmul.h>
#include <peal/comm/draw/draw.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/threads/threads.h>
#include <peal/comm/verify/verify.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/layers/sequential.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/tests/autograd/gradcheck.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
// From the document.
#include "peal/autograd/ops/squared.cpp"
#include "peal/autograd/ops/squared.h"
#include "peal/comm/algorithms/flat_broadcast.h"
#include "peal/comm/transport/counting/counting.h"
#include "peal/nn/layers/scale.h"
#include "peal/nn/parallel/compressed.h"
#include "peal/tests/comm/slow_ring.h"

using namespace peal;
using test::gradient_error;

namespace {

constexpr double good = 1e-7;

Tensor n(const Shape& shape, unsigned seed) { return test::normal<double>(shape, seed); }

bool document_has(const std::string& text) {
  std::ifstream file(PEAL_HACKING);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  return whole.find(text) != std::string::npos;
}

std::vector<comm::Program> flat(int world, int root, std::int64_t count) {
  const std::int64_t counts[] = {count};
  const comm::Topology nodes = comm::single_node(world);
  std::vector<comm::Program> programs;
  for (int rank = 0; rank < world; ++rank) {
    programs.push_back(
        comm::flat_broadcast({comm::Collective::broadcast, rank, world, root, counts, nodes}));
  }
  return programs;
}

}  // namespace

#include "peal/tests/autograd/gradient_test.cpp"

TEST_CASE("the op: values, and the error for a type without a kernel") {
  const Tensor x = Tensor::from(std::vector<std::int32_t>{1, -2, 3}, {3});
  CHECK(squared(x).to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 4, 9});
  const char* error = "squared: no cpu kernel for bool";
  CHECK_THROWS_WITH_AS(squared(Tensor::zeros({2}, DType::boolean)), error, Error);
  CHECK(document_has(error));
}

TEST_CASE("the algorithm: proved for 1 to 16 ranks, and drawn as shown") {
  for (int world = 1; world <= 16; ++world) {
    for (const std::int64_t count : {0, 1, 97}) {
      const int root = world / 2;
      const std::int64_t counts[] = {count};
      const comm::Topology nodes = comm::single_node(world);
      const comm::Problem problem{comm::Collective::broadcast, 0, world, root, counts, nodes};
      comm::Cost most;
      for (const comm::Program& program : flat(world, root, count)) {
        const comm::Cost one = comm::cost(program);
        most = {std::max(most.rounds, one.rounds), std::max(most.sent, one.sent),
                std::max(most.received, one.received), std::max(most.reduced, one.reduced)};
      }
      const comm::ClosedForm form = comm::flat_broadcast_entry.costs(problem);
      CHECK((most == form.most || !form.exact));
      for (const auto aliasing : {comm::Aliasing::out_of_place, comm::Aliasing::in_place}) {
        const comm::Verdict verdict = comm::verify(problem, flat(world, root, count), aliasing);
        CHECK_MESSAGE(verdict.ok, verdict.why);
      }
    }
  }
  const std::string drawing = comm::draw(flat(3, 0, 1));
  CAPTURE(drawing);
  CHECK(document_has("```text\n" + drawing + "```\n"));
}

TEST_CASE("the transport: what stands before another has the parts of that other") {
  struct WithParts : comm::ThreadsTransport, comm::NativeCollectives, comm::SymmetricMemory {
    using comm::ThreadsTransport::ThreadsTransport;
    bool has(const comm::NativeCall&) const override { return true; }
    comm::Ticket start(const comm::NativeCall&) override { return 0; }
    bool scales(const comm::NativeCall&) const override { return true; }
    StorageRef allocate(std::size_t, const comm::EveryRank&) override { return nullptr; }
    comm::NativeCollectives* native() override { return this; }
    comm::SymmetricMemory* memory() override { return this; }
  };
  auto below = std::make_unique<WithParts>(std::make_shared<comm::Switchboard>(1), 0);
  WithParts& parts = *below;
  comm::CountingTransport counting(std::move(below));
  CHECK(counting.native() == parts.native());
  CHECK(counting.memory() == parts.memory());
  CHECK(counting.queue() == nullptr);
  CHECK(counting.has_native({}));
  CHECK(counting.limits().most_from_any == parts.limits().most_from_any);
  CHECK(counting.subset({}, 1) == nullptr);
}

TEST_CASE("the transport: a group over it, and the bytes of a ring") {
  const auto switchboard = std::make_shared<comm::Switchboard>(2);
  const auto board = comm::Board::in_memory(2);
  std::size_t sent[2] = {};
  const auto run = [&](int rank) {
    auto transport = std::make_unique<comm::CountingTransport>(
        std::make_unique<comm::ThreadsTransport>(switchboard, rank));
    const comm::CountingTransport& counting = *transport;
    auto control = std::make_unique<comm::Control>(board, rank, std::vector<int>{0, 1},
                                                   std::vector<comm::Peer>{});
    const comm::ProcessGroup group =
        comm::make_group(std::move(transport), std::move(control),
                         std::make_shared<comm::Engine>(true), {.algorithms = "all_reduce=ring"});
    const std::size_t before = counting.sent();
    group.all_reduce(Tensor::zeros({10})).wait();
    sent[rank] = counting.sent() - before;
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  CHECK(sent[0] == 10 * sizeof(float));  // 2n(p-1)/p elements
  CHECK(sent[1] == 10 * sizeof(float));
}

TEST_CASE("the wire: the slow link's time, and who waits for whom when a message is lost") {
  const auto start = std::chrono::steady_clock::now();
  comm::slow_ring();
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(45));
  comm::ProcessGroup::Options options{.deadline = std::chrono::milliseconds(4000),
                                      .algorithms = "all_reduce=ring"};
  std::string message;
  try {
    comm::run_ranks(
        3, options, {.faults = {{.from = 1, .to = 2, .nth = 1, .drop = true}}},
        [](const comm::ProcessGroup& group) { group.all_reduce(Tensor::zeros({12})).wait(); });
  } catch (const Error& error) {
    message = error.what();
  }
  CAPTURE(message);
  const auto rows = message.find("\n  rank 0");
  REQUIRE(rows != std::string::npos);
  CHECK(document_has("```text" + message.substr(rows) + "\n```"));
}

TEST_CASE("the layer: its key, a value by hand, a gradient") {
  nn::Scale scale(3);
  nn::Sequential net{nn::Linear(4, 3), scale};
  CHECK(net.state_dict().back().first == "1.weight");
  scale.weight.copy_(Tensor::from(std::vector<float>{1, 2, 3}, {3}));
  const Tensor x = Tensor::from(std::vector<float>{5, 6, 7}, {1, 3});
  CHECK(scale(x).to_vector<float>() == std::vector<float>{5, 12, 21});
  sum(net(Tensor::zeros({2, 4}))).backward();
  CHECK(scale.weight.grad().defined());
}

TEST_CASE("errors look as shown") {
  const auto shown = [](const auto& f) {
    std::string message = "no error";
    try {
      f();
    } catch (const Error& error) {
      message = error.what();
    }
    // How many calls a group makes at its start is of no interest there.
    for (std::size_t at = message.find('#'); at != std::string::npos;
         at = message.find('#', at + 1)) {
      const std::size_t end = message.find_first_not_of("0123456789", at + 1);
      message.replace(at, end - at, "#9");
    }
    CHECK_MESSAGE(document_has("\n" + message + "\n"), message);
  };
  shown([] { matmul(Tensor::zeros({3, 4}), Tensor::zeros({5, 6})); });
  shown([] { comm::Selection("bcast=ring", 2, 1); });
  shown([] {
    comm::run_ranks(2, comm::ProcessGroup::Options{}, [](const comm::ProcessGroup& group) {
      const Tensor data = Tensor::zeros({4000 + group.rank()});
      group.broadcast(data, 0, "bucket 3: fc1.weight").wait();
    });
  });
}

TEST_CASE("the communication hook: gradients are averages, rounded to bf16") {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    nn::Linear model(1, 1);
    nn::DistributedDataParallel ddp(model, group);
    ddp.register_comm_hook(nn::compressed(group));
    // bf16 has 8 bits: 1 + 2^-9 is sent as 1, and the average of 1 and 4 stays.
    sum(ddp(Tensor::from(std::vector<float>{group.rank() == 0 ? 1.001953125f : 4}, {1, 1})))
        .backward();
    CHECK(model.weight.grad().item<float>() == 2.5f);
  });
}
