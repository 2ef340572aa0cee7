// SPDX-License-Identifier: Apache-2.0
// Memory within nodes, and messages between them: processes that pretend to be on several nodes.
#include <peal/autograd/core/error.h>
#include <peal/comm/record/measured_run.h>
#include <peal/comm/start/mpi.h>

#include <dlfcn.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include "check_sum.h"
#include "mpi_main.h"
#include "pretend.h"

using namespace peal;
using peal::testing::Pretend;
namespace fs = std::filesystem;

namespace {

bool disk_is_full = false;  // no segment gets its bytes

const std::vector<std::function<int(int)>> ways = {
    [](int rank) { return rank / 2; }, [](int rank) { return rank % 2; },
    [](int rank) { return rank; }, [](int rank) { return rank == 0 ? 0 : 1; }};

constexpr std::int64_t large = 300'001;  // of many chunks

// What the all_reduces of each rank ran by, on rank 0; nothing on the others.
std::vector<std::vector<std::string>> algorithms_of(
    const comm::ProcessGroup::Options& wanted,
    const std::function<void(const comm::ProcessGroup&)>& f) {
  const comm::ProcessGroup& everyone = testing::job().group();
  std::string name = (fs::temp_directory_path() / "peal_nodes_XXXXXX").string();
  if (everyone.rank() == 0) REQUIRE(mkdtemp(name.data()) != nullptr);
  const fs::path folder = everyone.broadcast_object(name);
  comm::ProcessGroup::Options options = wanted;
  options.trace = folder;
  {
    const auto group = comm::mpi_group(MPI_COMM_WORLD, options);
    f(group);
    group.write_trace();
  }
  everyone.barrier().wait();
  std::vector<std::vector<std::string>> found;
  if (everyone.rank() == 0) {
    found.resize(static_cast<std::size_t>(everyone.world()));
    for (const comm::MeasuredPart& part : comm::read_measured(folder).parts) {
      if (!part.text.starts_with("all_reduce")) continue;
      found[static_cast<std::size_t>(part.rank)].push_back(part.algorithm);
    }
    fs::remove_all(folder);
  }
  return found;
}

// On how many ranks the node of this one has.
std::vector<int> sizes_of(const std::vector<int>& nodes) {
  std::vector<int> sizes;
  for (const int node : nodes) {
    sizes.push_back(static_cast<int>(std::ranges::count(nodes, node)));
  }
  return sizes;
}

}  // namespace

// The system's own, but where a test says otherwise.
extern "C" int posix_fallocate(int file, off_t at, off_t bytes) {
  if (disk_is_full) return ENOSPC;
  using Call = int(int, off_t, off_t);
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, "posix_fallocate"))(file, at, bytes);
}

TEST_CASE("each node goes the way that its buffers allow, and between nodes all send alike") {
  for (const auto& way : ways) {
    const Pretend pretend(way);
    CAPTURE(pretend.nodes);
    const std::vector<int> sizes = sizes_of(pretend.nodes);
    if (std::ranges::max(sizes) == 1) continue;  // nobody shares anything
    const auto ran = algorithms_of(
        {.algorithms = "all_reduce=hierarchical"}, [&](const comm::ProcessGroup& group) {
          const Tensor heap = group.allocate({large}), ordinary = Tensor::zeros({large});
          const bool first = group.nodes().node[static_cast<std::size_t>(group.rank())] == 0;
          for (int turn = 0; turn < 3; ++turn) {
            testing::check_sum(group, heap);
            testing::check_sum(group, ordinary);
            testing::check_sum(group, first ? heap : ordinary);
            testing::check_sum(group, group.rank() == 0 ? ordinary : heap);
          }
          testing::check_sum(group, heap.rows(group.rank(), group.rank() + 5));
          testing::check_sum(group, heap.rows(0, 1));
          testing::check_sum(group, heap.rows(0, 0));
        });
    if (testing::job().rank() != 0) continue;
    const std::string direct = "hierarchical_direct", staged = "hierarchical_staged";
    for (std::size_t r = 0; r < ran.size(); ++r) {
      CAPTURE(r);
      REQUIRE(ran[r].size() == 15);
      const bool alone = sizes[r] == 1, first = pretend.nodes[r] == pretend.nodes[0];
      CHECK(ran[r][0] == direct);
      CHECK(ran[r][1] == (alone ? direct : staged));
      CHECK(ran[r][2] == (alone || first ? direct : staged));
      CHECK(ran[r][3] == (alone || !first ? direct : staged));
    }
  }
}

