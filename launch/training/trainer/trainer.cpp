// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/comm/group/agree.h>
#include <peal/launch/terminated.h>
#include <peal/launch/training/accelerator/strategy.h>
#include <peal/launch/training/learner/profiler.h>
#include <peal/launch/training/loss_items.h>
#include <peal/launch/training/trainer/trainer_steps.h>
#include <peal/launch/training/trainer/updates.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/loss.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/sharded/wrap_policy.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <utility>

namespace peal::launch {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t trainable_parameters(const nn::Module& model) {
  std::int64_t all = 0;
  for (const Tensor& each : model.parameters()) all += each.requires_grad() ? each.numel() : 0;
  return all;
}

// The model goes to its device before, and batches come there.
AcceleratorOptions accelerated_by(const TrainingArguments& args, const TrainerOptions& given) {
  AcceleratorOptions options{.device = "",
                             .mixed_precision = args.fp16   ? "fp16"
                                                : args.bf16 ? "bf16"
                                                            : "no",
                             .strategy = args.strategy};
  options.ddp.broadcast_buffers = args.ddp_broadcast_buffers;
  options.ddp.find_unused_parameters = args.ddp_find_unused_parameters;
  options.fsdp = given.fsdp;
  const std::vector<std::string> classes = args.fsdp_classes();
  if (!classes.empty()) options.fsdp.wrap = nn::wrap_by_type(classes);
  if (args.fsdp_offload_params) options.fsdp.cpu_offload.offload_params = true;
  if (args.ddp_bucket_cap_mb)
    options.ddp.buckets.bytes = static_cast<std::int64_t>(*args.ddp_bucket_cap_mb * (1 << 20));
  return options;
}

double labels_of(const TargetCounts& counts, const data::Batch& batch) {
  const bool has_classes = batch.y.defined() && batch.y.dtype() == DType::i64;
  return has_classes ? counts.of(batch.y) : static_cast<double>(batch.size());
}

// What all ranks have to give alike.
std::string alike_on_ranks(TrainingArguments args) {
  args.device.clear();
  args.disable_tqdm = false;
  return args.to_json();
}

}  // namespace

Trainer::Trainer(Job& j, nn::Module m, TrainingArguments args, TrainerOptions options)
    : Loop(j, accelerated_by(args, options)),
      args_(std::move(args)),
      options_(std::move(options)),
      plain_(std::move(m)),
      steps_(std::make_shared<TrainerSteps>(*this, j)) {
  const std::string wrong = failure_in([&] {
    args_.check();
    check_options();
    strategy_of(args_.strategy, job.world());
  });
  comm::agree_unless(job.group(), "[trainer] the arguments",
                     concat(alike_on_ranks(args_), ", callbacks: ", options_.callbacks.size()),
                     wrong, "give all ranks the same");
  if (args_.gradient_checkpointing) options_.gradient_checkpointing_enable();
  if (args_.full_determinism) context().deterministic = true;
  if (args_.tf32) context().allow_tf32 = true;
  plain_.to(job.device(args_.device));
  model = plain_;
  callbacks.push_back(steps_);
  if (args_.profile || !args_.trace.empty()) {
    profiler_ = std::make_shared<Profiler>(
        ProfilerOptions{.tell = args_.profile ? [this](const std::string& text) { tell(text); }
                                              : std::function<void(const std::string&)>(),
                        .trace = args_.trace});
    callbacks.push_back(profiler_);
  }
  forward = options_.forward;
  loss_function = options_.loss;
  if (!loss_function) {
    loss_function = nn::CrossEntropyLoss{.label_smoothing = args_.label_smoothing_factor};
  }
  if (!options_.num_items_in_batch) {
    options_.num_items_in_batch = [by = counts_of(loss_function).value_or(TargetCounts{})](
                                      const data::Batch& batch) { return labels_of(by, batch); };
  }
  items = [this](const data::Batch&) { return steps_->items; };
  if (options_.compute_loss) {
    forward = [this](nn::Module& net, const data::Batch& given) {
      LossAndOutput found = options_.compute_loss(net, given);
      steps_->computed = std::move(found.loss);
      return found.output;
    };
    loss_function = [this](const Tensor&, const Tensor&) { return steps_->computed; };
  }
}

