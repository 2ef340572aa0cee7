// SPDX-License-Identifier: Apache-2.0
// Ranks over TCP, of which one has failed or calls something else: what the others are told, and
// when. tcp_test.cpp has the lines below.
#include <peal/autograd/core/error.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include "mail_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

using Clock = std::chrono::steady_clock;

TEST_CASE("ranks of other nodes learn why a rank has failed, at once, whatever they wait for") {
  const ProcessGroup::Options options{.deadline = std::chrono::seconds(60), .shared_memory = false};
  for (const bool in_a_message : {false, true}) {
    const auto errors = on_mailrooms(
        Lines::tcp, 4, options,
        [&](const ProcessGroup& group) {
          const Tensor large = Tensor::zeros({50'000'000}, DType::u8);
          if (group.rank() == 0) {
            const Work work = group.send(large, 1);
            for (int i = 0; in_a_message && i < 100; ++i) work.test();
            group.poison("the disk of rank 0 is full");
            throw Error("the disk of rank 0 is full");
          }
          if (group.rank() == 1) group.recv(large, 0).wait();
          if (group.rank() == 2) group.recv(large, 3).wait();
          group.barrier().wait();
        },
        false);
    for (const std::string& error : errors) check_has(error, "the disk of rank 0 is full");
  }
}

TEST_CASE("a rank that says that it has failed, and then does other things, is heard at once") {
  const ProcessGroup::Options options{.deadline = std::chrono::seconds(60), .shared_memory = false};
  std::atomic<int> told{0};
  const auto errors = on_mailrooms(
      Lines::tcp, 3, options,
      [&](const ProcessGroup& group) {
        const std::string error = error_of([&] {
          group.barrier().wait();  // all are there, and count what they hear from here on
          if (group.rank() != 0) group.recv(Tensor::zeros({4}), 0).wait();
          group.poison("the disk of rank 0 is full");
          for (const auto until = Clock::now() + std::chrono::seconds(20);
               told < 2 && Clock::now() < until;) {
            std::this_thread::sleep_for(milliseconds(1));
          }
          PEAL_CHECK(told == 2, "told ", told.load());
          group.check();
        });
        if (group.rank() != 0) ++told;
        throw Error(error);
      },
      false);
  for (const std::string& error : errors) check_has(error, "the disk of rank 0 is full");
}

TEST_CASE("what ranks have finished in a group, and is found to differ at its end, all hear of") {
  const ProcessGroup::Options options{.deadline = std::chrono::seconds(60), .shared_memory = false};
  std::atomic<int> told{0};
  const auto errors = on_mailrooms(
      Lines::both, 4, options,
      [&](const ProcessGroup& group) {
        const std::string error = error_of([&] {
          group.barrier().wait();  // all are there, and count what they hear from here on
          ProcessGroup part = group.new_group({0, 1, 2, 3});
          const Tensor few = Tensor::zeros({4});
          if (group.rank() >= 2) group.recv(few, 0).wait();
          part.broadcast(few, group.rank()).wait();
          part = {};
          for (const auto until = Clock::now() + std::chrono::seconds(20);
               told < 2 && Clock::now() < until;) {
            std::this_thread::sleep_for(milliseconds(1));
          }
          PEAL_CHECK(told == 2, "told ", told.load());
          group.check();
        });
        if (group.rank() >= 2) ++told;
        throw Error(error);
      },
      false);
  for (const std::string& error : errors) check_has(error, "must make the same calls");
}

TEST_CASE("a rank for which the others wait, call after call, hears them all the while") {
  const ProcessGroup::Options options{.deadline = std::chrono::seconds(60), .shared_memory = false};
  const auto errors = on_mailrooms(
      Lines::tcp, 2, options,
      [](const ProcessGroup& group) {
        const Tensor heard = Tensor::zeros({1});
        for (int turn = 0; turn < 15 && heard.item<float>() == 0; ++turn) {
          if (group.rank() == 1) {  // it is late, and waits for nobody
            std::this_thread::sleep_for(milliseconds(1200));
            if (body_of(group).lane->control().read(0)) heard.data<float>()[0] = 1;
          }
          group.broadcast(heard, 1).wait();
        }
        PEAL_CHECK(heard.item<float>() == 1, "rank 1 has heard nothing");
      },
      false);
  for (const std::string& error : errors) CHECK(error == "nothing");
}
