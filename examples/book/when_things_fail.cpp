// SPDX-License-Identifier: Apache-2.0
// What the ranks are told when one of them does something else, dies, or is silent.
// docs/book/13-when-things-fail.md
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/start/threads.h>
#include <peal/examples/book/book.h>
#include <peal/launch/spawn.h>
#include <peal/nn/nn.h>

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace book {
namespace {

using namespace peal;

// f on some ranks, and what each of them was told.
std::vector<std::string> told_by(int world, const comm::ProcessGroup::Options& options,
                                 const comm::Wire& wire,
                                 const std::function<void(const comm::ProcessGroup&)>& f) {
  std::vector<std::string> told(static_cast<std::size_t>(world), "nothing");
  try {
    comm::run_ranks(world, options, wire, [&](const comm::ProcessGroup& group) {
      try {
        f(group);
      } catch (const std::exception& error) {
        told[static_cast<std::size_t>(group.rank())] = error.what();
        throw;
      }
    });
  } catch (const Error&) {
  }
  return told;
}

void print(const std::vector<std::string>& told) {
  const auto same = std::ranges::count(told, told[0]);
  if (same == std::ssize(told)) return fmt::print("all were told: {}\n", told[0]);
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    fmt::print("rank {} was told: {}\n", rank, told[rank]);
  }
}

// "[comm] rank 1 ..., but rank 0 ...: all ranks must", in the order of ranks. Which of them sees it
// first is chance.
void print_by_rank(const std::vector<std::string>& told) {
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    std::string text = told[rank];
    const std::size_t first = text.find("rank 1 "), but = text.find(", but rank 0 "),
                      end = text.find(": all ranks");
    if (first < but && but < end && end != std::string::npos) {
      text = text.substr(0, first) + text.substr(but + 6, end - but - 6) + ", but " +
             text.substr(first, but - first) + text.substr(end);
    }
    fmt::print("rank {} was told: {}\n", rank, text);
  }
}

}  // namespace

void other_calls() {
  fmt::print("rank 1 calls something else:\n");
  print_by_rank(told_by(2, comm::ProcessGroup::Options::from_environment(), {},
                        [](const comm::ProcessGroup& group) {
                          const Tensor x = zeros({256});
                          group.all_reduce(x).wait();
                          if (group.rank() == 1) {
                            group.broadcast(x).wait();
                          } else {
                            group.all_reduce(x).wait();
                          }
                        }));
  fmt::print("\nrank 1 leaves a parameter out:\n");
  print(told_by(3, {}, {}, [](const comm::ProcessGroup& group) {
    nn::Sequential net = nn::mlp({4, 8, 2});
    nn::DistributedDataParallel ddp(net, group);
    const Tensor x = ones({2, 4});
    if (group.rank() == 1) {
      mean(ddp.call([&](const Tensor& in) { return net[1](in); }, x)).backward();
    } else {
      mean(ddp(x)).backward();
    }
  }));
}

void lost_message() {
  // The second message from rank 1 to rank 2 never comes.
  const comm::Wire wire{.faults = {{.from = 1, .to = 2, .nth = 1, .drop = true}}};
  const std::string told =
      told_by(3, {.deadline = std::chrono::seconds(3), .algorithms = "all_reduce=ring"}, wire,
              [](const comm::ProcessGroup& group) { group.all_reduce(ones({12})).wait(); })[0];
  // Whose deadline is the first is chance; the list that follows is not.
  fmt::print("after 3 seconds, what the ranks wait for:{}\n", told.substr(told.find('\n')));
}

namespace {

// Words of processes that may be killed, in memory that they share with this one.
class SharedWords {
 public:
  SharedWords()
      : words_(static_cast<char*>(
            mmap(nullptr, 3 * room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    PEAL_CHECK(words_ != MAP_FAILED, "mmap: no memory");
  }
  ~SharedWords() { munmap(words_, 3 * room); }
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;

  void write(int rank, const std::string& text) {
    std::strncpy(words_ + rank * room, text.c_str(), room - 1);
  }
  std::string read(int rank) const { return words_ + rank * room; }

 private:
  static constexpr int room = 1024;
  char* words_;
};

// Without the numbers of processes, which are others each time.
std::string without_pids(std::string text) {
  for (std::size_t at = 0; (at = text.find("process ", at)) != std::string::npos;) {
    at += 8;
    std::size_t end = at;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    if (end > at) text.replace(at, end - at, "N");
  }
  return text;
}

}  // namespace

void failing_rank() {
  fmt::print("rank 2 throws:\n");
  print(told_by(3, {}, {}, [](const comm::ProcessGroup& group) {
    group.barrier().wait();
    PEAL_CHECK(group.rank() != 2, "sample 1234 is no image: 'notes.txt'");
    group.all_reduce(ones({4})).wait();
  }));

  fmt::print("\nrank 2 is killed:\n");
  SharedWords words;
  std::fflush(stdout);  // before there are processes that would print it, too
  try {
    launch::spawn(
        3,
        [&](launch::Job& job) {
          try {
            for (int step = 0;; ++step) {
              if (step == 5 && job.rank() == 2) std::raise(SIGKILL);
              job.group().all_reduce(ones({4})).wait();
            }
          } catch (const Error& error) {
            words.write(job.rank(), error.what());
            throw;
          }
        },
        launch::StartMethod::fork);
  } catch (const Error& error) {
    for (int rank = 0; rank < 2; ++rank) {
      fmt::print("rank {} was told: {}\n", rank, without_pids(words.read(rank)));
    }
    fmt::print("and who started them: {}\n", without_pids(error.what()));
  }
}

}  // namespace book
