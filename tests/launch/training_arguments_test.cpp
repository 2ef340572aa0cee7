// SPDX-License-Identifier: Apache-2.0
// TrainingArguments as fields, flags and JSON, and how many updates they come to at which rates.
#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/training/trainer/get_scheduler.h>
#include <peal/launch/training/trainer/training_arguments.h>
#include <peal/launch/training/trainer/updates.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace peal;
using launch::TrainingArguments;
using testing::Folder;

namespace {

// Reads the words; the status, or -1 where the program would go on.
int read(TrainingArguments& arguments, std::vector<std::string> words, bool plain = false) {
  launch::CommandLine line("Trains.");
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const int count = static_cast<int>(argv.size());
  if (!plain) return launch::parse_arguments(line, arguments, count, argv.data()).value_or(-1);
  launch::add_arguments(line, arguments);
  return line.parse(count, argv.data()).value_or(-1);
}

std::string fault_of(const TrainingArguments& arguments) {
  return testing::error_of([&] { arguments.check(); });
}

}  // namespace

TEST_CASE("defaults are transformers'") {
  const TrainingArguments a;
  CHECK(a.per_device_train_batch_size == 8);
  CHECK(a.learning_rate == 5e-5);
  CHECK(a.num_train_epochs == 3);
  CHECK(a.max_grad_norm == 1);
  CHECK(a.logging_steps == 500);
  CHECK(a.save_steps == 500);
  CHECK(a.seed == 42);
  CHECK(std::tuple{a.adam_beta1, a.adam_beta2, a.adam_epsilon, a.weight_decay} ==
        std::tuple{0.9, 0.999, 1e-8, 0.0});
  CHECK(fault_of(a) == "nothing");
}

TEST_CASE("every argument is a field, a flag and a key, once each") {
  std::set<std::string> names;
  for (const launch::ArgumentRow& row : launch::argument_rows()) {
    CAPTURE(row.name);
    CHECK(names.insert(row.name).second);
    CHECK(!row.help.empty());
    // Another value than the default, as JSON and as words.
    std::string json, word;
    if (row.type == "true or false") {
      word = json = row.standard == "true" ? "false" : "true";
    } else if (row.type == "text") {
      const bool listed = row.allowed.starts_with("one of ");
      word = listed ? row.allowed.substr(row.allowed.rfind(' ') + 1) : "cpu:0";
      json = "\"" + word + "\"";
    } else {
      word = json = row.allowed.starts_with("0 to 1") ? "1" : "7";
    }
    TrainingArguments typed, keyed;
    CHECK(read(typed, {"--" + row.name, word}, true) == -1);
    keyed.read_json("{\"" + row.name + "\": " + json + "}");
    CHECK(keyed != TrainingArguments());
    CHECK(typed == keyed);
    TrainingArguments again;
    again.read_json(keyed.to_json());
    CHECK(again == keyed);
  }
  CHECK(names.contains("resume_from_checkpoint"));
}

// After a change of the table that was meant: PEAL_UPDATE=1 build/.../launch_training_arguments.
TEST_CASE("the page of the arguments is the table") {
  std::string page =
      "# TrainingArguments\n\n"
      "What a training by the `Trainer` ([trainer.h](../launch/training/trainer/trainer.h)) lets "
      "its user choose. "
      "Each is a field of\n`launch::TrainingArguments`, a flag of the command line "
      "(`--learning_rate 1e-3`, "
      "`--learning-rate=1e-3`) and a key of the\nfile of JSON that `--arguments` names. This page "
      "is made from "
      "[the table](../launch/training/trainer/argument_table.h).\n\n"
      "| argument | | default | may be |\n|---|---|---|---|\n";
  for (const launch::ArgumentRow& row : launch::argument_rows()) {
    page += "| `" + row.name + "` | " + row.help + " | `" + row.standard + "` | " +
            (row.allowed.empty() ? row.type : row.allowed) + " |\n";
  }
  if (std::getenv("PEAL_UPDATE") != nullptr) std::ofstream(PEAL_ARGUMENTS_PAGE) << page;
  CHECK(testing::content_of(PEAL_ARGUMENTS_PAGE) == page);
}

