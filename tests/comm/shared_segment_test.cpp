// SPDX-License-Identifier: Apache-2.0
// Segments in /dev/shm as it may be found: with files of others under the names that are drawn, and
// with no right to make any.
#include <peal/comm/memory/shared_segment.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include "store_ranks.h"

using namespace peal;
using namespace peal::testing;
using peal::comm::SharedSegment;
namespace fs = std::filesystem;

namespace {

int names_taken = 0;              // of the next names, how many are somebody's
int refusal = 0;                  // what making one ends with, or 0
bool nameless = true;             // files can be made without a name
std::vector<std::string> theirs;  // files in /dev/shm
std::string ours;
int named_at_all = 0;  // how many of our names others have opened
bool no_proc = false;  // files of other processes cannot be opened

using ShmOpen = int(const char*, int, mode_t);
ShmOpen* system_shm_open() {
  static auto* const found = reinterpret_cast<ShmOpen*>(dlsym(RTLD_NEXT, "shm_open"));
  return found;
}

// Where this process may, it is of another user, who lets nobody in.
void take(const char* name) {
  const int file = system_shm_open()(name, O_CREAT | O_EXCL | O_RDWR, 0600);
  REQUIRE(file >= 0);
  REQUIRE(write(file, "theirs", 6) == 6);
  if (geteuid() == 0) REQUIRE(fchown(file, 65534, 65534) == 0);
  close(file);
  theirs.push_back(std::string("/dev/shm") + name);
}

std::vector<std::string> errors_of_two(const Folder& folder) {
  return on_ranks(2, [&](int rank) {
    const auto ranks = files_in(folder.path / "store")(rank, 2);
    const auto segment = SharedSegment::between_processes(*ranks, 10'000, "the test");
    CHECK(segment->data()[9'999] == std::byte{0});
    ranks->exchange("looked");
    segment->data()[rank] = static_cast<std::byte>(rank + 1);
    ranks->exchange("written");
    CHECK(segment->data()[0] == std::byte{1});
    CHECK(segment->data()[1] == std::byte{2});
  });
}

}  // namespace

extern "C" int shm_open(const char* name, int flags, mode_t mode) {
  if ((flags & O_CREAT) != 0) {
    if (refusal != 0) {
      errno = refusal;
      return -1;
    }
    if (names_taken > 0) {
      --names_taken;
      take(name);
    } else {
      ours = std::string("/dev/shm") + name;
    }
  }
  if ((flags & O_CREAT) == 0) ++named_at_all;
  return system_shm_open()(name, flags, mode);
}

extern "C" int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  const auto mode = makes ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (no_proc && std::string_view(path).starts_with("/proc/")) {
    errno = EACCES;
    return -1;
  }
  if (std::string_view(path) == "/dev/shm" && makes && (refusal != 0 || !nameless)) {
    errno = refusal != 0 ? refusal : EOPNOTSUPP;
    return -1;
  }
  using Open = int(const char*, int, ...);
  static auto* const system = reinterpret_cast<Open*>(dlsym(RTLD_NEXT, "open"));
  return system(path, flags, mode);
}

TEST_CASE("a segment has a name only where the others need one, or the file system") {
  for (const bool needed : {false, true}) {
    for (const bool can : {true, false}) {
      const Folder folder;
      no_proc = needed;
      nameless = can;
      named_at_all = 0;
      ours.clear();
      CHECK(errors_of_two(folder) == std::vector<std::string>(2, "nothing"));
      no_proc = false;
      nameless = true;
      CHECK(named_at_all == (needed ? 1 : 0));
      CHECK(ours.empty() == (can && !needed));  // a rank that is killed leaves none
      if (!ours.empty()) CHECK_FALSE(fs::exists(ours));
    }
  }
}

TEST_CASE("files of others keep their names and what is in them") {
  const Folder folder;
  names_taken = 3;
  nameless = false;
  CHECK(errors_of_two(folder) == std::vector<std::string>(2, "nothing"));
  nameless = true;
  CHECK(names_taken == 0);
  REQUIRE(theirs.size() == 3);
  for (const std::string& path : theirs) {
    CHECK(path != ours);
    CHECK(content_of(path) == "theirs");
    struct stat status {};
    REQUIRE(stat(path.c_str(), &status) == 0);
    CHECK(status.st_uid == (geteuid() == 0 ? 65534 : geteuid()));
    fs::remove(path);
  }
  CHECK_FALSE(fs::exists(ours));
}

TEST_CASE("where nobody may write, all ranks are told what to do, and it is not to make room") {
  for (const int why : {EACCES, EROFS}) {
    const Folder folder;
    refusal = why;
    const auto errors = errors_of_two(folder);
    refusal = 0;
    for (const std::string& error : errors) {
      check_has(error, concat("the test: no shared memory of 10000 bytes among the ranks of this "
                              "node (",
                              std::strerror(why), "); let this user write to /dev/shm (mount"));
    }
  }
  const Folder folder;
  refusal = ENOSPC;
  const auto errors = errors_of_two(folder);
  refusal = 0;
  for (const std::string& error : errors) check_has(error, "); give /dev/shm more room (mount");
}
