// SPDX-License-Identifier: Apache-2.0
// Runs that end well or not, for scripts that look at what is said then and at what remains.
//
//   endings sums             all_reduces of small, ordinary and shared buffers, checked
//   endings fork             the same, after a child of each rank has left the program
//   endings differ           the last rank calls one with an element less
//   endings throw            the last rank throws where the others call one more
//   endings interrupt        it throws in the middle of a large one
//   endings die MICROSECONDS  collectives without an end, until that long after the first ones the
//                            last rank kills itself, wherever it then is
#include <peal/autograd/core/error.h>
#include <peal/launch/job.h>

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

using namespace peal;

void check_sum(const comm::ProcessGroup& group, const Tensor& data) {
  const auto world = static_cast<float>(group.world());
  float* const values = data.data<float>();
  for (std::int64_t i = 0; i < data.numel(); ++i) {
    values[i] = static_cast<float>(i % 61 + group.rank());
  }
  group.all_reduce(data).wait();
  for (std::int64_t i = 0; i < data.numel(); ++i) {
    const float want = world * static_cast<float>(i % 61) + world * (world - 1) / 2;
    PEAL_CHECK(values[i] == want, "element ", i, " of ", data.numel(), ": expected ", want,
               ", got ", values[i]);
  }
}

void check_sums(const comm::ProcessGroup& group) {
  check_sum(group, Tensor::zeros({10}));
  check_sum(group, Tensor::zeros({300'001}));
  check_sum(group, group.allocate({300'001}));
}

void say_right(const comm::ProcessGroup& group) {
  if (group.rank() != 0) return;
  std::printf("sums of %d ranks are right\n", group.world());
  std::fflush(stdout);
}

void die_after(int microseconds) {
  std::signal(SIGALRM, [](int) { kill(getpid(), SIGKILL); });
  constexpr int second = 1'000'000;
  const itimerval once{
      .it_interval = {},
      .it_value = {.tv_sec = microseconds / second, .tv_usec = microseconds % second}};
  PEAL_CHECK(setitimer(ITIMER_REAL, &once, nullptr) == 0, "no timer");
}

void call_for_ever(const comm::ProcessGroup& group, int microseconds) {
  const Tensor few = Tensor::zeros({64}), many = Tensor::zeros({300'001}),
               shared = group.allocate({300'001});
  check_sums(group);
  say_right(group);
  if (group.rank() == group.world() - 1) die_after(microseconds);
  for (;;) {
    for (const Tensor& data : {few, many, shared}) group.all_reduce(data).wait();
    group.broadcast(shared, 0).wait();
    group.reduce(few, 1).wait();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  const int microseconds = argc > 2 ? std::atoi(argv[2]) : 0;
  const bool known = how == "sums" || how == "fork" || how == "differ" || how == "throw" ||
                     how == "interrupt" || (how == "die" && microseconds > 0);
  if (!known) {
    std::fputs("endings sums|fork|differ|throw|interrupt|die MICROSECONDS\n", stderr);
    return 2;
  }
  return launch::run_main([&](launch::Job& job) {
    const comm::ProcessGroup& group = job.group();
    if (how == "die") return call_for_ever(group, microseconds);
    if (how == "fork") {
      const pid_t child = fork();
      if (child == 0) return;
      int status = 0;
      PEAL_CHECK(waitpid(child, &status, 0) == child && status == 0, "the child's status ", status);
    }
    check_sums(group);
    if (how == "differ") {
      group.all_reduce(Tensor::zeros({group.rank() == group.world() - 1 ? 255 : 256})).wait();
    }
    if (how == "throw") {
      PEAL_CHECK(group.rank() != group.world() - 1, "no more samples");
      group.barrier().wait();
    }
    if (how == "interrupt") {
      const comm::Work work = group.all_reduce(Tensor::zeros({16'000'000}));
      for (int i = 0; i < 100; ++i) work.test();
      PEAL_CHECK(group.rank() != group.world() - 1, "no more samples");
      work.wait();
    }
    say_right(group);
  });
}
