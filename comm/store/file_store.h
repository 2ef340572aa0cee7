// SPDX-License-Identifier: Apache-2.0
// FileStore: a store in a folder that all ranks see (a shared file system, or /tmp on one node).
//
// Files of an earlier run, or of a rank that was killed, may lie there, and are not believed. Each
// rank draws a session, a random number. Rank 0 shows its own; the others answer with theirs beside
// it, so rank 0 knows that they are alive now; and it leaves a list of all, in which each finds its
// own, and so knows that rank 0 is. So the first call waits until all ranks have made one. Each
// rank writes one file for it, and rank 0 reads one of each. Values are in files named by rank 0's
// session and by their key, and appear whole or not at all; numbers are added under a lock of their
// file, which whoever reads a value takes as well. What a run that failed has left does no harm.
//
// Two jobs at once need a folder each: a rank that finds its own file taken over says so. A child
// by fork() leaves its parent's files where they are.
// Thread safety: as Store.
#pragma once

#include <peal/autograd/core/fork.h>
#include <peal/comm/store/store.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace peal::comm {

class FileStore : public Store {
 public:
  // The folder is made if it is missing. Error where it cannot be, or nothing can be written.
  FileStore(std::filesystem::path folder, int rank, int world, Patience patience = {});
  ~FileStore() override;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  void set(const std::string& key, const std::string& value) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  void remove(const std::vector<std::string>& keys) override;

 private:
  std::filesystem::path presence(int rank) const;
  std::filesystem::path list() const;
  std::filesystem::path file_of(const std::string& key) const;
  bool begin(const std::filesystem::path& path, std::int64_t amount) const;
  void show(const std::string& root) const;
  void meet();
  void gather();
  void find_root();
  void check_place() const;
  // Until over() is true; `what` says what is missing.
  void wait_until(const std::function<bool()>& over,
                  const std::function<std::string()>& what) const;

  std::filesystem::path folder_;
  int rank_, world_;
  Patience patience_;
  std::string session_, root_;  // this rank's, and rank 0's once it is known
  ForkMark mark_;
};

}  // namespace peal::comm
