// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/trainer/trainer.h>
#include <peal/launch/training/trainer/updates.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace peal::launch {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN: null stands for it.
double number_of(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

}  // namespace

std::optional<double> TrainerLog::find(std::string_view name) const {
  for (const Value& each : values) {
    if (each.name == name) return each.value;
  }
  return std::nullopt;
}

std::string TrainerLog::in_text() const {
  std::string text;
  for (const auto& [name, value] : values) {
    double shown = value;
    // What these are rounded to is parsed again, so that 0.1 is no 0.1000...01.
    if (name == "loss") shown = std::stod(fmt::format("{:.4f}", value));
    if (name == "epoch") shown = std::stod(fmt::format("{:.2f}", value));
    text += fmt::format("{}'{}': {}", text.empty() ? "" : ", ", name, number_text(shown));
  }
  return "{" + text + "}";
}

namespace {

bool is_a_time(const std::string& name) {
  return name.ends_with("_runtime") || name.ends_with("_per_second");
}

Json json_of(const TrainerLog& log) {
  Json entry;
  for (const auto& [name, value] : log.values) entry[name] = value;
  entry["step"] = log.step;
  return entry;
}

}  // namespace

std::string TrainerState::to_json() const {
  Json all;
  all["epoch"] = epoch;
  all["global_step"] = global_step;
  all["max_steps"] = max_steps;
  all["num_train_epochs"] = num_train_epochs;
  all["best_metric"] = best_metric ? Json(*best_metric) : Json(nullptr);
  all["best_global_step"] = best_global_step;
  all["log_history"] = Json::array();
  for (TrainerLog log : log_history) {
    std::erase_if(log.values, [](const Value& each) { return is_a_time(each.name); });
    all["log_history"].push_back(json_of(log));
  }
  return all.dump();
}

void TrainerState::read_json(const std::string& text) {
  try {
    const Json all = Json::parse(text);
    TrainerState state;
    state.epoch = all.at("epoch").get<double>();
    state.global_step = all.at("global_step").get<std::int64_t>();
    state.max_steps = all.at("max_steps").get<std::int64_t>();
    state.num_train_epochs = all.at("num_train_epochs").get<int>();
    if (!all.at("best_metric").is_null()) state.best_metric = all.at("best_metric").get<double>();
    state.best_global_step = all.at("best_global_step").get<std::int64_t>();
    for (const Json& entry : all.at("log_history")) {
      TrainerLog log;
      for (const auto& [name, value] : entry.items()) {
        if (name == "step") {
          log.step = value.get<std::int64_t>();
        } else {
          log.values.push_back({name, number_of(value)});
        }
      }
      state.log_history.push_back(std::move(log));
    }
    *this = std::move(state);
  } catch (const nlohmann::json::exception& error) {
    fail(concat("[trainer] the state of a checkpoint is damaged: ", error.what()));
  }
}

void EarlyStopping::on_train_begin(Trainer& trainer, TrainerControl&) {
  PEAL_CHECK(!trainer.args().best_metric().empty() && trainer.args().eval_strategy != "no",
             "[trainer] EarlyStopping: there is no metric to judge by; name it "
             "(metric_for_best_model), and when to evaluate (eval_strategy)");
  waited_ = 0;
  best_.reset();
  for (const TrainerLog& each : trainer.state().log_history) judge(trainer.args(), each);
}

void EarlyStopping::on_evaluate(Trainer& trainer, TrainerControl& control) {
  judge(trainer.args(), trainer.state().log_history.back());
  if (waited_ >= patience_) control.should_training_stop = true;
}

void EarlyStopping::judge(const TrainingArguments& args, const TrainerLog& log) {
  const auto found = log.find(args.best_metric());
  if (!found) return;  // of another data set, or no evaluation
  const double gain = !best_ ? 0 : args.best_is_greatest() ? *found - *best_ : *best_ - *found;
  if (!std::isnan(*found) && (!best_ || gain > threshold_)) {
    best_ = found;
    waited_ = 0;
  } else {
    ++waited_;
  }
}

}  // namespace peal::launch
