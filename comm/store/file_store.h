// SPDX-License-Identifier: Apache-2.0
// FileStore: a Store in a folder that all ranks see (a shared file system, or /tmp on one node).
//
// Files of an earlier run, or of a rank that was killed, may lie there, and are not believed. Each
// rank draws a session, a random number, and shows it in a file of its own, with the sessions that
// it sees of the others. A rank whose file names this rank's session has read it, so it is alive
// now: files of old runs cannot know it. Texts are in files named by their rank's session. Every
// file appears whole or not at all, and the last rank to have read an exchange removes its files;
// those of a run that failed stay, and do no harm.
//
// Two jobs at once need a folder each: a rank that finds its own file taken over says so.
// Thread safety: as Store.
#pragma once

#include <peal/comm/store/store.h>

#include <cstdint>
#include <filesystem>

namespace peal::comm {

class FileStore : public Store {
 public:
  // The folder is made if it is missing. Error where it cannot be, or nothing can be written.
  FileStore(std::filesystem::path folder, int rank, int world, Patience patience = {});

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  std::vector<std::string> exchange(const std::string& mine) override;

 private:
  std::filesystem::path presence(int rank) const;
  std::filesystem::path text_of(int rank) const;  // in the exchange under way
  void show() const;
  bool see(int rank);
  void meet();
  void clean_up() const;
  // Until `there` is true of every other rank; `what` is what a missing one has not done.
  void wait_for_all(const char* what, const std::function<bool(int rank)>& there) const;

  std::filesystem::path folder_;
  int rank_, world_;
  Patience patience_;
  std::vector<std::string> sessions_;  // of all ranks, as last seen
  std::uint64_t number_ = 0;           // of the exchange
  bool met_ = false;
};

}  // namespace peal::comm
