// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/intra_op.h>
#include <peal/autograd/profile.h>
#include <peal/launch/progress_bar.h>
#include <peal/launch/terminated.h>
#include <peal/launch/training/epoch_trainer.h>
#include <peal/nn/metrics/classification.h>

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {
namespace {

using Clock = std::chrono::steady_clock;
const Clock::time_point program_start = Clock::now();

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<nn::Part> and_parts(std::vector<nn::Part> all, const std::vector<nn::Part>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// The order of DDP's plan, so that sums have the same bits in a run that goes on.
const std::string order_name = "order of gradients";

std::string text_of(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, "\n"));  // a name may have blanks
}

std::vector<std::string> names_of(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream lines(text);
  for (std::string name; std::getline(lines, name);) names.push_back(name);
  return names;
}

void check_kept(const RunArguments& arguments, const std::vector<NamedMetric>& metrics) {
  const std::string &highest = arguments.keep_highest, &lowest = arguments.keep_lowest;
  PEAL_CHECK(highest.empty() || lowest.empty(),
             "[launch] trainer: the best checkpoint is that of the "
             "highest ",
             highest, " or of the lowest ", lowest, ", not of both; name one");
  PEAL_CHECK((highest.empty() && lowest.empty()) || !arguments.save.empty(),
             "[launch] trainer: the best checkpoint by ", highest, lowest,
             " stays in the folder of --save, and there is none; name it (--save run/)");
  std::string names;
  for (const NamedMetric& each : metrics) {
    if (each.name == highest + lowest) return;
    names += (names.empty() ? "" : ", ") + each.name;
  }
  PEAL_CHECK(highest.empty() && lowest.empty(),
             "[launch] trainer: expected a metric to keep the best "
             "checkpoint by (",
             names, "), got ", highest, lowest);
}

// By what the best checkpoint is found, in words that tell it from others; empty where none stays.
std::string best_by(const RunArguments& arguments) {
  if (!arguments.keep_highest.empty()) return "highest " + arguments.keep_highest;
  return arguments.keep_lowest.empty() ? "" : "lowest " + arguments.keep_lowest;
}

// While it lives, what is computed is traced.
class Tracing {
 public:
  explicit Tracing(std::shared_ptr<Trace> trace)
      : outside_(std::exchange(context().trace, std::move(trace))) {}
  ~Tracing() { context().trace = outside_; }
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

 private:
  std::shared_ptr<Trace> outside_;
};

}  // namespace

EpochTrainer::EpochTrainer(Job& job, const RunArguments& arguments,
                           nn::DistributedDataParallel& model, nn::Optimizer& optimizer,
                           EpochTrainerOptions options)
    : job_(job),
      arguments_(arguments),
      model_(model),
      optimizer_(optimizer),
      scaler_({.enabled = arguments.precision == "f16"}, job.group()),
      options_(std::move(options)),
      checkpoints_(job,
                   and_parts({{"model", model}, {"optimizer", optimizer}, {"scaler", scaler_}},
                             options_.parts),
                   settings_of(arguments, job.world(), options_.settings), arguments.keep,
                   best_by(arguments)) {
  if (options_.metrics.empty()) {
    options_.metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}};
  }
  check_kept(arguments, options_.metrics);
  // Ranks drop out different units: a stream of its own for each.
  manual_seed(arguments.seed * 1000003 + static_cast<std::uint64_t>(job.rank()) + 1);
  find_resume(job_, arguments_);
  if (!arguments_.resume.empty()) {
    std::vector<double> asked;
    for (std::size_t g = 0; g < optimizer.group_count(); ++g) asked.push_back(optimizer.base_lr(g));
    Metadata saved;
    at_ = checkpoints_.resume(
        arguments_.resume,
        arguments_.resume_auto ? std::numeric_limits<int>::max() : arguments_.epochs, &saved);
    model.set_order(names_of(saved[order_name]));  // of no words, in older ones: it is learnt
    for (std::size_t g = 0; arguments.lr && g < asked.size(); ++g) {
      optimizer.set_base_lr(asked[g], g);
    }
  }
  if (!arguments_.save.empty()) checkpoints_.try_to_save(arguments_.save);
}

// Of what the model was found to be worth, the number of which more is better, if one was named.
std::optional<double> EpochTrainer::measure(const std::vector<Value>& found) const {
  const std::string &highest = arguments_.keep_highest, &lowest = arguments_.keep_lowest;
  for (const auto& [name, value] : found) {
    if (std::isnan(value)) continue;
    if (name == highest) return value;
    if (name == lowest) return -value;
  }
  return std::nullopt;
}

void EpochTrainer::save(const Position& at, std::optional<double> measure) {
  if (arguments_.save.empty()) return;
  checkpoints_.wait();  // what lies beside a checkpoint is written after the one before it
  if (job_.is_main() && options_.before_save) {
    const auto busy = job_.group().busy("before_save");
    options_.before_save();
  }
  checkpoints_.save(arguments_.save, at, {{order_name, text_of(model_.order())}}, measure);
}

Tensor EpochTrainer::forward(const data::Batch& batch) const {
  return options_.forward ? options_.forward(model_, batch) : model_(batch.x);
}

std::vector<Value> EpochTrainer::evaluate(data::DataLoader& loader) {
  const Autocast precision = autocast(arguments_);
  return launch::evaluate(model_, loader, job_.group(), options_.metrics,
                          [this](const data::Batch& batch) { return forward(batch); });
}

void EpochTrainer::fit(data::DataLoader& training, data::DataLoader& test, const Loss& loss) {
  fit(training, test, [&](nn::DistributedDataParallel&, const data::Batch& batch) {
    return loss(forward(batch), batch.y);
  });
}

