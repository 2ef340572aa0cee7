// SPDX-License-Identifier: Apache-2.0
// Agreement among ranks: nothing where they agree, the first difference where they do not.
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/core/out_of_memory.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/comm/start/threads.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::comm;

namespace {

// What each rank is told where rank r says text(r).
std::vector<std::string> told(int world, const std::function<std::string(int)>& text) {
  std::vector<std::string> errors(static_cast<std::size_t>(world), "nothing");
  run_ranks(world, {}, [&](const ProcessGroup& group) {
    try {
      agree(group, "[test] the model", text(group.rank()), "build one");
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(group.rank())] = error.what();
    }
    // The group is as good as before.
    const Tensor sum = Tensor::from(std::vector<float>{1}, {1});
    group.all_reduce(sum).wait();
    CHECK(sum.item<float>() == static_cast<float>(world));
  });
  return errors;
}

}  // namespace

TEST_CASE("ranks that say the same agree") {
  for (const std::string& text : {std::string(), std::string("a"), std::string(100'000, 'x')}) {
    for (int world = 1; world <= 4; ++world) {
      CHECK(told(world, [&](int) { return text; }) ==
            std::vector<std::string>(static_cast<std::size_t>(world), "nothing"));
    }
  }
}

TEST_CASE("all ranks are told the first line that differs, and whose it is") {
  const std::string expected =
      "[test] the model is 'fc1 [3, 4]' on rank 0 and 'fc1 [3, 5]' on rank 2: build one";
  const auto errors = told(4, [](int rank) {
    return concat("fc0 [1]\nfc1 [3, ", rank >= 2 ? 5 : 4, "]\nfc2 [", rank, "]\n");
  });
  // Rank 1 differs later than rank 2 does, and is the first rank to.
  const std::string first =
      "[test] the model is 'fc2 [0]' on rank 0 and 'fc2 [1]' on rank 1: build one";
  CHECK(errors == std::vector<std::string>(4, first));
  CHECK(told(3, [](int rank) { return concat("fc1 [3, ", rank == 2 ? 5 : 4, "]\nfc2"); }) ==
        std::vector<std::string>(3, expected));
  CHECK(told(2, [](int rank) { return rank == 0 ? "" : "x"; })[0] ==
        "[test] the model is '' on rank 0 and 'x' on rank 1: build one");
  CHECK(told(2, [](int rank) { return rank == 0 ? "a\n" : "a\nb"; })[1] ==
        "[test] the model is 'nothing more' on rank 0 and 'b' on rank 1: build one");
  CHECK(told(2, [](int rank) { return rank == 1 ? "a" : "a\nb"; })[0] ==
        "[test] the model is 'b' on rank 0 and 'nothing more' on rank 1: build one");
}

TEST_CASE("what some ranks find wrong, all are told, and whose it is") {
  const auto errors = [](int world, const std::function<std::string(int)>& wrong) {
    std::mutex mutex;
    std::set<std::string> all;
    run_ranks(world, {}, [&](const ProcessGroup& group) {
      try {
        agree_unless(group, "[test] the model", concat(group.rank()), wrong(group.rank()), "");
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        all.insert(error.what());
      }
      group.barrier().wait();
    });
    return all;
  };
  using Errors = std::set<std::string>;
  CHECK(errors(3, [](int rank) { return rank == 2 ? "it is odd" : ""; }) ==
        Errors{"[test] the model: rank 2: it is odd"});
  CHECK(errors(3, [](int rank) { return rank == 0 ? "" : concat("odd ", rank); }) ==
        Errors{"[test] the model: rank 1: odd 1; rank 2: odd 2"});
  CHECK(errors(3, [](int) { return "it is odd"; }) ==
        Errors{"[test] the model: on all ranks: it is odd"});
  CHECK(errors(1, [](int) { return "it is odd"; }) == Errors{"[test] the model: it is odd"});
  CHECK(errors(7, [](int rank) { return rank == 1 ? "" : "odd"; }) ==
        Errors{"[test] the model: rank 0: odd; rank 2: odd; rank 3: odd; rank 4: odd; and 2 ranks "
               "more"});
}

TEST_CASE("what fails on a rank before it agrees all are told, whatever it throws") {
  const auto errors = [](const std::function<void()>& failing) {
    std::mutex mutex;
    std::vector<std::string> all;
    run_ranks(2, {}, [&](const ProcessGroup& group) {
      const std::string wrong = failure_while(group, "reads a file", [&] {
        if (group.rank() == 1) failing();
      });
      try {
        agree_unless(group, "[test] the file", "", wrong, "");
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        all.push_back(error.what());
      }
    });
    return all;
  };
  const auto of_both = [](const std::string& words) {
    return std::vector<std::string>(2, "[test] the file: rank 1: " + words);
  };
  CHECK(errors([] {}).empty());
  CHECK(errors([] { throw std::runtime_error("it is gone"); }) == of_both("it is gone"));
  CHECK(errors([] { throw std::runtime_error(""); }) == of_both("an exception without words"));
  CHECK(errors([] { throw 42; }) == of_both("an exception that is no std::exception"));
}

TEST_CASE("what a rank does before it agrees may take longer than the group's deadline") {
  using namespace std::chrono_literals;
  run_ranks(2, {.deadline = 200ms}, [](const ProcessGroup& group) {
    const std::string wrong = failure_while(group, "reads a file", [&] {
      if (group.rank() == 1) std::this_thread::sleep_for(600ms);
    });
    agree_unless(group, "[test] the file", "", wrong, "");
  });
}

TEST_CASE("where all that is wrong is want of memory, it is OutOfMemory on all ranks") {
  const auto words = [](const std::function<void()>& f) {
    try {
      f();
    } catch (...) {
      return words_of_failure();
    }
    return std::string();
  };
  const std::string of_device = words([] { throw OutOfMemory("cuda: none is left"); });
  const std::string of_host = words([] { throw std::bad_alloc(); });
  const auto is_memory = [](const std::function<std::string(int)>& wrong) {
    std::atomic<int> ranks{0};
    run_ranks(3, {}, [&](const ProcessGroup& group) {
      try {
        agree_unless(group, "[test] the model", concat(group.rank()), wrong(group.rank()), "");
      } catch (const OutOfMemory& error) {
        CHECK(std::string(error.what()).find("[test] the model: ") == 0);
        ++ranks;
      } catch (const Error&) {
      }
      group.barrier().wait();
    });
    return ranks.load();
  };
  CHECK(is_memory([&](int rank) { return rank == 1 ? of_device : ""; }) == 3);
  CHECK(is_memory([&](int rank) { return rank == 1 ? of_device : of_host; }) == 3);
  CHECK(is_memory([&](int) { return of_host; }) == 3);
  CHECK(is_memory([&](int rank) { return rank == 1 ? of_device : "it is odd"; }) == 0);
  CHECK(is_memory([&](int) { return "it is odd"; }) == 0);
}

TEST_CASE("a digest sees every bit, and the length") {
  std::set<std::array<std::uint64_t, 2>> seen;
  std::size_t made = 0;
  for (std::size_t size = 0; size < 40; ++size) {
    std::string bytes(size, '\0');
    seen.insert(digest(bytes));
    ++made;
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] = static_cast<char>(1 << bit % 8);
      seen.insert(digest(bytes));
      ++made;
      bytes[bit / 8] = 0;
    }
  }
  CHECK(seen.size() == made);
}

