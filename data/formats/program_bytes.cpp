// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/byte_source.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

namespace peal::data {
namespace {

// A program at work, in a process group of its own: what it started ends with it.
class ProgramBytes : public ByteSource {
 public:
  ProgramBytes(const std::vector<std::string>& words, std::string name) : name_(std::move(name)) {
    int both[2] = {-1, -1};
    said_ = ::memfd_create("peal program", MFD_CLOEXEC);
    if (said_ < 0 || ::pipe2(both, O_CLOEXEC) != 0) {
      const int problem = errno;
      if (said_ >= 0) ::close(said_);
      fail(concat("[data] ", name_, ": no pipe can be made: ", std::strerror(problem)));
    }
    output_ = both[0];
    const int problem = start(words, both[1]);
    ::close(both[1]);
    if (problem == 0) return;
    ::close(output_);
    ::close(said_);
    fail(concat("[data] ", name_, ": the program '", words[0], "' cannot be started: ",
                std::strerror(problem), problem == ENOENT ? "; install it, or mend PATH" : ""));
  }
  ~ProgramBytes() override {
    ::close(output_);  // whoever still writes gets SIGPIPE
    if (program_ > 0) end();
    ::close(said_);
  }
  ProgramBytes(const ProgramBytes&) = delete;
  ProgramBytes& operator=(const ProgramBytes&) = delete;

  std::size_t read(std::span<std::uint8_t> to) override {
    std::size_t got = 0;
    while (got < to.size() && program_ > 0) {
      const ssize_t now = ::read(output_, to.data() + got, to.size() - got);
      if (now < 0 && errno == EINTR) continue;
      PEAL_CHECK(now >= 0, "[data] ", name_, ": cannot read: ", std::strerror(errno));
      if (now == 0) check_end();
      got += static_cast<std::size_t>(now);
    }
    return got;
  }

 private:
  int start(const std::vector<std::string>& words, int output) {
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, 1);
    posix_spawn_file_actions_adddup2(&files, said_, 2);
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    sigset_t none, pipe;
    sigemptyset(&none);
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &pipe);
    posix_spawnattr_setflags(
        &how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int problem = ::posix_spawnp(&program_, argv[0], &files, &how, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    if (problem != 0) program_ = 0;
    return problem;
  }

  // What passes over SIGTERM for about three seconds is killed.
  void end() {
    ::kill(-program_, SIGTERM);
    for (useconds_t pause = 100; pause < 2'000'000; pause *= 2) {
      if (::waitpid(program_, nullptr, WNOHANG) != 0) return;
      ::usleep(pause);
    }
    ::kill(-program_, SIGKILL);
    wait();
  }

  // Nothing where the system keeps none: a supervisor may have SIGCHLD ignored.
  std::optional<int> wait() {
    int status = 0;
    pid_t found = 0;
    while ((found = ::waitpid(program_, &status, 0)) < 0 && errno == EINTR) {
    }
    program_ = 0;
    return found < 0 ? std::nullopt : std::optional(status);
  }

  void check_end() {
    const std::optional<int> ended = wait();
    PEAL_CHECK(ended, "[data] ", name_,
               ": whether the program that reads it has read all is not known: its status is "
               "unknown, as SIGCHLD is ignored in this process; do not ignore it");
    const int status = *ended;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    std::array<char, 500> words{};
    const ssize_t count = ::pread(said_, words.data(), words.size(), 0);
    std::string said(words.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    while (!said.empty() && said.back() == '\n') said.pop_back();
    fail(concat("[data] ", name_, ": the program that reads it ",
                WIFSIGNALED(status) ? concat("was ended by signal ", WTERMSIG(status))
                                    : concat("ended with status ", WEXITSTATUS(status)),
                said.empty() ? "" : ": ", said));
  }

  std::string name_;
  pid_t program_ = 0;  // 0 once it has ended
  int output_ = -1, said_ = -1;
};

}  // namespace

std::unique_ptr<ByteSource> program_bytes(const std::vector<std::string>& words,
                                          const std::string& name) {
  PEAL_CHECK(!words.empty(), "[data] ", name, ": expected a program, got none");
  return std::make_unique<ProgramBytes>(words, name);
}

}  // namespace peal::data