void EpochTrainer::fit(data::DataLoader& training, data::DataLoader& test, const Step& loss) {
  if (at_.epoch >= arguments_.epochs) {
    return tell(
        concat("all ", arguments_.epochs, " epochs are done; there is nothing left to train"));
  }
  PEAL_CHECK(test.dataset().size() > 0,
             "[launch] trainer: the test set is empty, and the model is judged on it after each "
             "epoch");
  std::shared_ptr<Trace> trace;
  if (job_.is_main() && (arguments_.profile || !arguments_.trace.empty())) {
    trace = std::make_shared<Trace>(arguments_.trace.empty() ? 0 : Trace::picture_events,
                                    model_.parameters().at(0).device());
  }
  tell(fmt::format("{} training and {} test samples; {} rank(s) of batch {}, {} thread(s) each",
                   training.dataset().size(), test.dataset().size(), job_.world(),
                   arguments_.batch_size, num_threads()));
  if (at_.loader.empty()) {
    training.set_epoch(at_.epoch);
  } else {
    training.load_state_dict(at_.loader);
  }
  const std::int64_t steps_before = steps_;
  std::optional<Termination> termination;
  if (!arguments_.save.empty()) termination.emplace(job_.group());
  while (at_.epoch < arguments_.epochs) {
    EpochReport report = [&] {
      const Tracing guard(trace);  // of training steps alone
      return train_epoch(training, loss, termination ? &*termination : nullptr);
    }();
    if (termination && termination->asked()) {
      save(at_);
      leave(at_);
    }
    report.metrics = evaluate(test);
    tell(line_of(at_.epoch - 1, report));
    epochs_.push_back(report);
    save(at_, measure(report.metrics));
  }
  if (!arguments_.save.empty()) checkpoints_.wait();
  if (trace && arguments_.profile) {
    tell("\na step, rank 0:\n" + profile_report(*trace, steps_ - steps_before));
  }
  if (trace && !arguments_.trace.empty()) save_trace(arguments_.trace, *trace);
  if (job_.is_main() && !arguments_.json.empty()) {
    write_json(arguments_.json, arguments_, job_.world(), options_.settings, epochs_);
  }
  // The second call hears what the first has asked.
  if (termination && (termination->asked() || termination->asked())) leave(at_);
}

void EpochTrainer::leave(const Position& at) {
  checkpoints_.wait();
  throw Terminated(SIGTERM, concat("[launch] SIGTERM: ends after step ", at.step, ", which ",
                                   arguments_.save, " has; go on from there by --resume ",
                                   saves_in_folder(arguments_.save) ? "auto" : arguments_.save));
}

EpochReport EpochTrainer::train_epoch(data::DataLoader& loader, const Step& loss,
                                      Termination* termination) {
  Position now = at_;  // at_ stays, for another try after an exception
  ProgressBar bar(concat("epoch ", now.epoch + 1), now.batches + loader.size(), job_.is_main());
  if (options_.before_epoch) options_.before_epoch(now.epoch);
  model_.train();
  model_.reset();
  model_.reducer().reset_times();
  const auto start = Clock::now();
  for (const data::Batch& batch : loader) {
    now.loss_sum += step(batch, loss).item<double>();
    ++now.batches;
    ++now.step;
    if (++steps_ == 1) {
      tell(fmt::format("first training step done {:.2f} s after the program's start",
                       seconds_since(program_start)));
    }
    bar.update(now.batches,
               fmt::format("loss {:.4f}", now.loss_sum / static_cast<double>(now.batches)));
    const bool is_due = arguments_.save_every > 0 && now.step % arguments_.save_every == 0;
    const bool is_last = termination != nullptr && termination->asked();
    if ((is_due || is_last) && loader.has_next()) {  // else it is the epoch's
      now.loader = loader.state_dict();
      save(now);
      if (is_last) leave(now);
    }
  }
  const Tensor totals = Tensor::from(
      std::vector<double>{now.loss_sum, static_cast<double>(now.batches)}, {2}, Device{});
  job_.group().all_reduce(totals).wait();
  PEAL_CHECK(totals.data<double>()[1] > 0, "[launch] trainer: epoch ", now.epoch + 1,
             " has no batch to learn from, of ", loader.dataset().size(),
             " samples; are they fewer than a batch, and drop_last is set?");
  EpochReport report;
  report.loss = totals.data<double>()[0] / totals.data<double>()[1];
  report.seconds = seconds_since(start);
  const double here = static_cast<double>(now.step - at_.step) * static_cast<double>(job_.world());
  report.samples_per_second = static_cast<double>(loader.dataset().size()) *
                              (here / totals.data<double>()[1]) / report.seconds;
  report.exposed = model_.reducer().exposed_seconds() / report.seconds;
  bar.finish(fmt::format("loss {:.4f}", report.loss));
  at_ = Position{.epoch = now.epoch + 1, .step = now.step};
  return report;
}

Tensor EpochTrainer::step(const data::Batch& batch, const Step& loss) {
  optimizer_.zero_grad();
  const Tensor value = [&] {
    const Autocast guard = autocast(arguments_);
    return loss(model_, batch);
  }();
  scaler_.scale(value).backward();
  const bool stepped = scaler_.step(optimizer_);
  scaler_.update();
  if (stepped && options_.after_step) options_.after_step();
  return value;
}

void EpochTrainer::tell(const std::string& line) const {
  if (job_.is_main() && options_.tell) options_.tell(line);
}

}  // namespace peal::launch
