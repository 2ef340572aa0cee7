// SPDX-License-Identifier: Apache-2.0
// AtomicFile: the old file's permissions stay, what killed processes left goes, writers of one path
// do not disturb each other, and a full disk costs nothing but the new file.
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <string_view>
#include <vector>

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using peal::AtomicFile;
using namespace peal::testing;

namespace {

void write(AtomicFile& file, std::string_view text) { file.write(text.data(), text.size()); }

void save(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  write(file, text);
  file.commit();
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat status;
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

// A save of another process that is killed in the middle.
void save_and_die(const std::filesystem::path& path) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    AtomicFile file(path);
    write(file, "half of it");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
}

void write_line(const char* path, const std::string& line) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  [[maybe_unused]] const auto written = ::write(file, line.data(), line.size());
  ::close(file);
}

// Mounts a disk of so many bytes there, seen by this process alone and gone with it. False where
// the system does not allow it.
bool mount_small_disk(const std::filesystem::path& folder, int bytes) {
  const uid_t user = ::getuid();
  const gid_t group = ::getgid();
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    write_line("/proc/self/setgroups", "deny");
    write_line("/proc/self/uid_map", peal::concat("0 ", user, " 1"));
    write_line("/proc/self/gid_map", peal::concat("0 ", group, " 1"));
  }
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", folder.c_str(), "tmpfs", 0, peal::concat("size=", bytes).c_str()) == 0;
}

}  // namespace

TEST_CASE("a new file has the permissions that the umask leaves, a replaced one keeps its own") {
  const Folder folder;
  const auto path = folder.path / "f";
  const mode_t before = ::umask(027);
  save(path, "first");
  CHECK(mode_of(path) == 0640);
  for (const mode_t mode : {0600, 0664, 0444}) {
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    save(path, "second");
    CHECK(mode_of(path) == mode);
  }
  ::umask(before);
  CHECK(content_of(path) == "second");
}

TEST_CASE("where the old group cannot be given, its permissions are not the writer's group's") {
  if (::getuid() != 0) {
    MESSAGE("SKIPPED: only root can become a user of other groups");
    return;
  }
  constexpr uid_t user = 54321;
  constexpr gid_t own = 54322, joined = 54323, foreign = 54324;
  const Folder folder;
  const auto path = folder.path / "f";
  REQUIRE(::chmod(folder.path.c_str(), 0777) == 0);
  for (const gid_t group : {joined, foreign}) {
    save(path, "old");
    if (::chown(path.c_str(), 0, group) != 0) {
      MESSAGE("SKIPPED: this system lets root not give a file to any group");
      return;
    }
    REQUIRE(::chmod(path.c_str(), 0664) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      if (::setgroups(1, &joined) != 0 || ::setresgid(own, own, own) != 0 ||
          ::setresuid(user, user, user) != 0 || ::access(folder.path.c_str(), W_OK | X_OK) != 0) {
        ::_exit(77);
      }
      ::_exit(error_of([&] { save(path, "new"); }) == "nothing" ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
      MESSAGE("SKIPPED: this system lets root not become another user who may write there");
      return;
    }
    REQUIRE(WEXITSTATUS(status) == 0);
    struct stat now;
    REQUIRE(::stat(path.c_str(), &now) == 0);
    CHECK(content_of(path) == "new");
    CHECK(now.st_uid == user);
    CHECK(now.st_gid == (group == joined ? joined : own));
    CHECK(mode_of(path) == (group == joined ? 0664 : 0604));
  }
}

TEST_CASE("what killed saves left is removed by the next save, and nothing else") {
  const Folder folder;
  const auto path = folder.path / "f";
  save(path, "old");
  save_and_die(path);
  CHECK(folder.entries() == 2);
  save_and_die(path);  // removes the first one's
  save_and_die(folder.path / "other");
  CHECK(folder.entries() == 3);
  CHECK(content_of(path) == "old");
  char host[256] = {};
  REQUIRE(::gethostname(host, sizeof(host) - 1) == 0);
  const std::string own = peal::concat("f.", host, ".");
  const std::vector<std::string> kept{own + "1.2.tmp.txt", own + "1.tmp", own + "a.0.tmp",
                                      own + ".0.tmp", "g" + own.substr(1) + "1.2.tmp", "f1.2.tmp",
                                      // Another host's may be at work under a lock unseen here.
                                      peal::concat("f.another-", host, ".1.2.tmp")};
  for (const std::string& name : kept) std::ofstream(folder.path / name) << name;
  std::ofstream(folder.path / (own + "1.2.tmp")) << "stale";
  save(path, "new");
  CHECK(content_of(path) == "new");
  for (const std::string& name : kept) CHECK(content_of(folder.path / name) == name);
  CHECK(folder.entries() == 2 + kept.size());  // "f" and what is left of "other"
}

TEST_CASE("several writers of one path: none disturbs another, and the last to commit stays") {
  const Folder folder;
  const auto path = folder.path / "f";
  AtomicFile first(path);
  write(first, "first");
  {
    AtomicFile dropped(path);
    write(dropped, "dropped");
  }
  AtomicFile second(path);
  write(second, "second");
  CHECK(folder.entries() == 2);
  second.commit();
  CHECK(content_of(path) == "second");
  first.commit();
  CHECK(content_of(path) == "first");
  CHECK(folder.entries() == 1);
}

// Last, because this process sees another file system afterwards.
TEST_CASE("a full disk: an error that says so, the old file whole, nothing left behind") {
  const Folder folder;
  const auto disk = folder.path / "disk";
  std::filesystem::create_directory(disk);
  constexpr int size = 1 << 16;
  if (!mount_small_disk(disk, size)) {
    MESSAGE("SKIPPED: this system lets no test mount a small disk; the limit on the size of files ",
            "in safetensors_test.cpp stands for it alone");
    return;
  }
  const auto path = disk / "f";
  const std::string old(size / 2, 'o');
  save(path, old);
  for (int round = 0; round < 2; ++round) {
    const std::string message = error_of([&] { save(path, std::string(size, 'n')); });
    check_has(message, "save " + path.string() + ": writing failed after ");
    check_has(message, "No space left on device; make room there or save elsewhere; what was at");
    CHECK(content_of(path) == old);
    CHECK(std::distance(std::filesystem::directory_iterator(disk), {}) == 1);
  }
  save(path, "small");
  CHECK(content_of(path) == "small");
  CHECK(::umount2(disk.c_str(), MNT_DETACH) == 0);
}