TEST_CASE("low precision, averages and factors are right on several nodes") {
  for (const auto& way : ways) {
    const Pretend pretend(way);
    const auto group = comm::mpi_group(MPI_COMM_WORLD, {.algorithms = "all_reduce=hierarchical"});
    const int world = group.world();
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      for (const bool shared : {false, true}) {
        const Tensor data = shared ? group.allocate({large}, dtype) : Tensor::zeros({large}, dtype);
        const auto run = [&](int each, int result, const auto& reduce) {
          for (std::int64_t i = 0; i < large; ++i) {
            const auto value = static_cast<float>(i % 7 * each);
            if (dtype == DType::f32) data.data<float>()[i] = value;
            if (dtype == DType::f16) data.data<Half>()[i] = Half(value);
            if (dtype == DType::bf16) data.data<BFloat16>()[i] = BFloat16(value);
          }
          reduce();
          std::int64_t wrong = 0;
          for (std::int64_t i = 0; i < large; ++i) {
            float got = 0;
            if (dtype == DType::f32) got = data.data<float>()[i];
            if (dtype == DType::f16) got = data.data<Half>()[i];
            if (dtype == DType::bf16) got = data.data<BFloat16>()[i];
            wrong += got != static_cast<float>(i % 7 * result);
          }
          CHECK(wrong == 0);
        };
        run(1, 1, [&] { group.all_reduce(data, comm::ReduceOp::avg).wait(); });
        run(1, 1, [&] { group.all_reduce(data, comm::ReduceOp::max).wait(); });
        run(2, world, [&] { group.all_reduce_premultiplied(data, 0.5).wait(); });
      }
    }
  }
}

TEST_CASE("memory on some nodes alone is no memory: all choose alike") {
  const int world = testing::job().world();
  if (world < 3) return;
  const Pretend pretend([=](int rank) { return rank < world / 2 ? 0 : 1; });
  const bool last = testing::job().rank() >= world / 2;
  const comm::ProcessGroup::Options options{.algorithms = "all_reduce=hierarchical"};
  // Not for the group on the last node, or on the others.
  for (const bool full_on_last : {true, false}) {
    if (!full_on_last && world == 3) continue;  // who is alone there needs no segment
    const auto ran = algorithms_of(options, [&](const comm::ProcessGroup& group) {
      disk_is_full = last == full_on_last;
      {
        const auto part = comm::mpi_group(MPI_COMM_WORLD, options);
        testing::check_sum(part, part.allocate({large}));
        CHECK_THROWS_WITH_AS(part.run(comm::Collective::all_reduce, "hierarchical_direct",
                                      Tensor::zeros({8}), Tensor::zeros({8}), {8})
                                 .wait(),
                             doctest::Contains("hierarchical_direct needs memory that the ranks "
                                               "share"),
                             Error);
        testing::check_sum(part, Tensor::zeros({10}));
        const Tensor wanted = group.allocate({large});  // which has its window, but gets no more
        disk_is_full = false;
        testing::check_sum(group, wanted);
        testing::check_sum(group, group.allocate({large}));
      }
    });
    if (testing::job().rank() != 0) continue;
    const std::vector<int> sizes = sizes_of(pretend.nodes);
    for (std::size_t r = 0; r < ran.size(); ++r) {
      const std::string one = sizes[r] == 1 ? "hierarchical_direct" : "hierarchical_staged";
      CHECK(ran[r] == std::vector<std::string>{one, "hierarchical_direct"});
    }
  }
}

TEST_CASE("nodes that want different amounts of memory are told so") {
  const int world = testing::job().world();
  if (world < 3) return;
  const Pretend pretend([](int rank) { return rank / 2; });
  const auto group = comm::mpi_group(MPI_COMM_WORLD, {.algorithms = "all_reduce=hierarchical"});
  const bool last = group.rank() == world - 1;
  CHECK_THROWS_WITH_AS((void)group.allocate({last ? 5000 : 1000}),
                       doctest::Contains("bytes of shared memory, and rank "), Error);
  testing::check_sum(group, group.allocate({large}));
}

TEST_CASE("what reaches into another node is refused, on all ranks") {
  const int world = testing::job().world();
  if (world < 3) return;
  const Pretend pretend([](int rank) { return rank / 2; });
  const auto group = comm::mpi_group(MPI_COMM_WORLD);
  const Tensor data = Tensor::zeros({8});
  CHECK_THROWS_WITH_AS(
      group.run(comm::Collective::all_reduce, "direct_slices", data, data, {8}).wait(),
      doctest::Contains("direct_slices needs memory in common with rank "), Error);
  testing::check_sum(group, Tensor::zeros({100}));
}
