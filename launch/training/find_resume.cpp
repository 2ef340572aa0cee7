// SPDX-License-Identifier: Apache-2.0
// What --save and --resume name: files and folders.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/training/checkpoints.h>
#include <peal/launch/training/run_arguments.h>
#include <peal/nn/checkpoint_folder.h>

#include <filesystem>
#include <system_error>

namespace peal::launch {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

std::string newest_in(const std::string& folder) {
  const auto found = nn::CheckpointFolder(folder).latest();
  return found ? found->string() : std::string();
}

// On rank 0, of what the arguments say.
std::string found_by(const std::string& resume, const std::string& save) {
  std::error_code none;
  if (resume == "auto") {
    PEAL_CHECK(!save.empty(), "goes on in the folder of --save, and there is none; name it");
    PEAL_CHECK(!fs::exists(save, none) || is_folder(save), "goes on in the folder of --save, and ",
               save, " is none; name a folder, or go on from the file by --resume ", save);
    return newest_in(save);
  }
  PEAL_CHECK(fs::exists(resume, none), "no such checkpoint or folder; see what is there by ls");
  if (!is_folder(resume)) return resume;
  std::string newest = newest_in(resume);
  PEAL_CHECK(!newest.empty(),
             "no checkpoint is in that folder (checkpoint-N-step-S.safetensors); "
             "name another, or begin anew by --resume auto");
  return newest;
}

}  // namespace

bool saves_in_folder(const std::string& save) { return save.ends_with('/') || is_folder(save); }

std::string beside(const std::string& checkpoint, const std::string& ending) {
  if (saves_in_folder(checkpoint)) return (fs::path(checkpoint) / ("checkpoint" + ending)).string();
  if (!nn::CheckpointFolder::is_file_of_one(checkpoint)) return checkpoint + ending;
  return (fs::path(checkpoint).parent_path() / ("checkpoint" + ending)).string();
}

void find_resume(const Job& job, RunArguments& arguments) {
  if (arguments.resume.empty()) return;
  const bool automatic = arguments.resume == "auto";
  const std::string what = concat("[launch] --resume ", arguments.resume);
  std::string found, wrong;
  if (job.is_main()) {
    const auto busy = job.group().busy("looks for a checkpoint");
    try {
      found = found_by(arguments.resume, arguments.save);
    } catch (...) {
      wrong = words_of_failure();
    }
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
  if (automatic && !arguments.save.ends_with('/')) arguments.save += '/';
  if (automatic && found.empty() && job.is_main())
    log_info("nothing to go on from in ", arguments.save, ": from the start");
  arguments.resume_auto = automatic || arguments.resume_auto;
  arguments.resume = found;
}

}  // namespace peal::launch