TEST_CASE("dashes are as good as underscores, and a bool may stand alone") {
  TrainingArguments a;
  CHECK(read(a, {"--learning-rate", "1e-3", "--max_steps=7", "--bf16", "--data_seed", "3",
                 "--greater-is-better", "--ddp_broadcast_buffers", "false"}) == -1);
  CHECK(a.learning_rate == 1e-3);
  CHECK(a.max_steps == 7);
  CHECK(a.bf16);
  CHECK(a.data_seed == 3);
  CHECK(a.greater_is_better == true);
  CHECK(!a.ddp_broadcast_buffers);
}

TEST_CASE("a file of arguments comes before what is typed") {
  const Folder folder;
  const std::string path = folder.path / "run.json";
  TrainingArguments written;
  written.learning_rate = 0.5;
  written.seed = 7;
  written.eval_steps = 20;
  written.save_json(path);
  TrainingArguments a;
  CHECK(read(a, {"--seed", "8", "--arguments", path}) == -1);
  CHECK(a.learning_rate == 0.5);
  CHECK(a.seed == 8);
  CHECK(a.eval_steps == 20.0);
  CHECK(read(a, {"--arguments", folder.path / "none.json"}) == 2);
  std::ofstream(path) << R"({"learning_rat": 1})";
  CHECK(testing::error_of([&] { a.load_json(path); }) ==
        path + ": [trainer] there is no argument 'learning_rat'; did you mean 'learning_rate'?");
}

TEST_CASE("what there is not, or cannot be, is an error that says what there is") {
  TrainingArguments a;
  CHECK(read(a, {"--learning_rat", "1"}) > 0);
  CHECK(read(a, {"--seed", "x"}) > 0);
  CHECK(read(a, {"--bf16", "--fp16"}) == 2);
  const auto key = [&](const std::string& json) {
    return testing::error_of([&] { a.read_json(json); });
  };
  CHECK(key("{\"warmup\": 1}").find("there is no argument 'warmup'") != std::string::npos);
  CHECK(key("{\"seed\": 1.5}") == "seed: expected a whole number, got 1.5");
  CHECK(key("{\"bf16\": 1}") == "bf16: expected true or false, got 1");
  CHECK(key("[]").find("an object of JSON") != std::string::npos);
  CHECK(fault_of({.eval_strategy = "step"}) ==
        "[trainer] eval_strategy: expected one of no, steps, epoch, got 'step'; did you mean "
        "'steps'?");
  CHECK(fault_of({.learning_rate = -1}) == "[trainer] learning_rate: expected 0 or more, got -1");
  CHECK(fault_of({.max_steps = 0}).find("max_steps") != std::string::npos);
  CHECK(fault_of({.logging_steps = 2.5}).find("whole number of updates") != std::string::npos);
  CHECK(fault_of({.bf16 = true, .fp16 = true}).find("choose one") != std::string::npos);
  CHECK(fault_of({.eval_strategy = "epoch", .load_best_model_at_end = true})
            .find("got epoch and steps") != std::string::npos);
  CHECK(fault_of({.load_best_model_at_end = true}).find("nothing is evaluated") !=
        std::string::npos);
  CHECK(fault_of({.eval_strategy = "steps",
                  .save_steps = 30,
                  .eval_steps = 20,
                  .load_best_model_at_end = true})
            .find("a multiple of eval_steps (20)") != std::string::npos);
  CHECK(fault_of({.eval_strategy = "steps",
                  .save_steps = 40,
                  .eval_steps = 20,
                  .load_best_model_at_end = true}) == "nothing");
  testing::check_has(fault_of({.save_strategy = "best"}), "nothing is evaluated");
  CHECK(fault_of(
            {.eval_strategy = "epoch", .save_strategy = "best", .load_best_model_at_end = true}) ==
        "nothing");
}

TEST_CASE("the best is the least of a loss, and the greatest of others, unless it is said") {
  TrainingArguments a;
  CHECK(a.best_metric().empty());
  a.load_best_model_at_end = true;
  CHECK(a.best_metric() == "eval_loss");
  CHECK(!a.best_is_greatest());
  a.metric_for_best_model = "accuracy";
  CHECK(a.best_metric() == "eval_accuracy");
  CHECK(a.best_is_greatest());
  a.greater_is_better = false;
  CHECK(!a.best_is_greatest());
}

