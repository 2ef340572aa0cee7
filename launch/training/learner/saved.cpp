// SPDX-License-Identifier: Apache-2.0
// What a learner keeps in files: its state, to go on; and its model with what it is used by.
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/launch/training/learner/exported.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/checkpoint.h>

#include <nlohmann/json.hpp>

#include <optional>
#include <utility>

namespace peal::launch {
namespace {

using nlohmann::json;

constexpr const char* format_of_export = "peal learner 1";
// Names of metadata that are not the program's.
constexpr const char* format_key = "learner";
constexpr const char* classes_key = "learner.classes";
constexpr const char* activation_key = "learner.activation";
constexpr const char* model_key = "learner.model";

// Rank 0 writes; what goes wrong there is an Error on all ranks.
void write_checkpoint(const Job& job, const std::filesystem::path& file,
                      const std::vector<nn::Part>& parts, const Metadata& metadata) {
  for (const nn::Part& part : parts) part.consolidate_state_dict();
  rank0_first(job.group(), [&] {
    if (!job.is_main()) return;
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
    nn::save(file, parts, metadata);
  });
}

// The same file on all ranks, or an Error on all.
nn::CheckpointFile read_alike(const Job& job, const std::filesystem::path& file) {
  std::optional<nn::CheckpointFile> read;
  const std::string wrong =
      comm::failure_while(job.group(), "reads a checkpoint", [&] { read.emplace(file); });
  comm::agree_unless(job.group(), "[launch] learner: the file to load",
                     read ? read->checksum() : "", wrong, "all ranks must see the same file");
  return std::move(*read);
}

Exported exported_in(const std::filesystem::path& file, Metadata metadata) {
  const auto take = [&](const char* name) {
    auto node = metadata.extract(name);
    PEAL_CHECK(!node.empty(), "[launch] learner: ", file.string(),
               " is no file of Learner::export_to(): its metadata has no '", name, "'");
    return std::move(node.mapped());
  };
  const std::string format = take(format_key);
  PEAL_CHECK(format == format_of_export, "[launch] learner: ", file.string(),
             ": expected the format '", format_of_export, "', got '", format, "'");
  Exported found;
  try {
    found.classes = json::parse(take(classes_key)).get<std::vector<std::string>>();
  } catch (const json::exception& error) {
    fail(concat("[launch] learner: ", file.string(), ": '", classes_key,
                "' is no list of names: ", error.what()));
  }
  found.activation = take(activation_key);
  found.model = take(model_key);
  found.settings = std::move(metadata);
  return found;
}

}  // namespace

// In a fit, pieces of the state lie with all ranks.
void Learner::check_saves_optimizer(bool with_opt) {
  PEAL_CHECK(!with_opt || prepared_optimizer() == nullptr || !shards_optimizer(),
             "[launch] learner: within a fit by \"", accelerator_options().strategy,
             "\" the optimizer is not saved or loaded; do it after the fit, or the model alone "
             "(with_opt = false)");
}

void Learner::save(const std::filesystem::path& file, bool with_opt) {
  check_saves_optimizer(with_opt);
  const auto whole = whole_model();
  std::vector<nn::Part> parts{{"model", model}};
  if (with_opt) {
    create_optimizer();
    parts.emplace_back("optimizer", *optimizer);
  }
  write_checkpoint(job, file, parts, {});
}

void Learner::load(const std::filesystem::path& file, bool with_opt) {
  check_saves_optimizer(with_opt);
  const nn::CheckpointFile read = read_alike(job, file);
  PEAL_CHECK(read.has("model"), "[launch] learner: ", file.string(), " has no part 'model'");
  PEAL_CHECK(!with_opt || read.has("optimizer"), "[launch] learner: ", file.string(),
             " has no part 'optimizer'; load the model alone (with_opt = false)");
  std::vector<nn::Part> parts{{"model", model}};
  if (with_opt) {
    create_optimizer();
    parts.emplace_back("optimizer", *optimizer);
  }
  const auto whole = whole_model();
  read.load(parts, false);
}

void Learner::export_to(const std::filesystem::path& file) {
  Metadata all = options_.settings;
  for (const char* own : {format_key, classes_key, activation_key, model_key}) {
    PEAL_CHECK(!all.contains(own), "[launch] learner: the setting '", own,
               "' is the learner's own; rename it");
  }
  all[format_key] = format_of_export;
  try {
    all[classes_key] = json(options_.classes).dump();
  } catch (const json::exception& error) {
    fail(concat("[launch] learner: the name of a class is no UTF-8: ", error.what()));
  }
  all[activation_key] = reading_.activation_name;
  all[model_key] = model.class_name();
  const auto whole = whole_model();
  write_checkpoint(job, file, {{"model", model}}, all);
}

Exported exported(const std::filesystem::path& file) {
  return exported_in(file, nn::CheckpointFile(file).metadata());
}

std::string setting_of(const Exported& there, const std::filesystem::path& file, const char* name,
                       std::string_view maker) {
  const auto found = there.settings.find(name);
  PEAL_CHECK(found != there.settings.end(), "[launch] ", maker, ": ", file.string(),
             " was not exported by a ", maker, ": it has no '", name, "'");
  return found->second;
}

Learner load_learner(Job& job, const std::filesystem::path& file, nn::Module model,
                     LearnerOptions options) {
  const nn::CheckpointFile read = read_alike(job, file);
  Exported found = exported_in(file, read.metadata());
  PEAL_CHECK(options.classes.empty() || options.classes == found.classes,
             "[launch] learner: ", file.string(),
             " was exported with other names of classes, or "
             "in another order; leave them out, and they are the file's");
  options.classes = found.classes;
  for (auto& [name, text] : found.settings) options.settings.insert_or_assign(name, text);
  const std::string activation =
      options.activation ? "own" : reading_of(options.loss).activation_name;
  PEAL_CHECK(activation == found.activation, "[launch] learner: ", file.string(),
             " was exported with a loss whose outputs are read by '", found.activation,
             "', and these would be by '", activation, "': give the same loss");
  try {
    read.load({{"model", model}}, true);
  } catch (const Error& error) {
    fail(concat("[launch] learner: ", file.string(), " was exported of a ", found.model,
                ", and does not fit the ", model.class_name(), ": ", error.what()));
  }
  return Learner(job, {}, std::move(model), std::move(options));
}

}  // namespace peal::launch
