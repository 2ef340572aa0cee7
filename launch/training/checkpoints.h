// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a training: rank 0 saves, while the training goes on; all ranks take a run up
// where it was left, in an epoch too, each in its own stream of random numbers; and a run is not
// taken up by another one (of other data). In the world that it was saved in it goes on bit for
// bit; in another one with the same state, and with each sample of the epoch once, where the loader
// can.
//
// Where it saves: a file, which each checkpoint replaces, or a folder ("run/"), in which each is a
// file of its own, and the newest stay (nn/checkpoint_folder.h).
//
// What goes wrong on rank 0 while it saves is an Error on all ranks, in the next save() or wait();
// the checkpoint before it stays. Thread safety: one thread.
#pragma once

#include <peal/launch/job.h>
#include <peal/launch/training/folder_lock.h>
#include <peal/nn/background_save.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/checkpoint_folder.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace peal::launch {

// How far a training has come.
struct Position {
  int epoch = 0;             // the one that is under way; between two, the one to come
  std::int64_t step = 0;     // batches that this rank has learnt from, in all
  NamedTensors loader = {};  // the training loader's state; none between epochs
};

// The file to go on from, on all ranks: of a folder its newest that is whole, and for "true" that
// of `folder`, or none ("") where there is none yet, as where `from` is empty. Collective: rank 0
// looks. Errors, on all ranks: no such file or folder, no whole one, a sharded checkpoint's folder
// or one that has such a folder in it and no file, or a rank that has no such file, as where the
// folder is not shared.
std::string find_resume(const Job& job, const std::string& from, const std::string& folder = "");

// What a checkpoint says of its run. Error where it has no such setting, or is none.
std::string setting_in(const std::string& checkpoint, const std::string& name);

// Whether checkpoints in `save` are files of a folder: where it is one, or ends in '/'.
bool saves_in_folder(const std::string& save);

// Where a program keeps what a checkpoint, or a folder of them, is of no use without:
// FILE.ending, or FOLDER/checkpoint.ending for each checkpoint in it.
std::string beside(const std::string& checkpoint, const std::string& ending);

class Checkpoints {
 public:
  // `settings` are what a run must share with the one it goes on from, to be that run, but for
  // "world". `keep` is of a folder, and so is `best`, the name of a measure: of the files that have
  // one of this name the highest stays, too. REQUIRES: what the parts are of lives as long. Error
  // for two parts of one name, and one called "random" or "loader".
  Checkpoints(Job& job, std::vector<nn::Part> parts, Metadata settings, int keep = 3,
              std::string best = {});

  // Collective. Error, on all ranks, where nothing can be saved, or the best shall stay and `save`
  // is no folder: rather now than after an epoch. It waits for a save that is under way, as save()
  // does.
  // A folder is this run's from now on: Error that names another one that saves there.
  void try_to_save(const std::string& save);
  // Collective. Copies all that there is to save, and goes on; rank 0 writes it in the background,
  // after the one before it. `more` goes along, for resume(). `measure`: how good it is, rank 0's;
  // for a folder whose best stays.
  void save(const std::string& save, const Position& at, const Metadata& more = {},
            std::optional<double> measure = {});
  // Collective. Until what was saved is written. Error, on all ranks and once, where it could not
  // be.
  void wait();
  // Collective. Loads the parts of a file, and says where its run was. Errors, on all ranks: a file
  // that is not whole or not equal on all, what nn::load finds, and other settings.
  Position resume(const std::string& path, Metadata* all = nullptr) const;

 private:
  std::vector<nn::Part> parts_and(std::vector<nn::Part> more) const;
  std::string next_file(const std::string& save, std::int64_t step);
  void check_settings(const std::string& path, const Metadata& saved) const;

  Job& job_;
  std::vector<nn::Part> parts_;
  Metadata settings_;
  int keep_;
  std::string best_;
  // Rank 0's; the first two of where it saves, if that is a folder.
  std::optional<nn::CheckpointFolder> folder_;
  std::optional<FolderLock> lock_;
  nn::BackgroundSave saving_;
};

}  // namespace peal::launch