TEST_CASE("updates of an epoch and of all: batches, accumulated, epochs") {
  const auto of = [](std::int64_t batches, std::int64_t accumulated, double epochs,
                     std::int64_t max_steps = -1) {
    const auto length = launch::length_of_training(batches, accumulated, epochs, max_steps);
    return std::tuple{length.updates_an_epoch, length.updates, length.epochs};
  };
  CHECK(of(10, 4, 1.5) == std::tuple{3, 5, 2});
  CHECK(of(5, 2, 1) == std::tuple{3, 3, 1});
  CHECK(of(7, 1, 0.5) == std::tuple{7, 4, 1});
  CHECK(of(100, 8, 3) == std::tuple{13, 39, 3});
  CHECK(of(3, 8, 2) == std::tuple{1, 2, 2});
  CHECK(of(10, 4, 1, 7) == std::tuple{3, 7, 3});
  CHECK_THROWS_AS(of(0, 1, 1), Error);
}

TEST_CASE("rates of the schedules") {
  const auto rate = [](const char* type, std::int64_t warm_up, std::int64_t all, std::int64_t done,
                       double lr = 5e-5) {
    return lr * launch::schedule_of(type, warm_up, all, lr)(done);
  };
  CHECK(rate("linear", 0, 938, 0) == 5e-5);
  CHECK(rate("linear", 0, 938, 500) == doctest::Approx(2.33475e-5).epsilon(1e-5));
  CHECK(rate("linear", 0, 938, 938) == 0);
  CHECK(rate("linear", 10, 110, 5, 1) == 0.5);
  CHECK(rate("linear", 10, 110, 10, 1) == 1);
  CHECK(rate("linear", 10, 110, 60, 1) == 0.5);
  CHECK(rate("constant", 10, 110, 5, 1) == 1);
  CHECK(rate("constant_with_warmup", 10, 110, 5, 1) == 0.5);
  CHECK(rate("constant_with_warmup", 10, 110, 105, 1) == 1);
  CHECK(rate("cosine", 10, 110, 60, 1) == doctest::Approx(0.5));
  CHECK(rate("cosine", 0, 100, 100, 1) == doctest::Approx(0));
  CHECK(rate("cosine_with_restarts", 0, 100, 25, 1) == doctest::Approx(0.853553391));
  CHECK(rate("cosine_with_restarts", 0, 100, 100, 1) == 0);
  CHECK(rate("polynomial", 0, 100, 50, 1e-3) == doctest::Approx((1e-3 + 1e-7) / 2));
  CHECK(rate("polynomial", 0, 100, 100, 1e-3) == doctest::Approx(1e-7));
  CHECK(rate("inverse_sqrt", 100, 1000, 400, 1) == doctest::Approx(0.5));
  nn::Linear net(1, 1);
  nn::SGD sgd(net.named_parameters(), {.lr = 0.5});
  nn::LambdaLR schedule = launch::get_linear_schedule_with_warmup(sgd, 10, 110);
  CHECK(sgd.lr() == 0);
  for (const auto& [done, wanted] : {std::pair{5, 0.25}, {10, 0.5}, {60, 0.25}, {120, 0.0}}) {
    schedule.set_steps(done);
    CHECK(sgd.lr() == doctest::Approx(wanted));
  }
  nn::LambdaLR cosine = launch::get_cosine_schedule_with_warmup(sgd, 10, 110);
  for (const auto& [done, wanted] : {std::pair{5, 0.25}, {10, 0.5}, {60, 0.25}, {110, 0.0}}) {
    cosine.set_steps(done);
    CHECK(sgd.lr() == doctest::Approx(wanted));
  }
  testing::check_has(testing::error_of([&] { launch::get_scheduler("linaer", sgd, 0, 9); }),
                     "'linaer'");
  CHECK(launch::with_commas(1199882) == "1,199,882");
  CHECK(launch::with_commas(60) == "60");
  CHECK(launch::number_text(1) == "1.0");
  CHECK(launch::number_text(2.33475e-5) == "2.33475e-05");
}

