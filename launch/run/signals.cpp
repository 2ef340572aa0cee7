// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/run/signals.h>

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace peal::launch {

Signals::Signals() {
  sigset_t ours;
  sigemptyset(&ours);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction action;
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&ours, signal);
  }
  sigprocmask(SIG_BLOCK, &ours, &before_);
  file_ = OpenFile(signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
  PEAL_CHECK(file_.fd() >= 0, "no signalfd: ", std::strerror(errno));
}

Signals::~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> Signals::next() {
  signalfd_siginfo info;
  if (read(fd(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace peal::launch
