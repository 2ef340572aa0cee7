// SPDX-License-Identifier: Apache-2.0
// Trackers (Accelerate: log_with, GeneralTracker): where a run's figures go. "csv" and "jsonl" are
// files, PROJECT_DIR/NAME.csv with NAME.config.csv and PROJECT_DIR/NAME.jsonl, complete to the last
// line that was told, whatever becomes of the run; "all" is both; another is the program's own:
//
//   struct Board : launch::Tracker {
//     std::string name() const override { return "board"; }
//     void log(const std::vector<launch::Value>& values,
//              std::optional<std::int64_t> step) override { ... }
//   };
//   launch::Accelerator accelerator(job, {.log_with = {"csv", std::make_shared<Board>()}});
//   accelerator.init_trackers("mnist", {{"lr", "0.001"}});
//   accelerator.log({{"loss", loss}}, step);
//   accelerator.end_training();
//
// They are rank 0's; on other ranks the calls do nothing. Thread safety: a rank's thread.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/launch/training/evaluation.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {

class Tracker {
 public:
  virtual ~Tracker() = default;
  // As `log_with` names it.
  virtual std::string name() const = 0;
  // A run begins, of that name and with these settings, or goes on.
  virtual void start(const std::filesystem::path& /*project_dir*/, const std::string& /*run*/,
                     const Metadata& /*config*/, bool /*goes_on*/) {}
  // Numbers by name, of a step where there is one; and the run's end.
  virtual void log(const std::vector<Value>& values, std::optional<std::int64_t> step) = 0;
  virtual void finish() {}
};

// By its name, or the program's own.
struct LogWith {
  LogWith(const char* word) : name(word) {}
  LogWith(std::string word) : name(std::move(word)) {}
  template <class T>
  LogWith(const std::shared_ptr<T>& mine) : name(mine->name()), own(mine) {}

  std::string name;
  std::shared_ptr<Tracker> own;
};

// What an Accelerator has of them.
class Trackers {
 public:
  // Error for a name that is none, which names the nearest and all.
  explicit Trackers(const std::vector<LogWith>& all);
  // On other ranks `writes` is false, and none is called. Error for a run without a name, or with a
  // / in it.
  void start(const std::filesystem::path& project_dir, const std::string& run,
             const Metadata& config, bool goes_on, bool writes);
  // Errors: before start(), where there are trackers; what they throw.
  void log(const std::vector<Value>& values, std::optional<std::int64_t> step) const;
  void finish();

 private:
  std::vector<std::shared_ptr<Tracker>> all_;
  bool started_ = false, writes_ = false;
};

}  // namespace peal::launch
