// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/run/warden.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

namespace peal::launch {
namespace {

// A leader never changes its session: one of another session has got the number since.
void end(pid_t group) {
  const pid_t session = getsid(group);
  if (session < 0 || session == getsid(0)) kill(-group, SIGKILL);
}

[[noreturn]] void end_after_all(int groups) {
  stand_by();
  std::vector<pid_t> known;
  for (pid_t group; read(groups, &group, sizeof group) == sizeof group;) {
    if (group > 0) known.push_back(group);
    if (group < 0) std::erase(known, -group);
  }
  for (const pid_t group : known) end(group);
  _exit(0);
}

}  // namespace

Warden::Warden() {
  Pipe groups;
  process_ = fork();
  if (process_ == 0) {
    groups.write.close();
    end_after_all(groups.read.fd());
  }
  PEAL_CHECK(process_ > 0, "no process: ", std::strerror(errno));
  groups_ = std::move(groups.write);
}

Warden::~Warden() {
  if (waitpid(process_, nullptr, WNOHANG) != 0) return;  // somebody has ended it
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

void Warden::guard(pid_t group) { tell(group); }

void Warden::forget_if_empty(pid_t group) {
  if (kill(-group, 0) != 0 && errno == ESRCH) tell(-group);
}

// Below 0: it is none of them any more.
void Warden::tell(pid_t group) {
  [[maybe_unused]] const auto told = write(groups_.fd(), &group, sizeof group);
}

}  // namespace peal::launch
