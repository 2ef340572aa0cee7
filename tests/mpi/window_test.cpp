// SPDX-License-Identifier: Apache-2.0
// Memory that processes share: which tensors are reduced where they lie, what is done where there
// is no such memory, and that nothing of it remains.
#include <peal/autograd/core/error.h>
#include <peal/comm/record/measured_run.h>
#include <peal/comm/start/mpi.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include <peal/tests/nameless_files.h>
#include "check_sum.h"
#include "mpi_main.h"

using namespace peal;
using peal::testing::contains;
namespace fs = std::filesystem;

namespace {

bool disk_is_full = false;       // no segment gets its bytes
bool may_not_write = false;      // nor a name
std::vector<std::string> names;  // that this process has made

// A folder of all ranks, named by rank 0.
fs::path folder_of(const comm::ProcessGroup& group) {
  std::string name = (fs::temp_directory_path() / "peal_window_XXXXXX").string();
  if (group.rank() == 0) REQUIRE(mkdtemp(name.data()) != nullptr);
  return group.broadcast_object(name);
}

// What the world's all_reduces ran by, on rank 0; nothing on the others.
std::vector<std::string> algorithms_of(const std::function<void(const comm::ProcessGroup&)>& f) {
  const comm::ProcessGroup& everyone = testing::job().group();
  const fs::path folder = folder_of(everyone);
  comm::ProcessGroup::Options options;
  options.trace = folder;
  {
    const auto group = comm::mpi_group(MPI_COMM_WORLD, options);
    f(group);
    group.write_trace();
  }
  everyone.barrier().wait();
  std::vector<std::string> found;
  if (everyone.rank() == 0) {
    for (const comm::MeasuredPart& part : comm::read_measured(folder).parts) {
      if (part.rank == 0 && part.text.starts_with("all_reduce")) found.push_back(part.algorithm);
    }
    fs::remove_all(folder);
  }
  return found;
}

constexpr std::int64_t large = 300'001;  // of many chunks

}  // namespace

// The system's own, but where a test says otherwise.
extern "C" int shm_open(const char* name, int flags, mode_t mode) {
  if (may_not_write) {
    errno = EACCES;
    return -1;
  }
  using Call = int(const char*, int, mode_t);
  const int file = reinterpret_cast<Call*>(dlsym(RTLD_NEXT, "shm_open"))(name, flags, mode);
  const bool own = std::string_view(name).starts_with("/peal-");  // not MPI's
  if (file >= 0 && (flags & O_CREAT) != 0 && own) names.emplace_back(name);
  return file;
}

extern "C" int posix_fallocate(int file, off_t at, off_t bytes) {
  if (disk_is_full) return ENOSPC;
  using Call = int(int, off_t, off_t);
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, "posix_fallocate"))(file, at, bytes);
}

