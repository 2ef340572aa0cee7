// SPDX-License-Identifier: Apache-2.0
// How ranks come to NCCL together, or do not: communicators that one of them never makes, versions
// that differ, memory that one of them cannot register; and calls that wait within NCCL for ranks
// that are still at something else.
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/nccl.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/nccl/communicator.h>
#include <peal/comm/transport/nccl/peers.h>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective_values.h"
#include "failing_run.h"
#include "nccl_for_tests.h"
#include "on_rank.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::OnDevice;

namespace {

constexpr ProcessGroup::Options soon{.deadline = std::chrono::milliseconds(1500)};

// What each of two ranks is told, which both call f.
std::vector<std::string> told_on_two(const std::function<void(const ProcessGroup&, Device)>& f) {
  std::vector<std::string> errors(2);
  static_cast<void>(error_of([&] {
    run_ranks(2, soon, [&](const ProcessGroup& group) {
      const OnDevice here(group.rank());
      std::string& error = errors[static_cast<std::size_t>(group.rank())];
      error = error_of([&] { f(group, here.device); });
      if (error != "nothing") throw Error(error);
    });
  }));
  return errors;
}

std::shared_ptr<void> afterwards(const std::function<void()>& f) {
  return {nullptr, [f](void*) { f(); }};
}

}  // namespace

TEST_CASE("a rank that does not come to NCCL is named, and one that stays in its start ends it") {
  const std::string absent = error_of([] {
    run_ranks(2, soon, [](const ProcessGroup& group) {
      const OnDevice here(group.rank());
      peal::testing::alone_on_rank_0([&](const ProcessGroup& all) { use_nccl(all, here.device); })(
          group);
    });
  });
  MESSAGE(absent);
  CHECK(contains(absent, "rank 1"));
  CHECK(contains(absent, "PEAL_TIMEOUT"));

  cuda_host::nccl_hold_init(0b10);
  const auto finally = afterwards([] { cuda_host::nccl_hold_init(0); });
  const auto held =
      told_on_two([](const ProcessGroup& group, Device device) { use_nccl(group, device); });
  for (const std::string& error : held) {
    MESSAGE(error);
    CHECK(contains(error, "ncclCommInitRankConfig"));
    CHECK(contains(error, "PEAL_TIMEOUT"));
    CHECK(contains(error, "NCCL_SOCKET_IFNAME"));
  }
}

TEST_CASE("a rank whose wait in its start is hopeless leaves it, and nobody else is kept") {
  ncclUniqueId id = {};
  ncclGetUniqueId(&id);
  const auto create = [&](int rank, const Hopeless& hopeless) {
    return Communicator::create(id, rank, 2, {DeviceType::cuda, rank}, {}, std::chrono::seconds(60),
                                hopeless);
  };
  CHECK(error_of([&] { create(0, [] { throw Error("rank 1 is gone"); }); }) == "rank 1 is gone");
  CHECK(create(1, [] {}) != nullptr);  // the call that was given up goes on, and meets this one
}

TEST_CASE("ranks whose NCCL is of different versions are all told both") {
  cuda_host::nccl_version(1, 22703);
  const auto finally = afterwards([] { cuda_host::nccl_version(1, 0); });
  const auto errors =
      told_on_two([](const ProcessGroup& group, Device device) { use_nccl(group, device); });
  for (const std::string& error : errors) {
    CAPTURE(error);
    CHECK(contains(error, "rank 0"));
    CHECK(contains(error, "has NCCL 2.28.9, rank 1"));
    CHECK(contains(error, "has 2.27.3"));
  }
  const std::string older = nccl::version_warning(22703, 22809);
  CHECK(contains(older, "NCCL 2.27.3"));
  CHECK(contains(older, "2.28.9"));
  CHECK(nccl::version_warning(22809, 22809).empty());
  CHECK(nccl::version_warning(22901, 22809).empty());
}

TEST_CASE("an NCCL without what peal calls is named to all ranks before it is called") {
  cuda_host::nccl_version(1, 22602);
  const auto finally = afterwards([] { cuda_host::nccl_version(1, 0); });
  const auto errors =
      told_on_two([](const ProcessGroup& group, Device device) { use_nccl(group, device); });
  for (const std::string& error : errors) {
    CAPTURE(error);
    CHECK(contains(error, "rank 1: the library is NCCL 2.26.2, expected 2.27.0 at least"));
  }
  const NcclOptions zero{.cta_policy = CtaPolicy::zero};
  CHECK(nccl::too_old(22703, {}).empty());
  CHECK(
      contains(nccl::too_old(22703, zero), "expected 2.28.0 at least, which has CtaPolicy::zero"));
  CHECK(nccl::too_old(22809, zero).empty());
}

