// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/fork.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/group/group_body.h>
#include <peal/launch/flight_signal.h>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace peal::launch {
namespace {

constexpr std::size_t most_lines = 20;

// The handler may only write a byte: a thread waits for it at the pipe's other end. A child by
// fork() has neither that thread nor a word in its parent's, so it makes its own.
std::atomic<int> pipe_end{-1}, pipe_owner{0};

struct Signalled {
  std::mutex mutex;
  std::map<std::uint64_t, const comm::ProcessGroup*> groups;
  std::uint64_t last = 0;
  bool listens = false;
  ForkMark mark;
};

// The thread outlives main(). In a child the parent's ranks are none, and another thread of the
// parent may have held the lock: it begins with one of its own.
Signalled& signalled() {
  static std::atomic<Signalled*> all{new Signalled};
  Signalled* now = all;
  while (now->mark.inherited()) {
    auto fresh = std::make_unique<Signalled>();
    if (all.compare_exchange_strong(now, fresh.get())) return *fresh.release();
  }
  return *now;
}

void on_signal(int) {
  const int kept = errno;
  if (pipe_owner == getpid()) {
    [[maybe_unused]] const auto written = ::write(pipe_end, "!", 1);
  }
  errno = kept;
}

void show_all() {
  const std::lock_guard lock(signalled().mutex);
  for (const auto& [number, group] : signalled().groups) {
    const std::string& folder = comm::body_of(*group).options.flight;
    try {
      if (folder.empty()) {
        log_info("SIGUSR1: ", group->flight(most_lines));
      } else {
        group->write_flight(folder, "SIGUSR1");
        log_info("SIGUSR1: rank ", group->rank(), "'s last operations are in ", folder);
      }
    } catch (const std::exception& error) {
      log_error(error.what());
    }
  }
}

// REQUIRES: the lock.
void listen() {
  struct sigaction before {};
  const bool ours = sigaction(SIGUSR1, nullptr, &before) == 0 && before.sa_handler == on_signal;
  if (!ours && before.sa_handler != SIG_DFL) return;  // the program's own
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  fcntl(ends[1], F_SETFL, O_NONBLOCK);  // a handler must not wait: more bytes say no more
  try {
    std::thread([from = ends[0]] {
      for (char byte = 0; ::read(from, &byte, 1) == 1 || errno == EINTR;) show_all();
    }).detach();
  } catch (const std::exception&) {  // no thread is to be had
    close(ends[0]);
    close(ends[1]);
    return;
  }
  pipe_end = ends[1];
  pipe_owner = getpid();
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
}

}  // namespace

FlightSignal::FlightSignal(const comm::ProcessGroup& group) {
  Signalled& all = signalled();
  const std::lock_guard lock(all.mutex);
  number_ = ++all.last;
  all.groups[number_] = &group;
  if (!all.listens) listen();
  all.listens = true;
}

FlightSignal::~FlightSignal() {
  if (mark_.inherited()) return;
  const std::lock_guard lock(signalled().mutex);
  signalled().groups.erase(number_);
}

}  // namespace peal::launch
