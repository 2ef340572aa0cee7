// SPDX-License-Identifier: Apache-2.0
// What a run goes on from, and what lies beside it: files and folders.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/safetensors_file.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/launch/training/checkpoints.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/checkpoint_folder.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>

#include <filesystem>
#include <system_error>

namespace peal::launch {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

bool is_sharded(const fs::path& folder) {
  std::error_code none;
  return fs::exists(folder / nn::sharded_index_name, none);
}

// The folder itself, or one in it; empty where there is none.
std::string sharded_in(const std::string& folder) {
  if (is_sharded(folder)) return folder;
  std::error_code error;
  fs::directory_iterator entries(folder, error), end;
  for (; !error && entries != end; entries.increment(error)) {
    if (is_sharded(entries->path())) return entries->path().string();
  }
  return {};
}

std::string newest_in(const std::string& folder) {
  const auto found = nn::CheckpointFolder(folder).latest();
  const std::string sharded = found ? std::string() : sharded_in(folder);
  PEAL_CHECK(sharded.empty(), sharded, " is a sharded checkpoint (", nn::sharded_index_name,
             "), from which this does not go on; load it by nn::load_sharded, and nn::save what is "
             "to be gone on from");
  return found ? found->string() : std::string();
}

// On rank 0.
std::string found_by(const std::string& from, const std::string& folder) {
  std::error_code none;
  if (from == "true") {
    PEAL_CHECK(!folder.empty(),
               "true goes on in the folder of the checkpoints, and there is none; name it "
               "(output_dir)");
    PEAL_CHECK(!fs::exists(folder, none) || is_folder(folder),
               "true goes on in the folder of the checkpoints, and ", folder,
               " is none; name a folder (output_dir), or go on from the file itself");
    return newest_in(folder);
  }
  PEAL_CHECK(fs::exists(from, none), "no such checkpoint or folder; see what is there by ls");
  if (!is_folder(from)) return from;
  std::string newest = newest_in(from);
  PEAL_CHECK(!newest.empty(),
             "no checkpoint is in that folder (checkpoint-N-step-S.safetensors); name another, or "
             "let true begin anew where there is none");
  return newest;
}

}  // namespace

bool saves_in_folder(const std::string& save) { return save.ends_with('/') || is_folder(save); }

std::string beside(const std::string& checkpoint, const std::string& ending) {
  if (saves_in_folder(checkpoint)) return (fs::path(checkpoint) / ("checkpoint" + ending)).string();
  if (!nn::CheckpointFolder::is_file_of_one(checkpoint)) return checkpoint + ending;
  return (fs::path(checkpoint).parent_path() / ("checkpoint" + ending)).string();
}

std::string setting_in(const std::string& checkpoint, const std::string& name) {
  const SafetensorsFile file(checkpoint);  // whose header is enough
  const auto found = file.metadata().find(name);
  if (found == file.metadata().end()) nn::CheckpointFile{checkpoint};  // that it is none, perhaps
  PEAL_CHECK(found != file.metadata().end(), checkpoint, " has no setting '", name,
             "'; is it a checkpoint of another program, or of an older version of this one?");
  return found->second;
}

std::string find_resume(const Job& job, const std::string& from, const std::string& folder) {
  if (from.empty()) return "";
  const std::string what = concat("[launch] resume from ", from);
  std::string found, wrong;
  if (job.is_main()) {
    wrong = comm::failure_while(job.group(), "looks for a checkpoint",
                                [&] { found = found_by(from, folder); });
  }
  comm::agree_unless(job.group(), what, "", wrong, "");
  found = job.group().all_gather_object(found)[0];
  std::error_code none;
  if (!found.empty() && !fs::exists(found, none)) {
    wrong = concat("there is no ", found,
                   ", which rank 0 has and goes on from; let all ranks see "
                   "one folder, or copy the file to each");
  }
  comm::agree_unless(job.group(), what, "", wrong, "");
  if (found.empty() && job.is_main())
    log_info("nothing to go on from in ", folder, ": from the start");
  return found;
}

}  // namespace peal::launch
