// SPDX-License-Identifier: Apache-2.0
// The arguments of a training (transformers: TrainingArguments), a row each: type, name, default,
// what it may be (ArgumentCheck), help. The rows are the only place where one is written: fields,
// flags of command lines, keys of JSON, checks and help come of them (training_arguments.h). Names,
// defaults and meanings are those of transformers, where it has them.
#pragma once

// clang-format off
#define PEAL_TRAINING_ARGUMENTS(ROW)                                                                                  \
  ROW(std::string, output_dir, "trainer_output", any(), "folder of the checkpoints")                                  \
  ROW(bool, overwrite_output_dir, false, any(), "removes the checkpoints of another run that are there")              \
  ROW(bool, do_train, false, any(), "for the program: whether to train")                                              \
  ROW(bool, do_eval, false, any(), "for the program: whether to evaluate")                                            \
  ROW(bool, do_predict, false, any(), "for the program: whether to predict")                                          \
  ROW(std::string, eval_strategy, "no", words({"no", "steps", "epoch"}), "when to evaluate")                          \
  ROW(std::int64_t, per_device_train_batch_size, 8, at_least(1), "samples a rank and batch of training")              \
  ROW(std::int64_t, per_device_eval_batch_size, 8, at_least(1), "samples a rank and batch of evaluation")             \
  ROW(std::int64_t, gradient_accumulation_steps, 1, at_least(1), "batches for one update")                            \
  ROW(double, eval_delay, 0, at_least(0), "epochs or steps, by eval_strategy, before the first evaluation")           \
  ROW(double, learning_rate, 5e-5, at_least(0), "the rate that the schedule starts from, or warms up to")             \
  ROW(double, weight_decay, 0, at_least(0), "of all parameters but biases and norms")                                 \
  ROW(double, adam_beta1, 0.9, share(), "of AdamW")                                                                   \
  ROW(double, adam_beta2, 0.999, share(), "of AdamW")                                                                 \
  ROW(double, adam_epsilon, 1e-8, at_least(0), "of AdamW")                                                            \
  ROW(double, max_grad_norm, 1.0, at_least(0), "the norm that gradients are clipped to; 0: they are not")             \
  ROW(double, num_train_epochs, 3.0, above(0), "epochs of training; a part of one is a part of its updates")          \
  ROW(std::int64_t, max_steps, -1, any(), "updates in all, whatever num_train_epochs says; -1: it says")              \
  ROW(std::string, lr_scheduler_type, "linear",                                                                       \
      words({"linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup",            \
             "inverse_sqrt", "cosine_with_min_lr", "warmup_stable_decay"}), "how the rate goes on over the updates")  \
  ROW(std::string, lr_scheduler_kwargs, "", any(),                                                                    \
      "the schedule's own numbers, an object of JSON (get_scheduler.h)")                                              \
  ROW(double, warmup_ratio, 0, share(), "the part of all updates in which the rate rises from 0")                     \
  ROW(std::int64_t, warmup_steps, 0, at_least(0), "the same in updates; it counts where both are given")              \
  ROW(std::string, logging_strategy, "steps", words({"no", "steps", "epoch"}), "when to log")                         \
  ROW(bool, logging_first_step, false, any(), "logs the first update, too")                                           \
  ROW(double, logging_steps, 500, above(0), "updates between logs; below 1: a part of all")                           \
  ROW(std::string, save_strategy, "steps", words({"no", "steps", "epoch", "best"}),                                   \
      "when to save a checkpoint; best: after each evaluation that is the best so far")                               \
  ROW(double, save_steps, 500, above(0), "updates between checkpoints; below 1: a part of all")                       \
  ROW(std::optional<std::int64_t>, save_total_limit, {}, at_least(1),                                                 \
      "how many checkpoints stay, and the best beside them where that is kept; all without it")                       \
  ROW(std::string, device, "cpu", any(), "cpu, cuda or cuda:N")                                                       \
  ROW(std::int64_t, seed, 42, at_least(0), "of dropout, and of the order without data_seed")                          \
  ROW(std::optional<std::int64_t>, data_seed, {}, at_least(0), "of the order and augmentation of samples")            \
  ROW(bool, full_determinism, false, any(), "only operations that give the same bits at each run")                    \
  ROW(bool, bf16, false, any(), "models compute in bf16; parameters stay as they are")                                \
  ROW(bool, fp16, false, any(), "the same in f16, with a scale for gradients")                                        \
  ROW(bool, tf32, false, any(), "devices multiply f32 as TF32")                                                       \
  ROW(std::optional<double>, eval_steps, {}, above(0), "updates between evaluations; without it logging_steps")       \
  ROW(bool, eval_on_start, false, any(), "evaluates before the first update, too")                                    \
  ROW(std::int64_t, dataloader_num_workers, 0, at_least(0), "threads that make batches")                              \
  ROW(std::int64_t, dataloader_prefetch_factor, 2, at_least(1), "batches ahead, a worker")                            \
  ROW(bool, dataloader_drop_last, false, any(), "leaves out a last batch that is not full")                           \
  ROW(std::string, report_to, "none", words({"none", "csv", "jsonl", "all"}),                                         \
      "where each log goes as a line, too, behind those that are there (tracker.h): files of output_dir")             \
  ROW(std::string, run_name, "log", any(), "what these files are called")                                             \
  ROW(bool, profile, false, any(), "tells time, rates and memory by op, of rank 0's steps")                           \
  ROW(std::string, trace, "", any(), "file for rank 0's ops as a picture (ui.perfetto.dev)")                          \
  ROW(bool, disable_tqdm, false, any(), "no progress bar")                                                            \
  ROW(bool, load_best_model_at_end, false, any(), "the model is that of the best checkpoint, after the training")     \
  ROW(std::string, metric_for_best_model, "", any(), "what the best is judged by: loss, or a metric's name")          \
  ROW(std::optional<bool>, greater_is_better, {}, any(), "without it: false for what ends in loss")                   \
  ROW(std::string, strategy, "ddp", any(), "how ranks share the training (strategy.h)")                               \
  ROW(double, label_smoothing_factor, 0, share(), "of the cross entropy that is the loss where none is given")        \
  ROW(std::string, optim, "adamw_torch",                                                                              \
      words({"adamw_torch", "adamw_torch_fused", "sgd", "adafactor", "adagrad", "rmsprop", "lion_32bit",              \
             "schedule_free_adamw"}), "the optimizer; both names of AdamW are one")                                   \
  ROW(bool, group_by_length, false, any(), "batches of samples of like length")                                       \
  ROW(std::string, fsdp_transformer_layer_cls_to_wrap, "", any(),                                                     \
      "with strategy fsdp the classes of modules, with commas between, that are gathered one by one")                 \
  ROW(bool, fsdp_offload_params, false, any(), "with strategy fsdp pieces of a model on a device are on the host")    \
  ROW(bool, ddp_find_unused_parameters, false, any(), "parameters may get no gradient in a step")                     \
  ROW(std::optional<double>, ddp_bucket_cap_mb, {}, above(0), "MiB of a bucket of gradients")                         \
  ROW(bool, ddp_broadcast_buffers, true, any(), "buffers are rank 0's in each forward")                               \
  ROW(std::string, resume_from_checkpoint, "", any(),                                                                 \
      "a checkpoint (a file, or checkpoint-500 for step 500), a folder's newest, or true: output_dir's, if any")      \
  ROW(bool, gradient_checkpointing, false, any(), "the model computes forwards again instead of keeping them")
// clang-format on
