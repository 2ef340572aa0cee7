// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/trainer/get_scheduler.h>
#include <peal/launch/training/trainer/updates.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace peal::launch {
namespace {

using Factor = std::function<double(std::int64_t)>;

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

// The part of the updates behind the warm-up that is over.
double progress(std::int64_t done, std::int64_t warm_up, std::int64_t updates) {
  return static_cast<double>(done - warm_up) /
         static_cast<double>(std::max<std::int64_t>(1, updates - warm_up));
}

// The factor behind the warm-up.
Factor falling(const std::string& type, std::int64_t warm_up, std::int64_t updates, double rate) {
  const double pi = std::numbers::pi;
  const auto over = [=](std::int64_t done) { return progress(done, warm_up, updates); };
  if (type == "constant" || type == "constant_with_warmup") return [](std::int64_t) { return 1.0; };
  if (type == "linear") {
    return [=](std::int64_t done) {
      return std::max(0.0, static_cast<double>(updates - done) /
                               static_cast<double>(std::max<std::int64_t>(1, updates - warm_up)));
    };
  }
  if (type == "cosine") {
    return [=](std::int64_t done) { return std::max(0.0, (1 + std::cos(pi * over(done))) / 2); };
  }
  if (type == "cosine_with_restarts") {
    return [=](std::int64_t done) {
      return over(done) >= 1 ? 0.0 : (1 + std::cos(pi * over(done))) / 2;
    };
  }
  if (type == "polynomial") {
    const double end = rate > 0 ? 1e-7 / rate : 0;
    return [=](std::int64_t done) {
      return done > updates ? end : end + (1 - end) * (1 - over(done));
    };
  }
  PEAL_CHECK(type == "inverse_sqrt", "[trainer] there is no lr_scheduler_type '", type, "'");
  const double scale = warm_up > 0 ? static_cast<double>(warm_up) : 1e4;
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
                   double learning_rate) {
  Factor then = falling(type, warm_up, updates, learning_rate);
  if (warm_up == 0 || type == "constant") return then;
  return [=, then = std::move(then)](std::int64_t done) {
    if (done >= warm_up) return then(done);
    return static_cast<double>(done) / static_cast<double>(warm_up);
  };
}

nn::LambdaLR get_scheduler(const std::string& name, nn::Optimizer& optimizer,
                           std::int64_t num_warmup_steps, std::int64_t num_training_steps) {
  return {optimizer, schedule_of(name, num_warmup_steps, num_training_steps, optimizer.lr())};
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
