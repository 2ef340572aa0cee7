// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/run/orphans.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

namespace peal::launch {
namespace {

// PID (NAME) STATE PARENT ..., and a name may hold anything.
bool is_child(const std::filesystem::path& process, pid_t of) {
  std::ifstream file(process / "stat");
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_ends = text.rfind(')');
  return name_ends != text.npos && name_ends + 4 < text.size() &&
         std::atoi(text.c_str() + name_ends + 4) == of;
}

std::vector<pid_t> children() {
  std::vector<pid_t> all;
  std::error_code error;
  std::filesystem::directory_iterator entries("/proc", error), end;
  for (; !error && entries != end; entries.increment(error)) {
    const pid_t process = std::atoi(entries->path().filename().c_str());
    if (process > 0 && is_child(entries->path(), getpid())) all.push_back(process);
  }
  return all;
}

}  // namespace

Orphans::Orphans() : before_(children()) { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> Orphans::there() const {
  while (waitpid(-1, nullptr, WNOHANG) > 0) continue;
  std::vector<pid_t> all = children();
  std::erase_if(all, [&](pid_t process) { return std::ranges::count(before_, process) > 0; });
  return all;
}

// Who goes leaves its own children here, so it is asked again until none is there.
int Orphans::end(std::chrono::nanoseconds grace, const std::function<bool()>& hurry) const {
  using Clock = std::chrono::steady_clock;
  std::vector<pid_t> left = there(), told;
  const auto soon = Clock::now() + std::chrono::milliseconds(250);
  while (!left.empty() && Clock::now() < soon && !hurry()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    left = there();
  }
  auto kills = Clock::now() + grace;
  while (!left.empty() && Clock::now() - kills < grace + std::chrono::seconds(1)) {
    if (hurry()) kills = std::min(kills, Clock::now());
    const bool patient = Clock::now() < kills;
    for (const pid_t process : left) {
      if (patient && std::ranges::count(told, process) > 0) continue;
      if (std::ranges::count(told, process) == 0) told.push_back(process);
      kill(process, patient ? SIGTERM : SIGKILL);
      if (patient) kill(process, SIGCONT);  // a stopped one hears nothing else
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    left = there();
  }
  return static_cast<int>(told.size());
}

}  // namespace peal::launch
