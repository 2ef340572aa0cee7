// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/intra_op.h>
#include <peal/autograd/profile.h>
#include <peal/launch/progress_bar.h>
#include <peal/launch/training/trainer.h>
#include <peal/nn/metrics/classification.h>

#include <fmt/format.h>

#include <chrono>
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

Trainer::Trainer(Job& job, const TrainingArguments& arguments, nn::DistributedDataParallel& model,
                 nn::Optimizer& optimizer, TrainerOptions options)
    : job_(job),
      arguments_(arguments),
      model_(model),
      optimizer_(optimizer),
      scaler_({.enabled = arguments.precision == "f16"}, job.group()),
      options_(std::move(options)),
      checkpoints_(job,
                   and_parts({{"model", model}, {"optimizer", optimizer}, {"scaler", scaler_}},
                             options_.parts),
                   settings_of(arguments, job.world(), options_.settings)) {
  if (options_.metrics.empty()) {
    options_.metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}};
  }
  // Ranks drop out different units: a stream of its own for each.
  manual_seed(arguments.seed * 1000003 + static_cast<std::uint64_t>(job.rank()) + 1);
  if (!arguments.resume.empty()) {
    std::vector<double> asked;
    for (std::size_t g = 0; g < optimizer.group_count(); ++g) asked.push_back(optimizer.base_lr(g));
    Metadata saved;
    next_epoch_ = checkpoints_.resume(arguments.resume, arguments.epochs, &saved);
    model.set_order(names_of(saved[order_name]));  // of no words, in older ones: it is learnt
    for (std::size_t g = 0; arguments.lr && g < asked.size(); ++g) {
      optimizer.set_base_lr(asked[g], g);
    }
  }
  if (!arguments.save.empty()) checkpoints_.try_to_save(arguments.save);
}

Tensor Trainer::forward(const data::Batch& batch) const {
  return options_.forward ? options_.forward(model_, batch) : model_(batch.x);
}

std::vector<Value> Trainer::evaluate(data::DataLoader& loader) {
  const Autocast precision = autocast(arguments_);
  return launch::evaluate(model_, loader, job_.group(), options_.metrics,
                          [this](const data::Batch& batch) { return forward(batch); });
}

void Trainer::fit(data::DataLoader& training, data::DataLoader& test, const Loss& loss) {
  fit(training, test, [&](nn::DistributedDataParallel&, const data::Batch& batch) {
    return loss(forward(batch), batch.y);
  });
}

void Trainer::fit(data::DataLoader& training, data::DataLoader& test, const Step& loss) {
  if (next_epoch_ >= arguments_.epochs) {
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
  training.set_epoch(next_epoch_);
  const std::int64_t steps_before = steps_;
  while (next_epoch_ < arguments_.epochs) {
    const int epoch = next_epoch_;
    EpochReport report = [&] {
      const Tracing guard(trace);  // of training steps alone
      return train_epoch(training, epoch, loss);
    }();
    ++next_epoch_;
    report.metrics = evaluate(test);
    tell(line_of(epoch, report));
    epochs_.push_back(report);
    if (!arguments_.save.empty()) {
      if (job_.is_main() && options_.before_save) {
        const auto busy = job_.group().busy();
        options_.before_save();
      }
      checkpoints_.save(arguments_.save, next_epoch_, {{order_name, text_of(model_.order())}});
    }
  }
  if (trace && arguments_.profile) {
    tell("\na step, rank 0:\n" + profile_report(*trace, steps_ - steps_before));
  }
  if (trace && !arguments_.trace.empty()) save_trace(arguments_.trace, *trace);
  if (job_.is_main() && !arguments_.json.empty()) {
    write_json(arguments_.json, arguments_, job_.world(), options_.settings, epochs_);
  }
}

EpochReport Trainer::train_epoch(data::DataLoader& loader, int epoch, const Step& loss) {
  ProgressBar bar(concat("epoch ", epoch + 1), loader.size(), job_.is_main());
  if (options_.before_epoch) options_.before_epoch(epoch);
  model_.train();
  model_.reset();
  model_.reducer().reset_times();
  const auto start = Clock::now();
  double loss_sum = 0;
  std::int64_t done = 0;
  for (const data::Batch& batch : loader) {
    loss_sum += step(batch, loss).item<double>();
    ++done;
    if (++steps_ == 1) {
      tell(fmt::format("first training step done {:.2f} s after the program's start",
                       seconds_since(program_start)));
    }
    bar.update(done, fmt::format("loss {:.4f}", loss_sum / static_cast<double>(done)));
  }
  const Tensor totals =
      Tensor::from(std::vector<double>{loss_sum, static_cast<double>(done)}, {2}, Device{});
  job_.group().all_reduce(totals).wait();
  PEAL_CHECK(totals.data<double>()[1] > 0, "[launch] trainer: epoch ", epoch + 1,
             " has no batch to learn from, of ", loader.dataset().size(),
             " samples; are they fewer than a batch, and drop_last is set?");
  EpochReport report;
  report.loss = totals.data<double>()[0] / totals.data<double>()[1];
  report.seconds = seconds_since(start);
  report.samples_per_second = static_cast<double>(loader.dataset().size()) / report.seconds;
  report.exposed = model_.reducer().exposed_seconds() / report.seconds;
  bar.finish(fmt::format("loss {:.4f}", report.loss));
  return report;
}

Tensor Trainer::step(const data::Batch& batch, const Step& loss) {
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

void Trainer::tell(const std::string& line) const {
  if (job_.is_main() && options_.tell) options_.tell(line);
}

}  // namespace peal::launch