Trainer::~Trainer() = default;

void Trainer::check_options() const {
  const bool own = options_.loss || options_.compute_loss;
  PEAL_CHECK(!(options_.loss && options_.compute_loss),
             "[trainer] loss and compute_loss: the loss is given once; leave one out");
  PEAL_CHECK(!(options_.forward && options_.compute_loss),
             "[trainer] forward and compute_loss: the latter calls the model; leave one out");
  PEAL_CHECK(!own || args_.label_smoothing_factor == 0,
             "[trainer] label_smoothing_factor is of the cross entropy that is the loss where none "
             "is given, and one is; smooth in it, or leave it out");
  PEAL_CHECK(!args_.gradient_checkpointing || options_.gradient_checkpointing_enable,
             "[trainer] gradient_checkpointing: the model has to do it; say how "
             "(.gradient_checkpointing_enable)");
  PEAL_CHECK(args_.eval_strategy == "no" || options_.eval_dataset, "[trainer] eval_strategy ",
             args_.eval_strategy, ": there is no data to evaluate with (.eval_dataset)");
  PEAL_CHECK(args_.eval_strategy == "no" || options_.eval_dataset->size() > 0,
             "[trainer] eval_strategy ", args_.eval_strategy,
             ": the data to evaluate with is empty (.eval_dataset)");
  check_settings();
  PEAL_CHECK(!args_.group_by_length || !options_.train_dataloader,
             "[trainer] group_by_length: the program's own loader (.train_dataloader) says what "
             "is in a batch; leave one out");
  if (!args_.group_by_length || !options_.train_dataset) return;
  PEAL_CHECK(std::ssize(options_.lengths) == options_.train_dataset->size(),
             "[trainer] group_by_length: expected the lengths of ", options_.train_dataset->size(),
             " samples (.lengths), got ", options_.lengths.size());
}

void Trainer::tell(const std::string& line) const {
  if (!job.is_main() || !options_.tell) return;
  try {  // rank 0 alone tells, and may fail alone
    options_.tell(line);
  } catch (...) {
    nn::rethrow_everywhere(job.group(), "a log could not be told", "trainer");
  }
}

void Trainer::log(std::vector<Value> values) {
  values.push_back({"epoch", state_.epoch});
  state_.log_history.push_back({state_.global_step, std::move(values)});
  tell(state_.log_history.back().in_text());
  try {  // as tell()
    if (args_.report_to != "none") report(state_.log_history.back());
  } catch (...) {
    nn::rethrow_everywhere(job.group(),
                           concat("a log could not be written (report_to ", args_.report_to,
                                  ") in ", args_.output_dir),
                           "trainer");
  }
  steps_->call(&TrainerCallback::on_log);
}

void Trainer::report(const TrainerLog& found) {
  if (!trackers_) {
    trackers_.emplace(std::vector<LogWith>{args_.report_to});
    trackers_->start(args_.output_dir, args_.run_name, {}, true, job.is_main());
  }
  trackers_->log(found.values, found.step);
}

void Trainer::banner(std::int64_t trainable) const {
  const std::int64_t batch = args_.per_device_train_batch_size;
  const std::int64_t steps = args_.gradient_accumulation_steps;
  tell("***** Running training *****");
  tell("  Num examples = " + with_commas(train_loader_->dataset().size()));
  tell("  Num Epochs = " + with_commas(state_.num_train_epochs));
  tell("  Instantaneous batch size per device = " + with_commas(batch));
  tell("  Total train batch size (w. parallel, distributed & accumulation) = " +
       with_commas(batch * steps * job.world()));
  tell(concat("  Gradient Accumulation steps = ", steps));
  tell("  Total optimization steps = " + with_commas(state_.max_steps));
  tell("  Number of trainable parameters = " + with_commas(trainable));
  if (state_.global_step == 0) return;
  tell("  Continuing training from checkpoint, will skip to saved global_step");
  tell(concat("  Continuing training from epoch ", epoch));
  tell(concat("  Continuing training from global step ", state_.global_step));
}

