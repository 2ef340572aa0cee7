// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/nearest.h>
#include <peal/launch/training/trainer/get_scheduler.h>
#include <peal/launch/training/trainer/updates.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

namespace peal::launch {
namespace {

using Factor = std::function<double(std::int64_t)>;

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

// The part of the updates behind the warm-up that is over.
double progress(std::int64_t done, std::int64_t warm_up, std::int64_t updates) {
  return static_cast<double>(done - warm_up) /
         static_cast<double>(std::max<std::int64_t>(1, updates - warm_up));
}

// The schedule's own numbers, by name.
class Numbers {
 public:
  Numbers(const std::string& type, const std::string& text, const std::vector<std::string>& known) {
    if (text.empty()) return;
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    PEAL_CHECK(json.is_object(),
               "[trainer] lr_scheduler_kwargs: expected an object of JSON, {...}, got '", text,
               "'");
    for (const auto& [name, value] : json.items()) {
      PEAL_CHECK(std::ranges::find(known, name) != known.end(),
                 "[trainer] lr_scheduler_kwargs: ", type, " has no number '", name, "'",
                 did_you_mean(name, known), " (it has ",
                 known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")), ")");
      PEAL_CHECK(value.is_number(), "[trainer] lr_scheduler_kwargs: ", name,
                 ": expected a number, got ", value.dump());
      all_[name] = value.get<double>();
    }
  }
  std::optional<double> find(const std::string& name) const {
    const auto found = all_.find(name);
    return found == all_.end() ? std::nullopt : std::optional(found->second);
  }
  // Of that name, or the standard one; Error outside of the limits.
  double number(const std::string& name, double standard, double least, double most) const {
    const double value = find(name).value_or(standard);
    PEAL_CHECK(value >= least && value <= most, "[trainer] lr_scheduler_kwargs: ", name,
               ": expected ", least, " to ", most, ", got ", value);
    return value;
  }

