// SPDX-License-Identifier: Apache-2.0
// The files of a data set, of which some are open at a time: systems allow a process about a
// thousand. Each is looked through once, which says where its samples lie, and read at those places
// from then on; so one that was changed since is an error. Thread safety: look_through() of several
// files, and get(), may be called from several threads at once, the latter after the former.
#pragma once

#include <peal/data/formats/open_file.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace peal::data {

class OpenFiles {
 public:
  explicit OpenFiles(std::vector<std::string> paths);

  // Opens file `which`, hands it to `look` and closes it. Errors: those of OpenFile and `look`.
  void look_through(std::size_t which, const std::function<void(const OpenFile&)>& look);
  // Errors: those of OpenFile, a file that was changed since it was looked through.
  std::shared_ptr<const OpenFile> get(std::size_t which);
  const std::string& path(std::size_t which) const { return paths_[which]; }

 private:
  static constexpr std::size_t most = 64;
  const std::vector<std::string> paths_;
  std::vector<OpenFile::Stamp> stamps_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const OpenFile>> open_;
  std::deque<std::size_t> in_turn_;
};

}  // namespace peal::data
