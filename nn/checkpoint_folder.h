// SPDX-License-Identifier: Apache-2.0
// A folder of checkpoints of one run (Accelerate: checkpoints/checkpoint_N with total_limit; the
// Trainer of transformers: save_total_limit): each save is a file of its own, the newest of them
// stay, and a run that was stopped goes on from the newest that is whole.
//
//   nn::CheckpointFolder folder("run", 3);
//   nn::save(folder.next(step), parts);
//   folder.remove_old();
//   ...
//   if (const auto path = folder.latest()) nn::load(*path, parts);
//
// The files are called checkpoint-N-step-S.safetensors. N counts the saves, whichever run made
// them, so the newest is the one that was written last, also where a run went back to an older one;
// S is a number of the caller's. A file is whole by its checksum, not by its name or date. Where
// asked for, the best of them stays beside the newest: the one with the highest number of a name,
// which stand in its metadata as "measure" ("0.875 highest accuracy"). Others do not compete.
//
// Thread safety: one thread, and one that saves a folder's files; others may read them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace peal::nn {

inline constexpr const char* measure_key = "measure";

class CheckpointFolder {
 public:
  // Error for keep < 1. `best`: what the measure is called by which the best stays, too.
  explicit CheckpointFolder(std::filesystem::path folder, int keep = 3, std::string best = {});

  const std::filesystem::path& path() const { return folder_; }
  // The files, the newest first, whole or not; none where there is no folder.
  std::vector<std::filesystem::path> files() const;
  // Reads the files from the newest on, and takes the first that is whole; each that is not is
  // named in a warning. Nothing where there are no files. Error where there are, and none is whole:
  // a run that began anew would take their place; and where one cannot be read now, for it may be
  // the newest that is whole.
  std::optional<std::filesystem::path> latest() const;
  // Where the next one goes. Makes the folder; Error where it cannot be made.
  std::filesystem::path next(std::int64_t step) const;
  // Removes what is older than the `keep` newest files that are whole, and what killed saves left;
  // one that is not whole, and newer, stays, and is named in a warning, as does one that cannot be
  // read now and may be the best. REQUIRES: the newest is whole, as after a save: it is not read,
  // nor is what was read before and has not changed since.
  // `alone`: nobody else saves there, on any host, so that what killed saves left is whosever.
  // `measure`: the newest one's, if it has any.
  void remove_old(bool alone = false, std::optional<double> measure = {});
  // Of those that are whole, the best, and of equals the newest; nothing where none has a measure.
  std::optional<std::filesystem::path> best();

  // Whether a file of this path is one of a folder's, by its name.
  static bool is_file_of_one(const std::filesystem::path& path);

 private:
  // What a file was when it was found to be whole, or not.
  struct Found {
    std::uintmax_t size = 0;
    std::filesystem::file_time_type written = {};
    bool whole = false, unread = false;  // the latter: that could not be told
    std::optional<double> measure = {};
  };
  const Found& look(const std::filesystem::path& path);

  std::filesystem::path folder_;
  int keep_;
  std::string best_;
  std::map<std::filesystem::path, Found> found_;  // look()'s
};

}  // namespace peal::nn
