// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/stateful.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/intra_op.h>
#include <peal/autograd/profile.h>
#include <peal/launch/progress_bar.h>
#include <peal/launch/training/evaluation.h>
#include <peal/launch/training/trainer.h>

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

namespace peal::launch {
namespace {

using Clock = std::chrono::steady_clock;
const Clock::time_point program_start = Clock::now();

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Metadata with_settings_of(const TrainingArguments& arguments, int world, Metadata settings) {
  settings["seed"] = std::to_string(arguments.seed);
  settings["world"] = std::to_string(world);
  settings["batch_size"] = std::to_string(arguments.batch_size);
  settings["precision"] = arguments.precision;
  return settings;
}

}  // namespace

Trainer::Trainer(Job& job, const TrainingArguments& arguments, nn::DistributedDataParallel& model,
                 nn::Optimizer& optimizer, const Metadata& settings, Tell tell)
    : job_(job),
      arguments_(arguments),
      model_(model),
      optimizer_(optimizer),
      scaler_({.enabled = arguments.precision == "f16"}, job.group_ref()),
      settings_(settings),
      tell_(std::move(tell)),
      checkpoints_(job,
                   {{"model", model},
                    {"optimizer", optimizer},
                    {"scaler", scaler_},
                    {"random", RandomState{.keep_seed = true}}},
                   with_settings_of(arguments, job.world(), settings)) {
  // Ranks drop out different units: a stream of its own for each.
  manual_seed(arguments.seed * 1000003 + static_cast<std::uint64_t>(job.rank()) + 1);
  if (!arguments.resume.empty()) {
    first_epoch_ = checkpoints_.resume(arguments.resume, arguments.epochs);
    optimizer.set_lr(arguments.lr);
  }
  if (!arguments.save.empty()) checkpoints_.try_to_save(arguments.save);
}

void Trainer::fit(data::DataLoader& training, data::DataLoader& test, const Loss& loss) {
  std::shared_ptr<Trace> trace;
  if (job_.is_main() && (arguments_.profile || !arguments_.trace.empty())) {
    trace = std::make_shared<Trace>(arguments_.trace.empty() ? 0 : Trace::picture_events,
                                    model_.parameters().at(0).device());
  }
  tell(fmt::format("{} training and {} test images; {} rank(s) of batch {}, {} thread(s) each",
                   training.dataset().size(), test.dataset().size(), job_.world(),
                   arguments_.batch_size, num_threads()));
  training.set_epoch(first_epoch_);
  for (int epoch = first_epoch_; epoch < arguments_.epochs; ++epoch) {
    const auto outside = std::exchange(context().trace, trace);  // of training steps alone
    EpochReport report = train_epoch(training, epoch, loss);
    context().trace = outside;
    const Autocast precision = autocast(arguments_);
    report.accuracy = accuracy(model_, test, job_.group());
    tell(line_of(epoch, report));
    epochs_.push_back(report);
    if (!arguments_.save.empty()) checkpoints_.save(arguments_.save, epoch + 1);
  }
  if (trace && arguments_.profile) {
    tell("\na step, rank 0:\n" + profile_report(*trace, steps_));
  }
  if (trace && !arguments_.trace.empty()) save_trace(arguments_.trace, *trace);
  if (job_.is_main() && !arguments_.json.empty()) {
    write_json(arguments_.json, arguments_, job_.world(), settings_, epochs_);
  }
}

EpochReport Trainer::train_epoch(data::DataLoader& loader, int epoch, const Loss& loss) {
  ProgressBar bar(concat("epoch ", epoch + 1), loader.size(), job_.is_main());
  model_.train();
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
  EpochReport report;
  report.loss = totals.data<double>()[0] / totals.data<double>()[1];
  report.seconds = seconds_since(start);
  report.samples_per_second = static_cast<double>(loader.dataset().size()) / report.seconds;
  report.exposed = model_.reducer().exposed_seconds() / report.seconds;
  bar.finish(fmt::format("loss {:.4f}", report.loss));
  return report;
}

Tensor Trainer::step(const data::Batch& batch, const Loss& loss) {
  optimizer_.zero_grad();
  const Tensor value = [&] {
    const Autocast guard = autocast(arguments_);
    return loss(model_(batch.x), batch.y);
  }();
  scaler_.scale(value).backward();
  scaler_.step(optimizer_);
  scaler_.update();
  return value;
}

void Trainer::tell(const std::string& line) const {
  if (job_.is_main() && tell_) tell_(line);
}

}  // namespace peal::launch
