// SPDX-License-Identifier: Apache-2.0
// FolderLock: a lock file (fcntl), by which one process at a time saves into a folder. The system
// lets go of it when its process ends, whatever ends it, and its children by fork() do not have it:
// a dead run holds nothing. Between hosts that share the folder it holds where their file system
// has locks (NFS with lockd); where it has none, a warning says so, and it is as without.
// Thread safety: one thread; within a process there may be several of one folder, and the first
// that goes lets go for all.
#pragma once

#include <filesystem>

namespace peal::launch {

class FolderLock {
 public:
  // Of a folder that is there; the file FOLDER/.lock stays. Error that names host and process of
  // who has it.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  // False where there are no locks, as the warning has said: others may save there.
  bool held() const { return file_ >= 0; }

 private:
  int file_ = -1;
};

}  // namespace peal::launch
