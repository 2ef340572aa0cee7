// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/nearest.h>
#include <peal/launch/training/csv_rows.h>
#include <peal/launch/training/tracker.h>

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

namespace peal::launch {
namespace {

class CsvTracker : public Tracker {
 public:
  std::string name() const override { return "csv"; }
  void start(const std::filesystem::path& project_dir, const std::string& run,
             const Metadata& config, bool goes_on) override {
    if (!config.empty()) {
      CsvRows settings(project_dir / (run + ".config.csv"));
      for (const auto& [name, value] : config) settings.write({{"name", name}, {"value", value}});
    }
    rows_.emplace(project_dir / (run + ".csv"), goes_on);
  }
  void log(const std::vector<Value>& values, std::optional<std::int64_t> step) override {
    CsvRows::Cells cells{{"step", step ? fmt::format("{}", *step) : ""}};
    for (const auto& [name, value] : values) cells.emplace_back(name, fmt::format("{}", value));
    rows_->write(cells);
  }
  void finish() override { rows_.reset(); }

 private:
  std::optional<CsvRows> rows_;
};

class JsonLinesTracker : public Tracker {
 public:
  std::string name() const override { return "jsonl"; }
  void start(const std::filesystem::path& project_dir, const std::string& run,
             const Metadata& config, bool goes_on) override {
    path_ = project_dir / (run + ".jsonl");
    write_lines(path_, goes_on ? whole_lines(path_) : std::vector<std::string>());
    if (!config.empty()) append_line(path_, nlohmann::json{{"config", config}}.dump());
  }
  void log(const std::vector<Value>& values, std::optional<std::int64_t> step) override {
    nlohmann::ordered_json line;
    if (step) line["step"] = *step;
    for (const auto& [name, value] : values) {
      // JSON has no word for what is not finite, and a loss that is, is what one looks for.
      if (std::isfinite(value)) {
        line[name] = value;
      } else {
        line[name] = fmt::format("{}", value);
      }
    }
    append_line(path_, line.dump());
  }

 private:
  std::filesystem::path path_;
};

std::shared_ptr<Tracker> tracker_of(const LogWith& chosen) {
  if (chosen.own) return chosen.own;
  if (chosen.name == "csv") return std::make_shared<CsvTracker>();
  if (chosen.name == "jsonl") return std::make_shared<JsonLinesTracker>();
  fail(concat("[accelerator] log_with: there is no tracker '", chosen.name, "'",
              did_you_mean(chosen.name, {"csv", "jsonl", "all"}),
              " (there are csv, jsonl; all is both; another is an object of a class of your own, "
              "launch::Tracker)"));
}

}  // namespace

Trackers::Trackers(const std::vector<LogWith>& all) {
  std::set<std::string> words;  // two of one would write a file's lines twice
  const auto add = [&](const LogWith& each) {
    if (each.own || words.insert(each.name).second) all_.push_back(tracker_of(each));
  };
  for (const LogWith& each : all) {
    if (each.own || each.name != "all") {
      add(each);
    } else {
      for (const char* const word : {"csv", "jsonl"}) add(word);
    }
  }
}

void Trackers::start(const std::filesystem::path& project_dir, const std::string& run,
                     const Metadata& config, bool goes_on, bool writes) {
  PEAL_CHECK(!run.empty() && run.find('/') == std::string::npos,
             "expected a name for the run, which its files have, got '", run, "'");
  if (writes) {
    for (const auto& each : all_) each->start(project_dir, run, config, goes_on);
  }
  started_ = true;
  writes_ = writes;
}

void Trackers::log(const std::vector<Value>& values, std::optional<std::int64_t> step) const {
  if (all_.empty()) return;
  PEAL_CHECK(started_,
             "[accelerator] log: no run is under way; call init_trackers() before, and "
             "after end_training() again");
  if (!writes_) return;
  for (const auto& each : all_) each->log(values, step);
}

void Trackers::finish() {
  if (started_ && writes_) {
    for (const auto& each : all_) each->finish();
  }
  started_ = false;
}

}  // namespace peal::launch
