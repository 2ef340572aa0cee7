// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/training/learner/plot.h>
#include <peal/launch/training/learner/recorder.h>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace peal::launch {
namespace {

constexpr std::size_t most_waiting = 256;

// The sum of each, over all ranks.
std::pair<double, double> summed_over_ranks(const Job& job, double a, double b) {
  if (job.world() == 1) return {a, b};
  const Tensor both = Tensor::from(std::vector<double>{a, b}, {2}, Device{});
  job.group().all_reduce(both, comm::ReduceOp::sum, {"recorder"}).wait();
  return {both.data<double>()[0], both.data<double>()[1]};
}

std::vector<double> counted(std::size_t count, std::size_t from = 0) {
  std::vector<double> numbers;
  for (std::size_t i = from; i < count; ++i) numbers.push_back(static_cast<double>(i));
  return numbers;
}

}  // namespace

double SmoothLoss::value() const {
  return left_ == 1 ? std::numeric_limits<double>::quiet_NaN() : sum_ / (1 - left_);
}

std::string table_row(const std::vector<std::string>& texts,
                      const std::vector<std::string>& names) {
  std::string row;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    row += fmt::format("{}{:<{}}", i == 0 ? "" : "  ", texts[i],
                       std::max<std::size_t>(8, names.at(i).size()));
  }
  return row;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{:02}:{:02}", minutes, rest);
}

Recorder::Recorder(std::vector<NamedMetric> metrics, std::function<void(const std::string&)> tell)
    : metrics_(std::move(metrics)), tell_(std::move(tell)) {}

std::vector<std::string> Recorder::names() const {
  std::vector<std::string> all{"epoch", "train_loss"};
  if (validates_) {
    all.emplace_back("valid_loss");
    for (const NamedMetric& each : metrics_) all.push_back(each.name);
  }
  all.emplace_back("time");
  return all;
}

void Recorder::tell_row(const Loop& loop, const std::vector<std::string>& texts) const {
  if (loop.job.is_main() && tell_ && !silent) tell_(table_row(texts, names()));
}

void Recorder::before_fit(Loop& loop) {
  batch_losses.clear();
  losses.clear();
  lrs.clear();
  epochs.clear();
  settings.clear();
  ends_of_epochs_.clear();
  smooth_.reset();
  waiting_.clear();
  samples_.clear();
  of_rank_.clear();
  main_ = loop.job.is_main();
  validates_ = loop.validation_loader != nullptr;
  tell_row(loop, names());
}

void Recorder::before_epoch(Loop&) {
  start_ = std::chrono::steady_clock::now();
  // Here, not before the validation, which another callback may cancel first.
  validation.clear();
  loss_sum_ = loss_samples_ = unjudged_ = 0;
  for (const NamedMetric& each : metrics_) each.metric->reset();
}

void Recorder::after_batch(Loop& loop) {
  if (!loop.training && !loop.batch.y.defined())
    unjudged_ += static_cast<double>(loop.batch.size());
  if (!loop.loss.defined()) return;
  const double samples = loop.count_items();
  if (!loop.training) {
    loss_sum_ += samples == 0 ? 0 : loop.loss.detach().item<double>() * samples;
    loss_samples_ += samples;
    for (const NamedMetric& each : metrics_) each.metric->update(loop.output, loop.batch.y);
    return;
  }
  waiting_.push_back(loop.loss.detach());
  samples_.push_back(samples);
  if (waiting_.size() == most_waiting) take_waiting();
  lrs.push_back(loop.optimizer->lr(loop.optimizer->group_count() - 1));
}

// All at once, which waits for a device once.
void Recorder::take_waiting() {
  if (waiting_.empty()) return;
  for (Tensor& each : waiting_) each = each.detach({1});
  const auto numbers = cast(cat(waiting_).to(Device{}), DType::f64).to_vector<double>();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    of_rank_.push_back(samples_[i] == 0 ? 0 : numbers[i] * samples_[i]);
    of_rank_.push_back(samples_[i]);
  }
  waiting_.clear();
  samples_.clear();
}

