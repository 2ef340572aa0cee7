// SPDX-License-Identifier: Apache-2.0
// How a process ended, in words; and whether the kernel did it, by what it counts for the control
// group, of either version, and in a container.
#include <peal/autograd/core/error.h>
#include <peal/launch/process_end.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <string>

using namespace peal;
using launch::OomKills;
using testing::Folder;

namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("how a process ended is said in words, and of SIGKILL what brings it") {
  CHECK(launch::process_end(W_EXITCODE(3, 0)) == "ended with exit code 3");
  CHECK(launch::process_end(SIGSEGV, 2) == "was ended by SIGSEGV");
  testing::check_has(launch::process_end(SIGKILL), "where nobody did that, the machine had no mem");
  CHECK(
      launch::process_end(SIGKILL, 1) ==
      "was ended by SIGKILL; its memory control group's oom_kill counter rose by 1: the group had "
      "no memory left");
}

TEST_CASE(
    "the kernel's kills in the control group of this process are counted from the beginning") {
  struct Kind {
    std::string groups, file, before, after;
  };
  const std::string old = "9:name=systemd:/\n4:cpu,memory:/job\n0::/\n";
  const auto events = [](int kills) { return concat("oom 7\noom_kill ", kills, "\n"); };
  const auto control = [](int kills) {
    return concat("oom_kill_disable 0\nunder_oom 0\noom_kill ", kills, "\n");
  };
  for (const Kind& kind : {Kind{"0::/user/job\n", "user/job/memory.events", events(4), events(6)},
                           Kind{"0::/of/the/host\n", "memory.events", events(0), events(2)},
                           Kind{old, "memory/job/memory.oom_control", control(1), control(3)},
                           Kind{old, "memory/memory.oom_control", control(0), control(2)}}) {
    CAPTURE(kind.file);
    const Folder root;
    write(root.path / "proc/self/cgroup", kind.groups);
    const auto file = root.path / "sys/fs/cgroup" / kind.file;
    write(file, kind.before);
    const OomKills kills(root.path);
    CHECK(kills.since_begin() == 0);
    write(file, kind.after);
    CHECK(kills.since_begin() == 2);
  }
}

TEST_CASE("where nobody counts there are none") {
  const Folder root;
  CHECK(OomKills(root.path).since_begin() == 0);
  write(root.path / "proc/self/cgroup", "0::/job\n4:memory:/job\nno such line\n");
  CHECK(OomKills(root.path).since_begin() == 0);
  write(root.path / "sys/fs/cgroup/memory/job/memory.oom_control", "under_oom 0\n");
  CHECK(OomKills(root.path).since_begin() == 0);
}
