// SPDX-License-Identifier: Apache-2.0
// Nodes that ranks pretend to be on: what schedules make of them.
#include <peal/autograd/core/cores.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/record/measured_run.h>
#include <peal/comm/start/neighbours.h>
#include <peal/comm/start/node.h>
#include <peal/comm/start/threads.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/folder.h>

using namespace peal;
using namespace peal::comm;
using peal::testing::Folder;

namespace {

// Ranks that are this process, each on a node of its own that it pretends to be on.
class Pretenders : public Rendezvous {
 public:
  explicit Pretenders(int world) : world_(world) {}
  int rank() const override { return 0; }
  int world() const override { return world_; }
  std::vector<std::string> exchange(const std::string& mine) override {
    const std::string node = node_identity();
    std::vector<std::string> all;
    for (int r = 0; r < world_; ++r) {
      std::string text = mine;
      const std::size_t at = text.find(node, text.find(' '));
      PEAL_CHECK(at != std::string::npos, "no node in '", mine, "'");
      if (r > 0) text.replace(at, node.size(), concat(node, "/pretended", r));
      all.push_back(text);
    }
    return all;
  }

 private:
  int world_;
};

const ProcessGroup::Options hierarchical{.algorithms = "all_reduce=hierarchical"};

// All ways to put so many ranks on nodes, nodes being numbered as they come.
std::vector<Topology> topologies(int world) {
  std::vector<Topology> all = {{}};
  for (int r = 0; r < world; ++r) {
    std::vector<Topology> longer;
    for (const Topology& one : all) {
      int nodes = 0;
      for (const int node : one.node) nodes = std::max(nodes, node + 1);
      for (int node = 0; node <= nodes; ++node) {
        longer.push_back(one);
        longer.back().node.push_back(node);
      }
    }
    all = std::move(longer);
  }
  return all;
}

void check_sums(const ProcessGroup& group) {
  const int ranks = group.world();
  for (const std::int64_t count : {0, 1, 2, 3, 7, 64, 1001}) {
    const Tensor data = Tensor::zeros({count});
    for (std::int64_t i = 0; i < count; ++i) {
      data.data<float>()[i] = static_cast<float>((i % 97) * (group.rank() + 1));
    }
    group.all_reduce(data).wait();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto sum = static_cast<float>((i % 97) * ranks * (ranks + 1) / 2);
      wrong += data.data<float>()[i] != sum ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("ranks that pretend to be on several nodes share the cores of one machine") {
  const int cpus = static_cast<int>(allowed_cpus().size());
  Pretenders many(cpus + 1), one(1);
  const Neighbours met = meet(many);
  CHECK(met.crowded);
  CHECK(met.here == std::vector<int>{0});
  CHECK(met.nodes.node.size() == static_cast<std::size_t>(cpus) + 1);
  CHECK(met.nodes.node.back() == cpus);
  CHECK_FALSE(meet(one).crowded);
}

TEST_CASE("hierarchical sums are right on all ways to put 1 to 5 ranks on nodes") {
  int tried = 0;
  for (int world = 1; world <= 5; ++world) {
    for (const Topology& nodes : topologies(world)) {
      CAPTURE(nodes.node);
      ++tried;
      run_ranks(world, hierarchical, nodes, [&](const ProcessGroup& group) {
        CHECK(group.nodes().node == nodes.node);
        check_sums(group);
      });
    }
  }
  CHECK(tried == 1 + 2 + 5 + 15 + 52);
}

TEST_CASE("sub-groups know the nodes of their ranks") {
  const Topology nodes{{0, 1, 1, 2, 0}};
  run_ranks(5, hierarchical, nodes, [](const ProcessGroup& group) {
    const auto part = group.new_group({4, 2, 0, 1});
    if (part) {
      CHECK(part.nodes().node == std::vector<int>{0, 1, 0, 1});
      check_sums(part);
      const auto within = part.split(part.rank() % 2, -part.rank());
      const int node = part.rank() % 2;
      CHECK(within.nodes().node == std::vector<int>{node, node});
      check_sums(within);
    }
    group.barrier().wait();
  });
}

TEST_CASE("hierarchical sums cross between nodes in columns alone") {
  // Two nodes of two ranks: 0 meets 2, and 1 meets 3. Who takes them for one node needs the links
  // whose first message is lost here.
  const Topology nodes{{0, 0, 1, 1}};
  Wire wire;
  for (int rank = 0; rank < 4; ++rank) {
    wire.faults.push_back({.from = rank, .to = 3 - rank, .nth = 0, .drop = true});
  }
  ProcessGroup::Options options = hierarchical;
  options.deadline = std::chrono::milliseconds(20'000);
  run_ranks(4, options, nodes, wire, [](const ProcessGroup& group) {
    const Tensor data = Tensor::from(std::vector<float>(1000, 1), {1000});
    group.all_reduce(data).wait();
    CHECK(data.to_vector<float>() == std::vector<float>(1000, 4));
    group.send(data, 3 - group.rank()).wait();  // this is the one that is lost
  });
}

TEST_CASE("inside nodes memory takes the place of messages, where it is on") {
  const Topology nodes{{0, 1, 0, 1, 1}};
  for (const bool shared : {true, false}) {
    const Folder folder;
    ProcessGroup::Options options = hierarchical;
    options.shared_memory = shared;
    options.trace = folder.path;
    run_ranks(5, options, nodes, [](const ProcessGroup& group) {
      check_sums(group);
      const Tensor data = Tensor::from(std::vector<float>(1000, 1), {1000});
      group.run(Collective::all_reduce, "hierarchical", data, data, {1000}).wait();
      CHECK(data.to_vector<float>() == std::vector<float>(1000, 5));
      group.barrier().then([&] { return group.all_reduce(data); }).wait();
      CHECK(data.to_vector<float>() == std::vector<float>(1000, 25));
    });
    std::vector<std::string> names;
    for (const MeasuredPart& part : read_measured(folder.path).parts) {
      if (part.rank == 1 && part.text.starts_with("all_reduce")) names.push_back(part.algorithm);
    }
    std::vector<std::string> wanted(7, shared ? "hierarchical_direct" : "hierarchical");
    wanted.insert(wanted.end(), {"hierarchical", "hierarchical"});  // by its name; and in then()
    CHECK(names == wanted);
  }
}

TEST_CASE("what reaches into another node is refused, on all ranks") {
  std::atomic<int> refused{0};
  run_ranks(4, {}, Topology{{0, 0, 1, 1}}, [&](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({8});
    const std::string other = concat(group.rank() < 2 ? 2 : 0);
    const auto fails = [&](const auto& call) {
      CHECK_THROWS_WITH(call(), doctest::Contains(("needs memory in common with rank " + other +
                                                   ", which is on another node")
                                                      .c_str()));
      ++refused;
    };
    fails([&] { group.run(Collective::all_reduce, "direct_slices", data, data, {8}).wait(); });
    Program own;
    own.rounds = {{signal(3 - group.rank()), await(3 - group.rank())}};
    CHECK_THROWS_WITH(
        group.run(Collective::all_reduce, std::make_shared<const Plan>(own), data, data).wait(),
        doctest::Contains("which is on another node"));
    check_sums(group);
  });
  CHECK(refused == 4);
}

TEST_CASE("nodes of another number of ranks are an error") {
  CHECK_THROWS_WITH(run_ranks(2, {}, Topology{{0, 1, 1}}, [](const ProcessGroup&) {}),
                    doctest::Contains("nodes of 3 ranks for a world of 2"));
}

TEST_CASE("who says the same of itself is on one node") {
  CHECK(topology_of({"b", "a", "b", "c", "a"}).node == std::vector<int>{0, 1, 0, 2, 1});
  CHECK(topology_of({}).node.empty());
  unsetenv("PEAL_NODE");
  const std::string mine = node_identity();
  CHECK(!mine.empty());
  CHECK(mine == node_identity());
  CHECK(mine.find(' ') == std::string::npos);
  setenv("PEAL_NODE", "one", 1);
  const std::string one = node_identity();
  CHECK(one != mine);
  setenv("PEAL_NODE", "two words", 1);
  CHECK_THROWS_WITH((void)node_identity(), doctest::Contains("expected one word, got 'two words'"));
  unsetenv("PEAL_NODE");
}