void Recorder::catch_up(const Loop& loop) {
  take_waiting();
  if (of_rank_.empty()) return;
  const Tensor all = Tensor::from(of_rank_, {std::ssize(of_rank_)}, Device{});
  of_rank_.clear();
  if (loop.job.world() > 1) {
    loop.job.group().all_reduce(all, comm::ReduceOp::sum, {"losses of batches"}).wait();
  }
  const auto sums = all.to_vector<double>();
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    batch_losses.push_back(sums[i] / sums[i + 1]);
    if (sums[i + 1] > 0) smooth_.add(batch_losses.back());  // else no rank had anything to learn
    losses.push_back(smooth_.value());
  }
}

void Recorder::after_validate(Loop& loop) {
  const auto [sum, samples] = summed_over_ranks(loop.job, loss_sum_, loss_samples_);
  if (samples == 0) {
    if (!judges) return;
    const double unjudged = summed_over_ranks(loop.job, unjudged_, 0).first;
    PEAL_CHECK(unjudged == 0, "[launch] learner: none of the ", static_cast<std::int64_t>(unjudged),
               " samples of the validation has a y, so there is no valid_loss; name the target's "
               "column as the training's table does, give a loss of your own in after_pred, or ask "
               "get_preds() about rows that nobody has judged");
    return;  // all batches were cancelled, or there are none
  }
  validation = {{"valid_loss", sum / samples}};
  for (const NamedMetric& each : metrics_) {
    validation.push_back({each.name, each.metric->value(loop.job.group())});
  }
}

void Recorder::after_epoch(Loop& loop) {
  catch_up(loop);  // of an epoch that was cancelled while it trained
  loop.values = {{"train_loss", smooth_.value()}};
  loop.values.insert(loop.values.end(), validation.begin(), validation.end());
  if (!loop.training && loop.epochs == 0) return;  // a validation alone
  epochs.push_back(loop.values);
  ends_of_epochs_.push_back(static_cast<double>(losses.size()));
  std::vector<std::string> texts{fmt::format("{}", loop.epoch)};
  for (const Value& each : loop.values) texts.push_back(fmt::format("{:.6f}", each.value));
  // An epoch that was cancelled has no values to show.
  while (texts.size() + 1 < names().size()) texts.emplace_back("");
  texts.push_back(
      clock_text(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count()));
  tell_row(loop, texts);
}

void Recorder::plot_loss(const std::filesystem::path& path, std::size_t skip_start) const {
  if (!main_) return;
  const std::size_t from = std::min(skip_start, losses.size());
  Plot plot{.title = "Loss", .x_title = "batch", .y_title = "loss"};
  plot.lines.push_back({"train",
                        counted(losses.size(), from),
                        {losses.begin() + static_cast<std::ptrdiff_t>(from), losses.end()}});
  Line valid{"valid", {}, {}};
  for (std::size_t e = 0; e < epochs.size(); ++e) {
    for (const Value& each : epochs[e]) {
      if (each.name != "valid_loss") continue;
      valid.x.push_back(ends_of_epochs_[e]);
      valid.y.push_back(each.value);
    }
  }
  if (!valid.x.empty()) {
    if (valid.x.size() == 1) plot.marked = {"valid", valid.x, valid.y};
    plot.lines.push_back(std::move(valid));
  }
  save_svg(path, plot);
}

void Recorder::plot_sched(const std::filesystem::path& path) const {
  if (!main_) return;
  // A rate and a momentum are of different sizes.
  const auto plot_of = [](const std::string& name, const std::vector<double>& numbers) {
    Plot plot{.title = "Schedule", .x_title = "batch", .y_title = name};
    plot.lines = {{name, counted(numbers.size()), numbers}};
    return plot;
  };
  std::vector<Plot> plots;
  for (const auto& [name, numbers] : settings) plots.push_back(plot_of(name, numbers));
  if (plots.empty()) plots.push_back(plot_of("lr", lrs));
  save_svg(path, plots);
}

void CSVLogger::before_fit(Loop& loop) {
  if (!loop.trial && loop.job.is_main()) rows_.emplace(path_, append_);
}

void CSVLogger::after_epoch(Loop& loop) {
  if (loop.trial || !rows_) return;
  CsvRows::Cells cells{{"epoch", fmt::format("{}", loop.epoch)}};
  for (const Value& each : loop.values) {
    cells.emplace_back(each.name, fmt::format("{}", each.value));
  }
  rows_->write(cells);
}

}  // namespace peal::launch