TEST_CASE("digests of texts that differ in anything differ") {
  std::set<std::array<std::uint64_t, 2>> seen;
  std::set<std::uint64_t> first, second;
  std::vector<std::string> texts = {"",  std::string(1, '\0'), std::string(8, '\0'), "a", "b", "ab",
                                    "ba"};
  for (int i = 0; i < 2000; ++i) {
    texts.push_back(concat("PEAL_TIMEOUT ", i));
    std::string one_bit(100, 'x');
    one_bit[static_cast<std::size_t>(i / 8 % 100)] ^= static_cast<char>(1 << (i % 8));
    if (i < 800) texts.push_back(one_bit);
  }
  for (const std::string& text : texts) {
    const auto both = digest(text);
    seen.insert(both);
    first.insert(both[0]);
    second.insert(both[1]);
  }
  CHECK(seen.size() == texts.size());
  CHECK(first.size() == texts.size());
  CHECK(second.size() == texts.size());
}

TEST_CASE("ranks that list different sub-groups are all told") {
  std::mutex mutex;
  std::set<std::string> errors;
  run_ranks(3, {}, [&](const ProcessGroup& group) {
    try {
      (void)group.new_group(group.rank() == 2 ? std::vector{1, 0} : std::vector{0, 1});
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      errors.insert(error.what());
    }
  });
  CHECK(errors == std::set<std::string>{"new_group: the list of ranks is '0 1' on rank 0 and '1 0' "
                                        "on rank 2: all must give the same"});
  errors.clear();
  run_ranks(3, {}, [&](const ProcessGroup& group) {
    try {
      (void)group.new_group(group.rank() == 1 ? std::vector{0, 3} : std::vector{0, 2});
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      errors.insert(error.what());
    }
    group.barrier().wait();
  });
  CHECK(errors == std::set<std::string>{"new_group: the list of ranks: rank 1: they must be "
                                        "different ones of 0 to 2, got 3"});
}