// Formulas of transformers' optimization.py.
TEST_CASE("schedules have numbers of their own") {
  const auto rate = [](const char* type, std::int64_t done, const char* numbers,
                       std::int64_t warm_up = 0, double lr = 1) {
    return lr * launch::schedule_of(type, warm_up, 100, lr, numbers)(done);
  };
  CHECK(rate("cosine", 50, R"({"num_cycles": 1})") == doctest::Approx(0));
  CHECK(rate("cosine", 100, R"({"num_cycles": 1})") == doctest::Approx(1));
  CHECK(rate("cosine_with_restarts", 25, R"({"num_cycles": 2})") == doctest::Approx(0.5));
  CHECK(rate("cosine_with_restarts", 50, R"({"num_cycles": 2})") == doctest::Approx(1));
  CHECK(rate("polynomial", 50, R"({"power": 2, "lr_end": 0})") == doctest::Approx(0.25));
  CHECK(rate("polynomial", 100, R"({"lr_end": 0.1})") == doctest::Approx(0.1));
  CHECK(rate("inverse_sqrt", 300, R"({"timescale": 100})") == doctest::Approx(0.5));
  CHECK(rate("cosine_with_min_lr", 50, R"({"min_lr_rate": 0.1})") == doctest::Approx(0.55));
  CHECK(rate("cosine_with_min_lr", 100, R"({"min_lr": 1e-5})", 0, 1e-4) == doctest::Approx(1e-5));
  CHECK(rate("cosine_with_min_lr", 5, R"({"min_lr_rate": 0.1})", 10) == 0.5);
  const char* const decay = R"({"num_decay_steps": 20})";
  for (const auto& [done, wanted] :
       {std::pair{5, 0.5}, {10, 1.0}, {80, 1.0}, {85, 0.853553391}, {90, 0.5}, {100, 0.0}}) {
    CHECK(rate("warmup_stable_decay", done, decay, 10) == doctest::Approx(wanted));
  }
  const char* const above = R"({"num_decay_steps": 20, "min_lr_ratio": 0.1})";
  for (const auto& [done, wanted] : {std::pair{0, 0.1}, {5, 0.55}, {90, 0.55}, {101, 0.1}}) {
    CHECK(rate("warmup_stable_decay", done, above, 10) == doctest::Approx(wanted));
  }
  nn::Linear net(1, 1);
  nn::SGD sgd(net.named_parameters(), {.lr = 0.5});
  nn::LambdaLR schedule = launch::get_scheduler("cosine", sgd, 0, 100, R"({"num_cycles": 1})");
  schedule.set_steps(100);
  CHECK(sgd.lr() == doctest::Approx(0.5));

  const auto refused = [](const char* type, const std::string& numbers) {
    return fault_of({.lr_scheduler_type = type, .lr_scheduler_kwargs = numbers});
  };
  CHECK(refused("cosine", R"({"num_cycle": 1})") ==
        "[trainer] lr_scheduler_kwargs: cosine has no number 'num_cycle'; did you mean "
        "'num_cycles'? (it has num_cycles)");
  testing::check_has(refused("linear", R"({"power": 1})"), "linear has no number 'power'");
  testing::check_has(refused("cosine", "num_cycles=1"), "an object of JSON");
  testing::check_has(refused("cosine", R"({"num_cycles": "1"})"), "expected a number, got \"1\"");
  testing::check_has(refused("cosine_with_min_lr", ""), "got neither");
  testing::check_has(refused("cosine_with_min_lr", R"({"min_lr": 0, "min_lr_rate": 0})"),
                     "got both");
  testing::check_has(refused("cosine_with_min_lr", R"({"min_lr_rate": 2})"), "expected 0 to 1");
  testing::check_has(refused("warmup_stable_decay", ""), "expected num_decay_steps");
  CHECK(refused("warmup_stable_decay", decay) == "nothing");
  TrainingArguments a;  // as transformers' files have it
  a.read_json(R"({"lr_scheduler_kwargs": {"num_cycles": 2}})");
  CHECK(a.lr_scheduler_kwargs == R"({"num_cycles":2})");
  CHECK(read(a, {"--lr_scheduler_type", "cosine", "--lr_scheduler_kwargs", decay}) == 2);
}

TEST_CASE("units of fsdp are named by their classes, and of no other strategy") {
  TrainingArguments a{.strategy = "fsdp",
                      .fsdp_transformer_layer_cls_to_wrap = "GptBlock, Embedding"};
  CHECK(a.fsdp_classes() == std::vector<std::string>{"GptBlock", "Embedding"});
  CHECK(fault_of(a) == "nothing");
  a.fsdp_transformer_layer_cls_to_wrap = "GptBlock,,Embedding";
  testing::check_has(fault_of(a), "with commas between, got 'GptBlock,,Embedding'");
  testing::check_has(fault_of({.fsdp_transformer_layer_cls_to_wrap = "GptBlock"}),
                     "the strategy is 'ddp', which cuts no model into units");
  testing::check_has(fault_of({.fsdp_offload_params = true}), "[trainer] fsdp_offload_params");
}
