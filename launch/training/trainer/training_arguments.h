// SPDX-License-Identifier: Apache-2.0
// TrainingArguments (transformers has them by this name): all that a user chooses about a training,
// as a value, as flags of a command line and as a file of JSON, which have the same names, defaults
// and checks: those of argument_table.h.
//
//   launch::TrainingArguments arguments{.learning_rate = 1e-3, .num_train_epochs = 1};
//
//   launch::CommandLine line("Trains a network.");
//   if (const auto status = launch::parse_arguments(line, arguments, argc, argv)) return *status;
//
//   train --learning_rate 1e-3 --per-device-train-batch-size 64 --bf16
//   train --arguments run.json --learning_rate 1e-3        what is typed counts, not the file
//
// A name that there is not is an error, which says the nearest. Thread safety: a value.
#pragma once

#include <peal/launch/command_line.h>
#include <peal/launch/training/trainer/argument_table.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace peal::launch {

struct TrainingArguments {
#define PEAL_FIELD(type, name, standard, check, help) type name = standard;
  PEAL_TRAINING_ARGUMENTS(PEAL_FIELD)
#undef PEAL_FIELD
  bool operator==(const TrainingArguments&) const = default;

  // Errors, which name the argument: a value that the table does not allow, and what contradicts:
  // bf16 with fp16, load_best_model_at_end where checkpoints and evaluations come at different
  // times, steps that are neither whole nor a part of all.
  void check() const;

  // Every argument, by name. Reading: those that are left out keep what they have. Errors: text
  // that is no JSON, a name that there is not (with the nearest), a value of another kind.
  std::string to_json() const;
  void read_json(const std::string& text);
  // The same as a file; an Error names it.
  void save_json(const std::string& path) const;
  void load_json(const std::string& path);

  // What eval_steps is where it is not given: steps, or below 1 a share of all of them.
  double evaluation_steps() const { return eval_steps.value_or(logging_steps); }
  // "eval_loss", or what else the best checkpoint is found by; empty where none is looked for.
  std::string best_metric() const;
  bool best_is_greatest() const;
  // Those of fsdp_transformer_layer_cls_to_wrap, one by one; check() says where one is empty.
  std::vector<std::string> fsdp_classes() const;
};

// A row of the table, for help and documentation.
struct ArgumentRow {
  std::string name, type, standard, allowed, help;
};
// In the table's order.
std::vector<ArgumentRow> argument_rows();

// Every argument is an option of the line: --learning_rate, or --learning-rate. A bool is true
// where its option stands alone.
void add_arguments(CommandLine& line, TrainingArguments& arguments);
// Adds them, and --arguments FILE, of which those are read first that are in it (as JSON); then the
// line. What neither says PEAL_DEVICE and PEAL_PRECISION do, which `peal launch` sets. As
// CommandLine::parse(); what check() finds is a mistake, too.
std::optional<int> parse_arguments(CommandLine& line, TrainingArguments& arguments, int argc,
                                   char** argv);

}  // namespace peal::launch
