// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/run/child.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace peal::launch {

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}

void OpenFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

int OpenFile::release() { return std::exchange(fd_, -1); }

Pipe::Pipe() {
  int ends[2];
  PEAL_CHECK(pipe2(ends, O_CLOEXEC) == 0, "no pipe: ", std::strerror(errno),
             "; a process may open more files after `ulimit -n`");
  read = OpenFile(ends[0]);
  write = OpenFile(ends[1]);
}

namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

void bind_to(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  const auto room = static_cast<std::size_t>(cpus.back()) + 1;  // they ascend
  cpu_set_t* const set = CPU_ALLOC(room);
  const std::size_t bytes = CPU_ALLOC_SIZE(room);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(cpu, bytes, set);
  sched_setaffinity(0, bytes, set);  // where it is refused the program is slower, and no worse
  CPU_FREE(set);
}

void redirect(int from, int to) {
  if (from >= 0) dup2(from, to);
}

}  // namespace

void stand_by() {
  setpgid(0, 0);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
}

pid_t start(const Command& command, const sigset_t& signals) {
  const std::vector<char*> words = pointers(command.words),
                           environment = pointers(command.environment);
  Pipe problem;  // what exec says; it closes where all is well
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    bind_to(command.cpus);
    redirect(command.in, STDIN_FILENO);
    redirect(command.out, STDOUT_FILENO);
    redirect(command.err, STDERR_FILENO);
    std::signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &signals, nullptr);
    execvpe(words[0], words.data(), environment.data());
    const int error = errno;
    [[maybe_unused]] const auto told = write(problem.write.fd(), &error, sizeof error);
    _exit(127);
  }
  int error = child < 0 ? errno : 0;
  if (child > 0) {
    setpgid(child, child);  // whoever of both comes first
    problem.write.close();
    while (read(problem.read.fd(), &error, sizeof error) < 0 && errno == EINTR) continue;
  }
  if (error == 0) return child;
  if (child > 0) waitpid(child, nullptr, 0);
  throw CannotStart(concat("cannot start '", command.words[0], "': ", std::strerror(error)),
                    error == ENOENT ? 127 : 126);
}

}  // namespace peal::launch