TrainOutput Trainer::train(const std::string& resume_from_checkpoint) {
  args_.resume_from_checkpoint = resume_from_checkpoint;
  return train();
}

void Trainer::add_callback(std::shared_ptr<TrainerCallback> callback) {
  PEAL_CHECK(callback && !prepared_optimizer(),
             "[trainer] add_callback: expected a callback, between trainings");
  options_.callbacks.push_back(std::move(callback));
}

TrainOutput Trainer::train() {
  comm::agree(job.group(), "[trainer] what trains",
              concat("resume_from_checkpoint '", args_.resume_from_checkpoint,
                     "', callbacks: ", options_.callbacks.size()),
              "give all ranks the same");
  const auto begun = Clock::now();
  train_loader_ = get_train_dataloader();
  state_ = {};
  judged_at_ = -1;
  steps_->losses = StepLosses(job);
  training_loader = train_loader_.get();
  const TrainingLength length =
      length_of_training(training_loader->size(), args_.gradient_accumulation_steps,
                         args_.num_train_epochs, args_.max_steps);
  updates_ = state_.max_steps = length.updates;
  state_.num_train_epochs = length.epochs;
  create_optimizer();
  create_scheduler();
  const std::int64_t trainable = trainable_parameters(plain_);
  // What an exception leaves.
  const std::shared_ptr<void> prepared(nullptr, [this](void*) {
    if (profiler_) profiler_->pause();
    steps_->termination.reset();
    steps_->bar.reset();
    abandon();
  });
  prepare();
  make_checkpoints();
  manual_seed(static_cast<std::uint64_t>(args_.seed) * 1000003 +
              static_cast<std::uint64_t>(job.rank()) + 1);
  const Start start = begin();
  const std::int64_t before = state_.global_step;
  const double epochs_before = state_.epoch;
  epoch = start.epoch;
  banner(trainable);
  if (args_.eval_on_start && before == 0) evaluate();
  if (before >= state_.max_steps) {
    tell(concat("all ", before, " steps are done; there is nothing left to train"));
  } else {
    const bool saves = args_.save_strategy != "no";
    if (saves) steps_->termination.emplace(job.group());
    steps_->bar.emplace("training", state_.max_steps, job.is_main() && !args_.disable_tqdm);
    run(state_.num_train_epochs, start);
    steps_->bar->finish("");
    if (steps_->terminated) save_checkpoint();
  }
  checkpoints_->wait();
  // The second call hears what the first has asked.
  auto& termination = steps_->termination;
  if (termination && (termination->asked() || termination->asked())) {
    throw Terminated(SIGTERM,
                     concat("[trainer] SIGTERM: ends after step ", state_.global_step, ", which ",
                            folder(), " has; go on from there by --resume_from_checkpoint true"));
  }
  termination.reset();
  if (auto* const ddp = prepared_model()->ddp()) ddp->sync_buffers();
  release();
  if (args_.load_best_model_at_end) load_best_model();
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  const auto updates = static_cast<double>(state_.global_step - before);
  const double samples =
      (state_.epoch - epochs_before) * static_cast<double>(train_loader_->dataset().size());
  TrainOutput output{.global_step = state_.global_step, .training_loss = steps_->losses.of_all()};
  output.metrics = {{"train_runtime", seconds},
                    {"train_samples_per_second", samples / seconds},
                    {"train_steps_per_second", updates / seconds},
                    {"train_loss", output.training_loss}};
  log(output.metrics);
  steps_->call(&TrainerCallback::on_train_end);
  return output;
}

void Trainer::save_model(const std::string& path) {
  const std::string to =
      path.empty() ? (std::filesystem::path(args_.output_dir) / "model.safetensors").string()
                   : path;
  const auto whole = whole_model();
  rank0_first(job.group(), [&] {
    if (!job.is_main()) return;
    if (const auto parent = std::filesystem::path(to).parent_path(); !parent.empty())
      std::filesystem::create_directories(parent);
    nn::save_model(to, plain_);
  });
}

}  // namespace peal::launch