TEST_CASE("where the ranks' GPUs are") {
  std::vector<nccl::Peer> peers;
  for (int r = 0; r < 3; ++r) {
    nccl::Peer peer = nccl::this_peer({DeviceType::cuda, r % 2});
    peer.id = std::string("\n\0x", 3);
    peers.push_back(nccl::unpack(nccl::pack(peer)));
    CHECK(peers.back().id == peer.id);
  }
  peers[2].host = "elsewhere";
  CHECK(nccl::obstacle(peers).empty());
  CHECK(nccl::links(peers, 0, {DeviceType::cuda, 0}) == "PCIe to 1");
  CHECK(nccl::links(peers, 2, {DeviceType::cuda, 0}).empty());
  const auto lines = nccl::topology(peers, {"PCIe to 1", "", ""});
  CHECK(contains(lines[0], "cuda:0, CUDA on the host, PCI 0000:01:00.0, NUMA node"));
  CHECK(contains(lines[0], "; PCIe to 1; NCCL 2.28.9"));
  CHECK(contains(lines[2], "rank 2 on elsewhere"));
}

TEST_CASE("NCCL knows memory of all ranks or of none: windows, else registered, else plain") {
  struct Case {
    unsigned windows, refused;
    int want_windows, want_registered;
  };
  const auto finally = afterwards([] {
    cuda_host::nccl_windows(0);
    cuda_host::nccl_refuse_registration(0);
  });
  for (const Case& each :
       {Case{0b11, 0, 2, 2}, Case{0b01, 0, 0, 2}, Case{0, 0b10, 0, 0}, Case{0b11, 0b01, 0, 0}}) {
    CAPTURE(each.windows);
    CAPTURE(each.refused);
    cuda_host::nccl_windows(each.windows);
    cuda_host::nccl_refuse_registration(each.refused);
    run_ranks(2, [&](const ProcessGroup& group) {
      const OnDevice here(group.rank());
      use_nccl(group, here.device);
      const auto both = [&](int windows, int registered) {
        group.barrier().wait();
        CHECK(cuda_host::nccl_window_count() == windows);
        CHECK(cuda_host::nccl_registered() == registered);
        group.barrier().wait();
      };
      {
        const Tensor data = group.allocate({100}, DType::f32, here.device);
        both(each.want_windows, each.want_registered);
        data.copy_(comm::testing::filled(100, DType::f32,
                                         [&](std::int64_t) { return 1.0 + group.rank(); }));
        group.all_reduce(data).synchronize();
        CHECK(data.to_vector<float>() == std::vector<float>(100, 3));
        group.progress();  // lets go of what is over
      }
      // Windows go together, at the next allocate() or at the group's end.
      both(each.want_windows, each.want_windows);
    });
    CHECK(cuda_host::nccl_window_count() == 0);
    CHECK(cuda_host::nccl_registered() == 0);
  }
}

TEST_CASE("a window is forgotten by all ranks together, once none of them has it any more") {
  cuda_host::nccl_windows(0b11);
  const auto finally = afterwards([] { cuda_host::nccl_windows(0); });
  run_ranks(2, [](const ProcessGroup& group) {
    const OnDevice here(group.rank());
    use_nccl(group, here.device);
    const auto allocate = [&] { return group.allocate({100}, DType::f32, here.device); };
    const auto windows = [&] {
      group.barrier().wait();
      const int found = cuda_host::nccl_window_count();
      group.barrier().wait();
      return found;
    };
    Tensor first = allocate();
    if (group.rank() == 1) first = {};
    const Tensor second = allocate();
    CHECK(windows() == 4);  // rank 0 has the first one still
    first = {};
    CHECK(windows() == 4);
    const Tensor third = allocate();
    CHECK(windows() == 4);
    for (const Tensor& data : {second, third}) {
      data.copy_(full({100}, 1 + group.rank(), DType::f32, here.device));
      group.all_reduce(data).synchronize();
      CHECK(data.to_vector<float>() == std::vector<float>(100, 3));
    }
  });
  CHECK(cuda_host::nccl_window_count() == 0);
  CHECK(cuda_host::nccl_registered() == 0);
}

TEST_CASE("a window that a rank never makes is an error of who waits, and ends the communicator") {
  cuda_host::nccl_windows(0b11);
  const auto finally = afterwards([] { cuda_host::nccl_windows(0); });
  std::string told;
  std::vector<std::string> after(2);
  std::atomic<bool> over{false};
  static_cast<void>(error_of([&] {
    run_ranks(2, soon, [&](const ProcessGroup& group) {
      const OnDevice here(group.rank());
      use_nccl(group, here.device);
      if (group.rank() == 0) {
        told = error_of([&] { group.allocate({100}, DType::f32, here.device); });
        over = true;
      } else {  // has the memory, and makes no window
        static_cast<void>(group.all_gather_object("yes"));
        peal::testing::wait_until([&] { return over || group.poisoned(); });
      }
      after[static_cast<std::size_t>(group.rank())] =
          error_of([&] { group.all_reduce(Tensor::zeros({10})).synchronize(); });
    });
  }));
  CAPTURE(told);
  CHECK(contains(told, "ncclCommWindowRegister on cuda:0 has not ended"));
  for (const std::string& error : after) CHECK(contains(error, concat("rank 0: ", told)));
}