 private:
  std::map<std::string, double> all_;
};

constexpr double most_number = 1e12;

std::vector<std::string> numbers_of_schedule(const std::string& type) {
  if (type == "cosine" || type == "cosine_with_restarts") return {"num_cycles"};
  if (type == "polynomial") return {"power", "lr_end"};
  if (type == "inverse_sqrt") return {"timescale"};
  if (type == "cosine_with_min_lr") return {"num_cycles", "min_lr", "min_lr_rate"};
  if (type == "warmup_stable_decay") return {"num_decay_steps", "min_lr_ratio", "num_cycles"};
  return {};
}

// From 1 along a cosine, of which a half is 0.5 cycles.
double cosine(double cycles, double over) {
  return std::max(0.0, (1 + std::cos(std::numbers::pi * 2 * cycles * over)) / 2);
}

// The share of the rate that a cosine ends at.
double least_share(const Numbers& numbers, double rate) {
  const auto share = numbers.find("min_lr_rate"), lowest = numbers.find("min_lr");
  PEAL_CHECK(share.has_value() != lowest.has_value(),
             "[trainer] lr_scheduler_kwargs: cosine_with_min_lr: expected min_lr, a rate, or "
             "min_lr_rate, a share of learning_rate; got ",
             share ? "both" : "neither");
  if (share) return numbers.number("min_lr_rate", 0, 0, 1);
  return rate > 0 ? numbers.number("min_lr", 0, 0, rate) / rate : 0;
}

Factor stable_then_falling(const Numbers& numbers, std::int64_t warm_up, std::int64_t updates) {
  PEAL_CHECK(numbers.find("num_decay_steps"),
             "[trainer] lr_scheduler_kwargs: warmup_stable_decay: expected num_decay_steps, the "
             "number of the last updates, in which the rate falls");
  const auto behind = static_cast<double>(std::max<std::int64_t>(0, updates - warm_up));
  const double steps = numbers.number("num_decay_steps", 0, 0, behind);
  const double least = numbers.number("min_lr_ratio", 0, 0, 1);
  const double cycles = numbers.number("num_cycles", 0.5, 0, most_number);
  return [=](std::int64_t done) {
    const double over = static_cast<double>(done - updates) + steps;  // of the last updates
    if (over < 0) return 1.0;
    return done >= updates ? least : cosine(cycles, over / steps) * (1 - least) + least;
  };
}

// The factor behind the warm-up.
Factor falling(const std::string& type, std::int64_t warm_up, std::int64_t updates, double rate,
               const Numbers& numbers) {
  const auto over = [=](std::int64_t done) { return progress(done, warm_up, updates); };
  if (type == "constant" || type == "constant_with_warmup") return [](std::int64_t) { return 1.0; };
  if (type == "linear") {
    return [=](std::int64_t done) {
      return std::max(0.0, static_cast<double>(updates - done) /
                               static_cast<double>(std::max<std::int64_t>(1, updates - warm_up)));
    };
  }
  if (type == "cosine") {
    const double cycles = numbers.number("num_cycles", 0.5, 0, most_number);
    return [=](std::int64_t done) { return cosine(cycles, over(done)); };
  }
  if (type == "cosine_with_restarts") {
    const double cycles = numbers.number("num_cycles", 1, 0, most_number);
    return [=](std::int64_t done) {
      return over(done) >= 1 ? 0.0 : cosine(0.5, std::fmod(cycles * over(done), 1.0));
    };
  }
  if (type == "cosine_with_min_lr") {
    const double cycles = numbers.number("num_cycles", 0.5, 0, most_number);
    const double least = least_share(numbers, rate);
    return [=](std::int64_t done) { return cosine(cycles, over(done)) * (1 - least) + least; };
  }
  if (type == "warmup_stable_decay") return stable_then_falling(numbers, warm_up, updates);
  if (type == "polynomial") {
    const double power = numbers.number("power", 1, 0, most_number);
    const double end = rate > 0 ? numbers.number("lr_end", 1e-7, 0, most_number) / rate : 0;
    PEAL_CHECK(end <= 1, "[trainer] polynomial: expected a learning_rate of at least lr_end, ",
               end * rate, ", got ", rate);
    return [=](std::int64_t done) {
      return done > updates ? end : end + (1 - end) * std::pow(1 - over(done), power);
    };
  }
  PEAL_CHECK(type == "inverse_sqrt", "[trainer] there is no lr_scheduler_type '", type, "'");
  const double scale = numbers.number("timescale", warm_up > 0 ? static_cast<double>(warm_up) : 1e4,
                                      1e-12, most_number);
  return [=](std::int64_t done) {
    return 1 / std::sqrt((static_cast<double>(done - warm_up) + scale) / scale);
  };
}

}  // namespace

TrainingLength length_of_training(std::int64_t batches, std::int64_t accumulated, double epochs,
                                  std::int64_t max_steps) {
  PEAL_CHECK(batches > 0,
             "[trainer] an epoch has no batch to learn from; are its samples fewer "
             "than one, and dataloader_drop_last is set?");
  TrainingLength length;
  length.updates_an_epoch = divided_up(batches, accumulated);
  if (max_steps > 0) {
    length.updates = max_steps;
    length.epochs = static_cast<int>(divided_up(max_steps, length.updates_an_epoch));
  } else {
    length.updates =
        static_cast<std::int64_t>(std::ceil(epochs * static_cast<double>(length.updates_an_epoch)));
    length.epochs = static_cast<int>(std::ceil(epochs));
  }
  return length;
}

Factor schedule_of(const std::string& type, std::int64_t warm_up, std::int64_t updates,
                   double learning_rate, const std::string& text) {
  const Numbers numbers(type, text, numbers_of_schedule(type));
  Factor then = falling(type, warm_up, updates, learning_rate, numbers);
  if (warm_up == 0 || type == "constant") return then;
  const double from = numbers.find("min_lr_ratio").value_or(0);
  return [=, then = std::move(then)](std::int64_t done) {
    if (done >= warm_up) return then(done);
    return from + (1 - from) * static_cast<double>(done) / static_cast<double>(warm_up);
  };
}

nn::LambdaLR get_scheduler(const std::string& name, nn::Optimizer& optimizer,
                           std::int64_t num_warmup_steps, std::int64_t num_training_steps,
                           const std::string& scheduler_specific_kwargs) {
  return {optimizer, schedule_of(name, num_warmup_steps, num_training_steps, optimizer.lr(),
                                 scheduler_specific_kwargs)};
}

std::string with_commas(std::int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3;) text.insert(at -= 3, ",");
  return text;
}

std::string number_text(double number) {
  std::string text = fmt::format("{}", number);
  if (std::isfinite(number) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace peal::launch
