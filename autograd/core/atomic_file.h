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
#include <functional>
#include <string_view>

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
  // Of what was written, from byte `at` on.
  void overwrite(std::uint64_t at, const void* data, std::size_t bytes);
  // REQUIRES: called once, last. What is not flushed is as whole whatever becomes of processes, but
  // not after a power cut, and is there at once, however slow the disk.
  enum class Flush { no, yes };
  void commit(Flush flush = Flush::yes);

 private:
  [[noreturn]] void fail_at(const char* action) const;
  bool create(int number);

  std::filesystem::path path_, temporary_;
  int file_ = -1;
  std::uint64_t written_ = 0;
};

// What processes of this host that were killed left in this folder, of files whose names is_target
// takes: for files that are written once, under names that no later AtomicFile has. `of_all_hosts`:
// other hosts', too, which may go by other names by now. REQUIRES for that: none of theirs is at
// work there, which a lock of this kind may not tell.
void remove_stale_temporaries(const std::filesystem::path& folder,
                              const std::function<bool(std::string_view target)>& is_target,
                              bool of_all_hosts = false);

// Flushes the entries of a folder to the disk, as far as its file system can.
void flush_folder(const std::filesystem::path& folder);

}  // namespace peal
