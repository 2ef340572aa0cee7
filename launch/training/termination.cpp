// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/training/termination.h>

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <exception>
#include <mutex>

namespace peal::launch {
namespace {

std::atomic<std::int64_t> first_wish{0};  // ns of the clock; 0: there was none
std::atomic<pid_t> owner{0};              // a child by fork() is no rank

struct {
  std::mutex mutex;
  int users = 0;
  bool is_ours = false;
} installed;

void end_as_always(int signal) {
  std::signal(signal, SIG_DFL);
  kill(getpid(), signal);
}

void on_signal(int signal) {
  const int kept = errno;
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t now = time.tv_sec * second + time.tv_nsec;
  std::int64_t before = 0;
  const bool is_first = first_wish.compare_exchange_strong(before, now);
  if (owner != getpid() || (!is_first && now - before >= second)) end_as_always(signal);
  errno = kept;
}

}  // namespace

Termination::Termination(const comm::ProcessGroup& group)
    : group_(group), wish_(Tensor::scalar(std::int32_t{0}, Device{})) {
  const std::lock_guard lock(installed.mutex);
  if (installed.users++ > 0) return;
  first_wish = 0;
  struct sigaction before {};
  sigaction(SIGTERM, nullptr, &before);
  installed.is_ours = before.sa_handler == SIG_DFL;
  if (!installed.is_ours) return;
  owner = getpid();
  struct sigaction ours {};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &ours, nullptr);
}

Termination::~Termination() {
  const std::lock_guard lock(installed.mutex);
  if (--installed.users > 0 || !installed.is_ours) return;
  std::signal(SIGTERM, SIG_DFL);
  if (first_wish != 0 && !agreed_ && std::uncaught_exceptions() == 0) end_as_always(SIGTERM);
}

bool Termination::asked() {
  if (agreed_) return true;
  work_.wait();
  agreed_ = wish_.item<std::int32_t>() != 0;
  if (agreed_) return true;
  wish_ = Tensor::scalar(std::int32_t{first_wish != 0}, Device{});
  work_ = group_.all_reduce(wish_, comm::ReduceOp::max);
  return false;
}

}  // namespace peal::launch
