// SPDX-License-Identifier: Apache-2.0
// What a Trainer's training, evaluations and predictions have found, for people and as files.
#include <peal/autograd/core/error.h>
#include <peal/launch/job.h>
#include <peal/launch/training/trainer/trainer.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace peal::launch {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// transformers: metrics_format.
std::string metric_text(const std::string& name, double value) {
  if (name.ends_with("_runtime")) {
    const auto whole = static_cast<std::int64_t>(value);
    return fmt::format("{}:{:02}:{:05.2f}", whole / 3600, whole / 60 % 60,
                       value - static_cast<double>(whole / 60 * 60));
  }
  if (std::abs(value) < 1e15 && value == std::round(value) && !name.ends_with("_loss"))
    return fmt::format("{}", static_cast<std::int64_t>(value));
  return fmt::format("{:.4f}", value);
}

std::map<std::string, double> by_name(const std::vector<Value>& metrics) {
  std::map<std::string, double> all;
  for (const Value& each : metrics) all[each.name] = each.value;
  return all;
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path);
  file << text << "\n";
  file.close();
  PEAL_CHECK(file, "[trainer] ", path.string(), " cannot be written");
}

void add_to(const fs::path& path, const std::map<std::string, double>& metrics, bool keep) {
  std::map<std::string, ordered_json> all;
  if (std::ifstream old(path); keep && old) {
    const ordered_json read = ordered_json::parse(old, nullptr, false);
    PEAL_CHECK(read.is_object(), "[trainer] ", path.string(), " is no object of JSON; remove it");
    for (const auto& [name, value] : read.items()) all[name] = value;
  }
  for (const auto& [name, value] : metrics) all[name] = value;
  ordered_json text;
  for (const auto& [name, value] : all) text[name] = value;
  write(path, text.dump(4));
}

}  // namespace

void Trainer::log_metrics(const std::string& split, const std::vector<Value>& metrics) const {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : by_name(metrics)) texts[name] = metric_text(name, value);
  std::size_t names = 0, values = 0;
  for (const auto& [name, text] : texts) {
    names = std::max(names, name.size());
    values = std::max(values, text.size());
  }
  tell(fmt::format("***** {} metrics *****", split));
  for (const auto& [name, text] : texts)
    tell(fmt::format("  {:<{}} = {:>{}}", name, names, text, values));
}

void Trainer::save_metrics(const std::string& split, const std::vector<Value>& metrics,
                           bool combined) const {
  rank0_first(job.group(), [&] {
    if (!job.is_main()) return;
    const fs::path folder(args_.output_dir);
    add_to(folder / (split + "_results.json"), by_name(metrics), false);
    if (combined) add_to(folder / "all_results.json", by_name(metrics), true);
  });
}

void Trainer::save_state() const {
  rank0_first(job.group(), [&] {
    if (job.is_main()) write(fs::path(args_.output_dir) / "trainer_state.json", state_.to_json());
  });
}

}  // namespace peal::launch
