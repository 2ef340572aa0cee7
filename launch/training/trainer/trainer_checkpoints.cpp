// SPDX-License-Identifier: Apache-2.0
// A Trainer's checkpoints: when there is one more, where a run goes on, and the best.
#include <peal/autograd/core/error.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/group/failure_while.h>
#include <peal/launch/training/trainer/trainer_steps.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>
#include <utility>

namespace peal::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* state_name = "trainer_state";
constexpr const char* ahead_name = "schedule ahead";  // Trainer::schedule_ahead_
constexpr const char* order_of_gradients = "order of gradients";

std::vector<std::string> lines_of_text(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

std::string best_by(const TrainingArguments& args) {
  if (args.best_metric().empty()) return "";
  return (args.best_is_greatest() ? "highest " : "lowest ") + args.best_metric();
}

int kept(const TrainingArguments& args) {
  const std::int64_t all = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(all, args.save_total_limit.value_or(all)));
}

// "run/checkpoint-500" names the file of step 500 in "run", as checkpoint-N-step-500.
std::string file_of_step(const std::string& named) {
  const fs::path path(named);
  const std::string name = path.filename().string(), prefix = "checkpoint-";
  std::error_code none;
  if (fs::exists(path, none) || !name.starts_with(prefix)) return named;
  const std::string end = concat("-step-", name.substr(prefix.size()), ".safetensors");
  for (const fs::path& each : nn::CheckpointFolder(path.parent_path()).files()) {
    if (each.filename().string().ends_with(end)) return each.string();
  }
  return named;
}

}  // namespace

std::string Trainer::folder() const {
  return args_.output_dir.ends_with('/') ? args_.output_dir : args_.output_dir + "/";
}

Metadata Trainer::own_settings() const {
  return {{"seed", std::to_string(args_.seed)},
          {"world", std::to_string(job.world())},
          {"per_device_train_batch_size", std::to_string(args_.per_device_train_batch_size)},
          {"gradient_accumulation_steps", std::to_string(args_.gradient_accumulation_steps)},
          {"precision", args_.fp16   ? "f16"
                        : args_.bf16 ? "bf16"
                                     : "f32"}};
}

void Trainer::check_settings() const {
  Metadata own = own_settings();
  for (const char* each :
       {"epoch", "step", nn::measure_key, state_name, ahead_name, order_of_gradients})
    own[each] = "";
  for (const auto& [name, value] : options_.settings) {
    PEAL_CHECK(!name.starts_with("peal."), "[trainer] the setting '", name,
               "' starts with 'peal.', which is peal's own; rename it");
    PEAL_CHECK(!own.contains(name), "[trainer] the setting '", name,
               "' is one that each run has for itself; rename it");
  }
}

void Trainer::make_checkpoints() {
  Metadata settings = own_settings();
  settings.insert(options_.settings.begin(), options_.settings.end());
  std::vector<nn::Part> parts{prepared_model()->part("model"),
                              prepared_optimizer()->part("optimizer"),
                              {"scheduler", *scheduler_},
                              {"scaler", accelerator().scaler()},
                              {"losses", steps_->losses}};
  parts.insert(parts.end(), options_.parts.begin(), options_.parts.end());
  checkpoints_ = std::make_unique<Checkpoints>(job, std::move(parts), std::move(settings),
                                               kept(args_), best_by(args_));
}

// Collective.
void Trainer::clear_output_dir(const std::string& resumed) const {
  std::string wrong;
  if (job.is_main()) {
    wrong = comm::failure_while(job.group(), "clears output_dir", [&] {
      std::error_code none;
      const bool own =
          !resumed.empty() && fs::equivalent(fs::absolute(resumed).parent_path(), folder(), none);
      std::vector<fs::path> files;
      if (!own) files = nn::CheckpointFolder(folder()).files();
      PEAL_CHECK(files.empty() || args_.overwrite_output_dir, files.size(),
                 " checkpoints of another run are there; go on from them "
                 "(resume_from_checkpoint true), remove them (overwrite_output_dir), or name "
                 "another folder");
      for (const fs::path& each : files) fs::remove(each);
    });
  }
  comm::agree_unless(job.group(), concat("[trainer] output_dir ", args_.output_dir), "", wrong, "");
}

std::string find_checkpoint(const Job& job, const TrainingArguments& args) {
  const std::string& from = args.resume_from_checkpoint;
  return find_resume(job, from == "True" ? "true" : file_of_step(from), args.output_dir);
}

std::string checkpoint_to_judge(const Job& job, const TrainingArguments& args) {
  std::string found = find_checkpoint(job, args);
  PEAL_CHECK(!found.empty(),
             "[trainer] there is no model to judge; name its checkpoint (resume_from_checkpoint)");
  return found;
}

Start Trainer::begin() {
  const bool saves = args_.save_strategy != "no";
  const std::string found = find_checkpoint(job, args_);
  // Nothing is removed there where another run still saves, or where this one cannot go on.
  if (saves) checkpoints_->try_to_save(folder());
  const Start start = found.empty() ? Start{} : take_up(found);
  if (saves) clear_output_dir(found);
  return start;
}

