// SPDX-License-Identifier: Apache-2.0
// A wire between threads that is slow, jittery and lossy: results stay exact, order stays what
// transport.h promises, time is at least what the model says, and a loss is an error with names.
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/threads/network.h>

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include "collective_cases.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Fates of a few thousand transfers.
std::vector<Fate> fates(const Wire& wire) {
  std::vector<Fate> all;
  for (std::uint64_t sequence = 0; sequence < 100; ++sequence) {
    for (int from = 0; from < 4; ++from) {
      for (int to = 0; to < 4; ++to) {
        all.push_back(fate(wire, {.channel = {sequence, 7}, .from = from, .to = to, .bytes = 64}));
      }
    }
  }
  return all;
}

bool same(const std::vector<Fate>& a, const std::vector<Fate>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].late != b[i].late || a[i].dropped != b[i].dropped) return false;
  }
  return a.size() == b.size();
}

}  // namespace

TEST_CASE("a message's fate follows from the seed and from what it is") {
  Wire wire{.latency = 1, .jitter = 0.5, .faults = {{.to = 2, .share = 0.25, .drop = true}}};
  const auto first = fates(wire);
  CHECK(same(first, fates(wire)));
  int dropped = 0;
  double least = 2, most = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i].dropped) CHECK(i % 4 == 2);  // to rank 2 alone
    dropped += first[i].dropped;
    least = std::min(least, first[i].late);
    most = std::max(most, first[i].late);
  }
  CHECK(dropped > 70);  // of 400, 100 are to be expected
  CHECK(dropped < 130);
  CHECK(least >= 1);
  CHECK(least < 1.05);
  CHECK(most > 1.45);
  CHECK(most < 1.5);
  wire.seed = 2;
  CHECK(!same(first, fates(wire)));
}

TEST_CASE("a link, a port, the nth message") {
  const Wire wire{.latency = 1,
                  .bandwidth = 100,
                  .port = 200,
                  .links = {{.from = 0, .to = 1, .latency = 3, .bandwidth = 50}},
                  .faults = {{.nth = 2, .delay = 5}}};
  const auto at = [&](int from, int to, std::int64_t on_link) {
    return fate(wire, {.from = from, .to = to, .on_link = on_link, .bytes = 100});
  };
  CHECK(at(1, 0, 0).link == 1.0);
  CHECK(at(1, 0, 0).port == 0.5);
  CHECK(at(1, 0, 0).late == 1.0);
  CHECK(at(0, 1, 0).link == 2.0);
  CHECK(at(0, 1, 0).late == 3.0);
  CHECK(at(1, 0, 2).late == 6.0);
  CHECK(at(1, 0, 3).late == 1.0);
}

TEST_CASE("a link passes one message at a time, and a port serves all its links") {
  const auto bytes = [](int from, int to, std::size_t count) {
    return Transfer{.from = from, .to = to, .bytes = count};
  };
  Network network({.bandwidth = 1000, .port = 2000}, 3);
  const auto start = Clock::now();
  const auto after = [&](Clock::time_point arrival) {
    return std::chrono::duration<double>(arrival - start).count();
  };
  CHECK(after(network.send(bytes(0, 1, 1000))) >= 1.0);
  CHECK(after(network.send(bytes(0, 1, 1000))) >= 2.0);  // behind the first
  CHECK(after(network.send(bytes(0, 2, 1000))) >=
        2.5);  // the port was busy for the second till 1.5
  Network lossy({.faults = {{.drop = true}}}, 2);
  CHECK(lossy.send(bytes(0, 1, 8)) == Network::never);
}

TEST_CASE("every collective is exact over a wire that is late and reorders, at 2 to 5 ranks") {
  const Wire wire{
      .latency = 10e-6, .jitter = 200e-6, .seed = 3, .faults = {{.share = 0.01, .delay = 2e-3}}};
  for (int world = 2; world <= 5; ++world) {
    std::atomic<std::int64_t> compared{0};
    run_ranks(world, {}, wire, [&](const ProcessGroup& group) {
      compared += comm::testing::check_collectives(group).compared;
    });
    MESSAGE("world " << world << ": " << compared.load() << " elements compared");
    CHECK(compared > 10000);
  }
}