TEST_CASE("tensors of allocate() are reduced where they lie, others by way of the rooms") {
  const int world = testing::job().world();
  if (world == 1) return;
  const auto ran = algorithms_of([&](const comm::ProcessGroup& group) {
    const Tensor shared = group.allocate({large}), ordinary = Tensor::zeros({large});
    testing::check_sum(group, shared);
    testing::check_sum(group, ordinary);
    // Also where ranks differ: none may go another way than the others.
    testing::check_sum(group, group.rank() == 0 ? shared : ordinary);
    testing::check_sum(group, group.rank() == world - 1 ? ordinary : shared);
    // Another segment on one rank is no common one.
    const Tensor second = group.allocate({large});
    testing::check_sum(group, group.rank() == 0 ? shared : second);
    testing::check_sum(group, second);
    // A part of it, at places that differ.
    const std::int64_t at = 17 * group.rank();
    testing::check_sum(group, shared.rows(at, at + 20'000));
    // In and out apart, of one segment and of two.
    for (const Tensor& out : {shared, second}) {
      const Tensor from = out.rows(0, 10'000), to = shared.rows(20'000, 30'000);
      for (int i = 0; i < 10'000; ++i) from.data<float>()[i] = 2;
      group.all_reduce(to, from, comm::ReduceOp::sum).wait();
      CHECK(to.to_vector<float>() == std::vector<float>(10'000, 2 * static_cast<float>(world)));
    }
  });
  if (testing::job().rank() != 0) return;
  const std::string direct = "direct_slices", staged = "staged_slices";
  CHECK(ran == std::vector<std::string>{direct, staged, staged, staged, staged, direct, direct,
                                        direct, direct});
}

TEST_CASE("memory that one rank has let go of is no matter for the others") {
  const comm::ProcessGroup& group = testing::job().group();
  Tensor first = group.allocate({large});
  const Tensor second = group.allocate({large});
  if (group.rank() == 0) first = Tensor();
  testing::check_sum(group, second);
  testing::check_sum(group, group.rank() == 0 ? second : first.defined() ? first : second);
  first = Tensor();
  for (int k = 0; k < 10; ++k) testing::check_sum(group, group.allocate({5000 + k}));
  testing::check_sum(group, second);
}

TEST_CASE("a rank that has nothing to give or to get makes no difference to what others reach") {
  const comm::ProcessGroup& group = testing::job().group();
  const int world = group.world(), rank = group.rank();
  const Tensor shared_in = group.allocate({10'000 * world}),
               shared_out = group.allocate({10'000 * world});
  for (int idle = 0; idle < world; ++idle) {
    std::vector<std::int64_t> counts;
    for (int from = 0; from < world; ++from) {
      for (int to = 0; to < world; ++to) counts.push_back(from == idle || to == idle ? 0 : 10'000);
    }
    const std::int64_t all = rank == idle ? 0 : 10'000 * (world - 1);
    for (const bool shared : {false, true}) {
      const Tensor in = shared ? shared_in.rows(0, all) : Tensor::zeros({all});
      const Tensor out = shared ? shared_out.rows(0, all) : Tensor::zeros({all});
      for (std::int64_t i = 0; i < all; ++i) in.data<float>()[i] = static_cast<float>(rank);
      group.all_to_all_v(out, in, counts).wait();
      std::int64_t at = 0, wrong = 0;
      for (int from = 0; from < world && rank != idle; ++from) {
        if (from == idle) continue;
        for (int i = 0; i < 10'000; ++i)
          wrong += out.data<float>()[at++] != static_cast<float>(from);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("ranks that want different amounts of memory are told so") {
  const auto group = comm::mpi_group(MPI_COMM_WORLD);
  if (group.world() == 1) return;
  const std::int64_t mine = group.rank() == 1 ? 5000 : 1000;
  CHECK_THROWS_WITH_AS((void)group.allocate({mine}),
                       doctest::Contains("bytes of shared memory, and rank 1 "), Error);
  const Tensor nothing = group.allocate({0}), some = group.allocate({large});
  CHECK(nothing.numel() == 0);
  testing::check_sum(group, some);
}

TEST_CASE("groups within the world share memory of their own") {
  const comm::ProcessGroup& group = testing::job().group();
  const auto part = group.split(group.rank() % 2);
  const Tensor mine = part.allocate({large}), all = group.allocate({large});
  for (int k = 0; k < 3; ++k) {
    testing::check_sum(part, mine);
    testing::check_sum(group, all);
    testing::check_sum(part, all);  // not its memory: by way of its rooms
    testing::check_sum(group, mine);
  }
}

TEST_CASE("without shared memory collectives go by messages, and a warning says what to do") {
  for (bool* const fault : {&disk_is_full, &may_not_write}) {
    *fault = true;
    testing::nameless_refusal = may_not_write ? EACCES : 0;
    {
      const auto group = comm::mpi_group(MPI_COMM_WORLD);
      testing::check_sum(group, Tensor::zeros({10}));
      testing::check_sum(group, group.allocate({large}));
    }
    *fault = false;
    testing::nameless_refusal = 0;
  }
  // There for the group, and full when memory is wanted.
  const auto group = comm::mpi_group(MPI_COMM_WORLD);
  disk_is_full = true;
  const Tensor ordinary = group.allocate({large});
  disk_is_full = false;
  testing::check_sum(group, ordinary);
  testing::check_sum(group, group.allocate({large}));
}

TEST_CASE("no name remains in /dev/shm, and there is none but where files have to have one") {
  const bool makes = testing::job().rank() == 0 && testing::job().world() > 1;
  for (const bool has_to : {false, true}) {
    names.clear();
    testing::nameless_refusal = has_to ? EOPNOTSUPP : 0;
    const auto group = comm::mpi_group(MPI_COMM_WORLD);
    testing::check_sum(group, group.allocate({large}));
    testing::nameless_refusal = 0;
    if (makes) CHECK(names.empty() == !has_to);
    for (const std::string& name : names) CHECK_FALSE(fs::exists("/dev/shm" + name));
  }
}