Start Trainer::take_up(const std::string& found) {
  Metadata saved;
  const Position at = checkpoints_->resume(found, &saved);
  PEAL_CHECK(saved.contains(state_name) && saved.contains(ahead_name), found,
             ": it is no checkpoint of a Trainer");
  const std::int64_t planned = state_.max_steps;
  const int planned_epochs = state_.num_train_epochs;
  state_.read_json(saved[state_name]);
  state_.num_train_epochs = planned_epochs;
  auto* const ddp = prepared_model()->ddp();
  if (ddp != nullptr) ddp->set_order(lines_of_text(saved[order_of_gradients]));
  const std::int64_t whole = training_loader->size();
  std::int64_t over = 0;  // batches of this epoch
  if (at.loader.empty()) {
    training_loader->set_epoch(at.epoch);
  } else {
    training_loader->load_state_dict(at.loader);
    if (args_.group_by_length) leave_out_seen(found, at.epoch, std::stoll(saved["world"]));
    over = whole - training_loader->size();
  }
  schedule_ahead_ = std::stoll(saved[ahead_name]);
  if (saved["world"] != std::to_string(job.world())) scale_updates(at, whole, over);
  state_.max_steps = planned - schedule_ahead_;
  for (std::size_t g = 0; g < base_lrs_.size(); ++g) optimizer->set_base_lr(base_lrs_[g], g);
  scheduler_->set_steps(scheduler_->steps());
  return {.epoch = at.epoch, .iter = over};
}

// The plan's state counts the batches of one rank. They are dealt out in turn, so what any world
// has seen of them are the first ones.
void Trainer::leave_out_seen(const std::string& found, int in_epoch, std::int64_t world) {
  if (world == job.world()) return;
  const std::int64_t seen = training_loader->consumed() * world;
  PEAL_CHECK(seen % job.world() == 0, found, ": with group_by_length ", seen,
             " batches of its epoch are over, which ", job.world(),
             " ranks cannot leave out alike; go on in ", world,
             " ranks, or from a checkpoint of an epoch's end");
  training_loader->resume(in_epoch, seen / job.world());
}

// In another world the updates so far are as many of this one's as the samples are. With max_steps
// they are what they are, and epochs are as many as that takes.
void Trainer::scale_updates(const Position& at, std::int64_t whole, std::int64_t over) {
  const auto updates_of = [&](std::int64_t batches) {
    return (batches + args_.gradient_accumulation_steps - 1) / args_.gradient_accumulation_steps;
  };
  const std::int64_t an_epoch = updates_of(whole);
  const std::int64_t done = at.epoch * an_epoch + an_epoch - updates_of(whole - over);
  schedule_ahead_ = args_.max_steps > 0 ? 0 : done - state_.global_step;
  if (args_.max_steps <= 0) return;
  const std::int64_t to_come = std::max<std::int64_t>(args_.max_steps - state_.global_step, 0);
  state_.num_train_epochs = static_cast<int>((done + to_come + an_epoch - 1) / an_epoch);
}

// Collective.
void Trainer::keep_processing() const {
  if (!options_.save_processing) return;
  std::string wrong;
  if (job.is_main()) {
    wrong = comm::failure_while(job.group(), "save_processing",
                                [&] { options_.save_processing(folder()); });
  }
  comm::agree_unless(job.group(), "[trainer] save_processing", "", wrong, "");
}

void Trainer::save_checkpoint() {
  if (!checkpoints_) return;
  PEAL_CHECK(!args_.output_dir.empty(),
             "[trainer] should_save: a checkpoint needs a folder, and there is none; name it "
             "(output_dir)");
  go_to_training(false);   // what a checkpoint's model is judged by
  accelerator().scaler();  // whose scale moves when it is asked for next
  Position at{.epoch = epoch, .step = state_.global_step};
  if (!steps_->epoch_ended) {
    at.loader = training_loader->state_dict();
  } else {
    ++at.epoch;
  }
  Metadata more{{state_name, state_.to_json()}, {ahead_name, std::to_string(schedule_ahead_)}};
  if (auto* const ddp = prepared_model()->ddp())
    more[order_of_gradients] = fmt::format("{}", fmt::join(ddp->order(), "\n"));
  std::optional<double> measure;
  if (judged_at_ == state_.global_step) measure = args_.best_is_greatest() ? judged_ : -judged_;
  keep_processing();
  checkpoints_->save(folder(), at, more, measure);
}

// The score is that of the file: there may have been a better evaluation, after which none was
// saved.
void Trainer::load_best_model() {
  std::string best, wrong;
  double score = 0;
  if (job.is_main()) {
    wrong = comm::failure_while(job.group(), "looks for the best model", [&] {
      const auto found = nn::CheckpointFolder(folder(), kept(args_), best_by(args_)).best();
      if (found) {
        best = found->string();
        const std::string measure = nn::CheckpointFile(*found).metadata().at(nn::measure_key);
        score = (args_.best_is_greatest() ? 1 : -1) * std::strtod(measure.c_str(), nullptr);
      }
    });
  }
  comm::agree_unless(job.group(), "[trainer] load_best_model_at_end", "", wrong, "");
  best = job.group().broadcast_object(best);
  if (best.empty()) {
    tell("load_best_model_at_end: no checkpoint was evaluated; the model is that of the last step");
    return;
  }
  tell(fmt::format("Loading best model from {} (score: {}).", best, score));
  load_everywhere(best, "load_best_model_at_end");
}

void Trainer::load_everywhere(const std::string& path, const char* why) {
  const std::string wrong =
      comm::failure_while(job.group(), "loads a model", [&] { nn::load_model(path, plain_); });
  comm::agree_unless(job.group(), concat("[trainer] ", why), "", wrong, "");
}

void Trainer::load_model() { load_everywhere(checkpoint_to_judge(job, args_), "load_model"); }

}  // namespace peal::launch
