// SPDX-License-Identifier: Apache-2.0
// Checkpoints: models and whole training states in safetensors files, which PyTorch reads, too.
//
// A model's file has the model's keys as they are (save_model, load_model). A checkpoint has parts,
// each a Stateful object (autograd/core/stateful.h) under a name of the caller's:
//
//   nn::save("run.safetensors", {{"model", model}, {"optimizer", optimizer},
//                                {"random", RandomState()}}, {{"epoch", "3"}});
//   const auto at = nn::load("run.safetensors", {{"model", model}, {"optimizer", optimizer},
//                                                {"random", RandomState()}});
//   at.metadata.at("epoch");
//
// The key "fc1.weight" of the part "model" is "model.fc1.weight" in the file, and the metadata
// "peal.parts" lists the parts. load_model takes a checkpoint, too. In PyTorch: {k[6:]: v for k, v
// in load_file(f).items() if k.startswith("model.")}.
//
// Files are replaced whole or not at all, and have a checksum
// (autograd/core/safetensors_checksum.h), so that one that was damaged since is an error, and loads
// nothing. A folder of several: checkpoint_folder.h; while the training goes on: background_save.h;
// each rank its own part: parallel/sharded/sharded_checkpoint.h.
// Thread safety: as of the parts; with several ranks one saves and all load.
#pragma once

#include <peal/autograd/core/stateful.h>
#include <peal/nn/local_state.h>
#include <peal/nn/module.h>

#include <concepts>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace peal::nn {

void save_model(const std::filesystem::path& path, const Module& model,
                const Metadata& metadata = {});
// Of a checkpoint it takes the part "model". Errors name the file and all that differs. Into a
// model that a wrapper has cut load_sharded() (parallel/sharded/sharded_checkpoint.h) reads such a
// file, as its part "model".
void load_model(const std::filesystem::path& path, Module& model);

// One of the things that make a checkpoint. REQUIRES: the object outlives this, unless it is a
// temporary, which this keeps.
class Part {
 public:
  // Error for a name that is empty or has a dot or a blank.
  template <class T>
  requires Stateful<std::remove_cvref_t<T>> Part(std::string name, T&& object)
      : name_(std::move(name)) {
    check_name();
    if constexpr (requires { object.saved(); }) {  // what stands for it (parallel/sharded/fsdp.h)
      hold(std::make_shared<decltype(object.saved())>(object.saved()));
    } else if constexpr (std::is_lvalue_reference_v<T>) {
      hold(&object);
    } else {
      hold(std::make_shared<T>(std::forward<T>(object)));
    }
  }

  const std::string& name() const { return name_; }
  NamedTensors state_dict() const { return save_(); }
  // Brings together on rank 0 what several ranks have of its state, on all of them before rank 0
  // saves it (Optimizer::consolidate_state_dict). Nothing for an object that needs it not.
  void consolidate_state_dict() const {
    if (consolidate_) consolidate_();
  }
  // Error for an object that is const.
  void load_state_dict(const NamedTensors& state) const;
  // What this rank has of it, and wants.
  LocalState local_state() const;

 private:
  template <class Pointer>
  void hold(Pointer object) {
    save_ = [object] { return std::as_const(*object).state_dict(); };
    if constexpr (requires(const NamedTensors& state) { object->load_state_dict(state); }) {
      load_ = [object](const NamedTensors& state) { object->load_state_dict(state); };
    }
    if constexpr (requires { object->local_state(); }) {
      local_ = [object] { return object->local_state(); };
    } else if constexpr (std::derived_from<std::remove_cvref_t<decltype(*object)>, Module>) {
      model_ = object->class_name();
    }
    if constexpr (requires { object->consolidate_state_dict(0); }) {
      consolidate_ = [object] { object->consolidate_state_dict(0); };
    }
  }
  void check_name() const;

  std::string name_;
  std::function<NamedTensors()> save_;
  std::function<void(const NamedTensors&)> load_;
  std::function<void()> consolidate_;
  std::function<LocalState()> local_;
  std::string model_;  // what it is called, where it is one
};

// What came with the parts, and where file and caller differ.
struct Checkpoint {
  Metadata metadata;
  std::vector<std::string> missing_parts, unexpected_parts;  // not in the file; not asked for
};

// Error for a name twice, and for metadata whose name starts with "peal.".
void save(const std::filesystem::path& path, const std::vector<Part>& parts,
          const Metadata& metadata = {});

// What save() writes, as it is now: copies, on the CPU, which no later step changes.
struct Snapshot {
  NamedTensors tensors;
  Metadata metadata;
};
// Errors: as save().
Snapshot snapshot(const std::vector<Part>& parts, const Metadata& metadata = {});
void save_snapshot(const std::filesystem::path& path, const Snapshot& snapshot);

struct CheckpointContent;  // what was read

// A checkpoint that was read and found whole, and is in no object yet.
class CheckpointFile {
 public:
  // Error for a file that is damaged, cut short, or no checkpoint; UnreadableFile.
  explicit CheckpointFile(const std::filesystem::path& path);

  const Metadata& metadata() const;
  // Equal for copies of one file; empty where peal had none yet when it wrote it.
  const std::string& checksum() const;
  bool has(std::string_view part) const;
  // As load() below, which this is the second half of.
  Checkpoint load(const std::vector<Part>& parts, bool strict = true) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<CheckpointContent> content_;
};

// Loads the parts in the order given. strict: an error, before anything is loaded, where the file
// has other parts than were asked for; else what only one side has is passed over, and returned. An
// error in a part names the file and the part; those before it have been loaded then. Takes the
// oldest checkpoints too, whose parts are "model", "optimizer", "random" and perhaps "extra".
Checkpoint load(const std::filesystem::path& path, const std::vector<Part>& parts,
                bool strict = true);

}  // namespace peal::nn