TEST_CASE("messages of one channel keep their order, those of two do not") {
  constexpr std::int64_t many = 30;
  const auto run = [](const Wire& wire, bool first_tag_comes) {
    run_ranks(2, {}, wire, [&](const ProcessGroup& group) {
      std::vector<Tensor> data[2];
      std::vector<Work> works[2];
      for (std::int64_t i = 0; i < many; ++i) {
        for (const std::size_t tag : {0, 1}) {
          data[tag].push_back(Tensor::scalar(group.rank() == 0 ? i : std::int64_t{-1}));
          const View view = data[tag].back();
          works[tag].push_back(group.rank() == 0 ? group.send(view, 1, static_cast<int>(tag))
                                                 : group.recv(view, 0, static_cast<int>(tag)));
        }
      }
      for (const std::size_t tag : {1, 0}) {
        if (tag == 0 && !first_tag_comes) continue;
        for (const Work& work : works[tag]) work.wait();
        for (std::int64_t i = 0; i < many; ++i) {
          CHECK(data[tag][static_cast<std::size_t>(i)].item<std::int64_t>() == i);
        }
      }
      group.barrier().wait();
      if (group.rank() == 1 && !first_tag_comes) {
        for (const Work& work : works[0]) CHECK(!work.test());  // behind the one that is lost
      }
    });
  };
  run({.jitter = 3e-3}, true);
  run({.faults = {{.from = 0, .nth = 0, .drop = true}}}, false);
}

TEST_CASE("a slow link holds up the whole ring for as long as the model says") {
  constexpr int world = 4;
  constexpr std::int64_t count = 20'000;
  constexpr double rate = 1e6;  // bytes a second
  const Wire wire{.links = {{.from = 1, .to = 2, .bandwidth = rate}}};
  ProcessGroup::Options options;
  options.algorithms = "all_reduce=ring";
  run_ranks(world, options, wire, [&](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({count});
    const auto start = Clock::now();
    group.all_reduce(data).wait();
    group.barrier().wait();  // else a rank before the slow link may be done sooner
    const double sent = 4.0 * static_cast<double>(count) * 2 * (world - 1) / world;
    // All that passes the slow link is rank 1's own, and it sends nothing before its `start`.
    if (group.rank() == 1) CHECK(seconds_since(start) >= sent / rate);
  });
}

TEST_CASE("a rank that waits for the wire sleeps") {
  std::atomic<long> slept{0};  // times
  run_ranks(2, {}, {.latency = 0.2}, [&](const ProcessGroup& group) {
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    group.barrier().wait();
    getrusage(RUSAGE_THREAD, &after);
    slept += after.ru_nvcsw - before.ru_nvcsw;  // it gave the core away of its own accord
  });
  CHECK(slept > 10);  // a rank that comes late may find all there
}

TEST_CASE("a sub-group's messages use the world's links") {
  const Wire wire{.links = {{.from = 2, .to = 0, .latency = 0.05}}};
  run_ranks(3, {}, wire, [](const ProcessGroup& group) {
    const auto pair = group.new_group({2, 0});
    if (!pair) return;
    pair.barrier().wait();
    const Tensor data = Tensor::scalar(std::int64_t{pair.rank()});
    const auto start = Clock::now();
    (pair.rank() == 0 ? pair.send(data, 1) : pair.recv(data, 0)).wait();
    const double took = seconds_since(start);
    pair.barrier().wait();
    CHECK(data.item<std::int64_t>() == 0);
    if (group.rank() == 2) CHECK(took >= 0.05);  // rank 0 may have begun later
  });
}

TEST_CASE("a dropped message ends in an error that says who waits for whom") {
  ProcessGroup::Options options;
  options.deadline = std::chrono::milliseconds(4000);
  options.algorithms = "all_reduce=ring";
  // Each rank sends 2 (p - 1) = 4 blocks; of those from 1 to 2 the second is lost.
  const Wire wire{.faults = {{.from = 1, .to = 2, .nth = 1, .drop = true}}};
  const std::string message = error_of([&] {
    run_ranks(3, options, wire, [](const ProcessGroup& group) {
      const Tensor data = Tensor::zeros({12});
      group.all_reduce(data).wait();
    });
  });
  CAPTURE(message);
  CHECK(contains(message, "has not moved for 4 s (PEAL_TIMEOUT)"));
  CHECK(contains(message, "rank 2: all_reduce #"));
  CHECK(contains(message, "for 16 B from rank 1 in round 2"));
}

TEST_CASE("a wire that cannot be is an error before anything is sent") {
  const auto refused = [](const Wire& wire, const char* why) {
    CHECK_THROWS_WITH_AS(run_ranks(2, {}, wire, [](const ProcessGroup&) {}), doctest::Contains(why),
                         Error);
  };
  refused({.latency = -1}, "latency is in seconds");
  refused({.bandwidth = 0}, "bandwidth is in bytes a second");
  refused({.port = 0}, "port is in bytes a second");
  refused({.links = {{.from = 2}}}, "a link's from is a rank below 2");
  refused({.faults = {{.to = -2}}}, "a fault's to is a rank below 2");
  refused({.faults = {{.nth = -2}}}, "nth counts from 0, got -2");
  refused({.faults = {{.share = 1.5}}}, "share is 0 to 1, got 1.5");
}