TEST_CASE("a split that fails on one rank is told to all, who would wait for it") {
  cuda_host::nccl_refuse_split(0b10);
  const auto finally = afterwards([] { cuda_host::nccl_refuse_split(0); });
  std::vector<std::string> told(2);
  std::atomic<bool> over{false};
  static_cast<void>(error_of([&] {
    run_ranks(2, soon, [&](const ProcessGroup& group) {
      const OnDevice here(group.rank());
      use_nccl(group, here.device);
      told[static_cast<std::size_t>(group.rank())] =
          error_of([&] { static_cast<void>(group.split(0)); });
      if (group.rank() == 0) over = true;
      peal::testing::wait_until([&] { return over || group.poisoned(); });
    });
  }));
  CAPTURE(told[0]);
  CHECK(contains(told[1], "ncclCommSplit on cuda:1: unhandled system error"));
  CHECK(contains(told[0], concat("rank 1: ", told[1])));
}

TEST_CASE("a split that a rank never makes is given up, and ends the communicator") {
  const auto splits = [](const Hopeless& hopeless) {
    ncclUniqueId id = {};
    ncclGetUniqueId(&id);
    std::string told, after;
    run_ranks(2, [&](const ProcessGroup& group) {
      const OnDevice here(group.rank());
      const auto whole = Communicator::create(id, group.rank(), 2, here.device, {},
                                              std::chrono::milliseconds(500), [] {});
      if (group.rank() == 0) {
        told = error_of([&] { static_cast<void>(whole->split(0, 0, hopeless)); });
        after = error_of([&] { whole->check(); });
      }
      group.barrier().wait();
    });
    CHECK(contains(after, "was aborted after a failure"));
    return told;
  };
  CHECK(contains(splits([] {}), "ncclCommSplit on cuda:0 has not ended"));
  CHECK(splits([] { throw Error("rank 1 is gone"); }) == "rank 1 is gone");
}

TEST_CASE("a communicator whose end is late is left as it is, and not freed under NCCL's call") {
  ncclUniqueId id = {};
  ncclGetUniqueId(&id);
  const auto finally = afterwards([] { cuda_host::nccl_hold_init(0); });
  {
    const auto alone = Communicator::create(id, 0, 1, {DeviceType::cuda, 0}, {},
                                            std::chrono::milliseconds(300), [] {});
    cuda_host::nccl_hold_init(0b1);
  }
  CHECK_FALSE(contains(cuda_host::nccl_hang(), "ncclCommAbort"));
}

TEST_CASE("options reach NCCL's communicators, those of sub-groups too") {
  run_ranks(2, [](const ProcessGroup& group) {
    const OnDevice here(group.rank());
    use_nccl(group, here.device, {.cta_policy = CtaPolicy::efficiency, .max_ctas = 8});
    CHECK(cuda_host::nccl_config() == std::pair(8, NCCL_CTA_POLICY_EFFICIENCY));
    group.barrier().wait();
    if (group.rank() == 0) {
      const auto alone = ProcessGroup::alone();
      use_nccl(alone, here.device);
      CHECK(cuda_host::nccl_config() == std::pair(NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT));
    }
    group.barrier().wait();
    const ProcessGroup part = group.split(0);
    CHECK(part.world() == 2);
    CHECK(cuda_host::nccl_config() == std::pair(8, NCCL_CTA_POLICY_EFFICIENCY));
  });
}

TEST_CASE("options that differ between ranks are told to all") {
  const auto errors = told_on_two([](const ProcessGroup& group, Device device) {
    use_nccl(group, device, {.max_ctas = 4 + group.rank()});
  });
  for (const std::string& error : errors) {
    CAPTURE(error);
    CHECK(contains(error, "max_ctas 4"));
    CHECK(contains(error, "rank 1 has cta_policy NCCL's, min_ctas NCCL's, max_ctas 5"));
  }
}

TEST_CASE("what waits within NCCL for a rank does not keep that rank from what it waits for") {
  const auto errors = told_on_two([](const ProcessGroup& group, Device device) {
    use_nccl(group, device);
    const Tensor token = Tensor::zeros({4}, DType::f32, Device{});
    // Of two sizes between powers of two, for which NCCL has an algorithm each.
    for (const std::int64_t count : {1100, 1900}) {
      const Tensor data = Tensor::zeros({count}, DType::f32, device);
      if (group.rank() == 0) {
        const Work first = group.all_reduce(data);  // rank 1 comes to its own after the message
        group.send(token, 1).wait();
        first.synchronize();
      } else {
        group.recv(token, 0).wait();
        group.all_reduce(data).synchronize();
      }
    }
  });
  CHECK(errors == std::vector<std::string>(2, "nothing"));
}

TEST_CASE("a rank that fails ends a first call of another that waits for it aside") {
  std::atomic<bool> waits{false};
  const auto errors = told_on_two([&](const ProcessGroup& group, Device device) {
    use_nccl(group, device);
    if (group.rank() == 1) {
      peal::testing::wait_until([&] { return waits || group.poisoned(); });
      throw Error("disk of rank 1 is on fire");
    }
    const Work work = group.all_reduce(Tensor::zeros({10}, DType::f32, device));
    waits = true;
    work.synchronize();
  });
  for (const std::string& error : errors) CHECK(contains(error, "on fire"));
}
