// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/log.h>
#include <peal/launch/process_end.h>
#include <peal/launch/process_of_rank.h>
#include <peal/launch/processes.h>
#include <peal/launch/secret.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace peal::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::vector<std::string> open_files() {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    paths.push_back(std::filesystem::read_symlink(entry.path(), ignored).string());
  }
  return paths;
}

}  // namespace

std::string obstacle_to_fork(const std::vector<std::string>& open_files) {
  // Of a PC, of one under WSL, and of a Tegra.
  constexpr std::string_view devices[] = {"/dev/nvidia", "/dev/dxg", "/dev/nvhost", "/dev/nvmap",
                                          "/dev/nvgpu"};
  const bool cuda = std::ranges::any_of(open_files, [&](const std::string& path) {
    return std::ranges::any_of(devices, [&](auto device) { return path.starts_with(device); });
  });
  return cuda ? "CUDA is in use in this process, and a child by fork cannot use it; start the "
                "ranks before anything touches a device, or as threads"
              : "";
}

struct ProcessContext::Ranks {
  struct Child {
    pid_t pid;
    bool over = false;
    bool ended_by_us = false;
    int status = 0;
  };
  Ranks(int ranks, milliseconds grace_each) : page(ranks), grace(grace_each) {}
  ~Ranks() { end_all(); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  bool well(const Child& child) const {
    return child.over && page.slot(static_cast<int>(&child - children.data())).returned;
  }
  // Whose process has ended meanwhile.
  void look() {
    for (Child& child : children) {
      if (child.over) continue;
      const pid_t got = waitpid(child.pid, &child.status, WNOHANG);
      child.over = got == child.pid || (got < 0 && errno == ECHILD);
    }
  }
  bool over() const {
    return std::ranges::all_of(children, [](const Child& child) { return child.over; });
  }
  // False where that takes too long.
  bool wait(milliseconds most, bool for_all) {
    const auto begin = Clock::now();
    for (auto nap = milliseconds(1);; nap = std::min(2 * nap, milliseconds(16))) {
      look();
      if (over()) return true;
      const auto failed = [&](const Child& child) { return child.over && !well(child); };
      if (!for_all && std::ranges::any_of(children, failed)) return true;
      if (Clock::now() - begin >= most) return false;
      std::this_thread::sleep_for(nap);
    }
  }
  void end_all() {
    look();  // who has ended is not ended by us
    for (const int signal : {SIGTERM, SIGKILL}) {
      for (Child& child : children) {
        if (child.over) continue;
        child.ended_by_us = true;
        kill(child.pid, signal);
      }
      if (wait(signal == SIGKILL ? std::chrono::hours(1) : grace, true)) return;
    }
  }
  [[noreturn]] void throw_first() const;
  [[noreturn]] void throw_exited(int rank) const;
  [[noreturn]] void throw_raised(int rank) const {
    throw ProcessRaisedException(page.slot(rank).error, rank,
                                 children[static_cast<std::size_t>(rank)].pid);
  }

  SharedPage page;
  milliseconds grace;
  std::vector<Child> children;
};

void ProcessContext::Ranks::throw_exited(int rank) const {
  const Child& child = children[static_cast<std::size_t>(rank)];
  const bool by_signal = WIFSIGNALED(child.status);
  const std::string message =
      concat("[launch] rank ", rank, " (process ", child.pid, ") ", process_end(child.status),
             by_signal ? "" : " before its function returned");
  throw ProcessExitedException(message, rank, child.pid,
                               by_signal ? -WTERMSIG(child.status) : WEXITSTATUS(child.status),
                               by_signal ? signal_name(WTERMSIG(child.status)) : "");
}

// Who failed by itself; else a process that is gone without a word; else who failed before there
// was a group; else what all have said.
void ProcessContext::Ranks::throw_first() const {
  if (const int first = page->first; first > 0) throw_raised(first - 1);
  std::optional<int> said;
  for (int rank = 0; rank < static_cast<int>(children.size()); ++rank) {
    const Child& child = children[static_cast<std::size_t>(rank)];
    if (well(child) || child.ended_by_us) continue;
    if (!page.slot(rank).has_error) throw_exited(rank);
    if (!said) said = rank;
  }
  if (const int early = page->early; early > 0) throw_raised(early - 1);
  throw_raised(said.value_or(0));
}

ProcessContext::ProcessContext(std::unique_ptr<Ranks> ranks) : ranks_(std::move(ranks)) {}
ProcessContext::ProcessContext(ProcessContext&&) noexcept = default;
ProcessContext::~ProcessContext() = default;

std::vector<int> ProcessContext::pids() const {
  std::vector<int> all;
  for (const auto& child : ranks_->children) all.push_back(child.pid);
  return all;
}

bool ProcessContext::join(milliseconds timeout) {
  if (!ranks_->wait(timeout, false)) return false;
  const auto& children = ranks_->children;
  if (std::ranges::all_of(children, [&](const auto& child) { return ranks_->well(child); })) {
    return true;
  }
  if (!ranks_->wait(ranks_->grace, true)) {
    log_warning("a rank has failed, and others have not ended within ",
                std::chrono::duration<double>(ranks_->grace).count(), " s: they are ended");
    ranks_->end_all();
  }
  ranks_->throw_first();
}

ProcessContext start_processes(int ranks, const std::function<void(Job&)>& f, milliseconds grace) {
  PEAL_CHECK(f != nullptr, "[launch] start_processes: expected a function, got none");
  PEAL_CHECK(ranks > 0, "[launch] start_processes: a world of ", ranks);
  const std::string obstacle = obstacle_to_fork(open_files());
  PEAL_CHECK(obstacle.empty(), "[launch] start_processes: ", obstacle);
  auto started = std::make_unique<ProcessContext::Ranks>(ranks, grace);
  started->children.reserve(static_cast<std::size_t>(ranks));
  const std::string secret = fresh_secret();
  const pid_t parent = getpid();
  std::cout.flush();
  std::fflush(nullptr);  // or each would write what lies there
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) be_rank({rank, ranks, f, started->page, secret}, parent);
    PEAL_CHECK(child > 0, "[launch] start_processes: no process for rank ", rank, ": ",
               std::strerror(errno));
    started->children.push_back({child});
  }
  return ProcessContext(std::move(started));
}

}  // namespace peal::launch
