// SPDX-License-Identifier: Apache-2.0
// AtomicFile: writes a file so that its path holds either the old content or the new, whole,
// whatever happens in between (a full disk, a kill, a power cut). It writes a temporary file in the
// same folder, and commit() flushes that to the disk, renames it over the path and flushes the
// folder. Without commit() the destructor removes the temporary file. Errors name the path and the
// system's reason. The new file has the permissions of the old one, and its owner and group where
// the system lets it; where it lets not even the group be, group members get no access. A process
// that was killed leaves its temporary file, PATH.HOST.PID.N.tmp; the next AtomicFile of that path
// on that host removes it, told from one at work by its lock (flock). Thread safety: one thread;
// several AtomicFiles of one path do not disturb each other, and the last to commit stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace peal {

class AtomicFile {
 public:
  // A path through a symbolic link replaces what the link points to. Error where something that is
  // not a regular file stands there.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  // REQUIRES: called once, last.
  void commit();

 private:
  [[noreturn]] void fail_at(const char* action) const;
  bool create(int number);
  void remove_stale() const;

  std::filesystem::path path_, temporary_;
  int file_ = -1;
  std::uint64_t written_ = 0;
};

}  // namespace peal
