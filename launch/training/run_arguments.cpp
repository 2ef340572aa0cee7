// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/run_arguments.h>
#include <peal/nn/checkpoint_folder.h>

#include <filesystem>
#include <system_error>

namespace peal::launch {

void add_training_options(CommandLine& line, RunArguments& arguments) {
  line.option("--epochs", &arguments.epochs, "how often the training set is gone through")
      .positive();
  line.option("--batch-size", &arguments.batch_size, "samples a rank and step").positive();
  line.option("--lr", &arguments.lr,
              "the optimizer's learning rate; without it a resumed run goes on with its own")
      .not_negative();
  line.option("--device", &arguments.device, "cpu, cuda or cuda:N").environment("PEAL_DEVICE");
  line.option("--precision", &arguments.precision,
              "what the model computes in: f32, bf16 or f16; its parameters stay f32")
      .one_of({"f32", "bf16", "f16"})
      .environment("PEAL_PRECISION");
  line.option("--save", &arguments.save,
              "checkpoint to write after each epoch, and at SIGTERM (safetensors): a file to "
              "replace, or a folder (run/) for the newest of them");
  line.option("--keep", &arguments.keep, "how many checkpoints stay in a folder").positive();
  line.option(
      "--keep-highest", &arguments.keep_highest,
      "a metric: the checkpoint after the epoch where it was highest stays, too (accuracy)");
  line.option("--keep-lowest", &arguments.keep_lowest,
              "a metric: the checkpoint after the epoch where it was lowest stays, too");
  line.option("--save-every", &arguments.save_every,
              "steps after which to write one within an epoch, too (0: none)")
      .not_negative();
  line.option("--resume", &arguments.resume,
              "checkpoint to go on from, or a folder: its newest that is whole; auto: that of the "
              "folder --save, and from the start where there is none");
  line.option("--evaluate", &arguments.evaluate,
              "data to judge the model of --resume by, instead of training");
  line.option("--seed", &arguments.seed, "of parameters, order and dropout");
  line.option("--json", &arguments.json, "file for the figures");
  line.flag("--profile", &arguments.profile, "print time, rates and memory by op, of rank 0");
  line.option("--trace", &arguments.trace, "file for rank 0's ops as a picture (ui.perfetto.dev)");
}

const std::string& checkpoint_to_evaluate(const RunArguments& arguments) {
  PEAL_CHECK(!arguments.resume.empty(), "[launch] --evaluate ", arguments.evaluate,
             " judges a model that there is: name its checkpoint by --resume");
  return arguments.resume;
}

void check_all_read(const std::string& path, int world) {
  std::error_code none;  // who reads it says what there is to say
  PEAL_CHECK(world == 1 || !std::filesystem::is_fifo(path, none), path,
             ": expected a file that each of the ", world,
             " ranks can read, got a pipe, of which each would get a part; write it to a file "
             "first");
}

Metadata settings_of(const RunArguments& arguments, int world, const Metadata& own) {
  Metadata all{{"seed", std::to_string(arguments.seed)},
               {"world", std::to_string(world)},
               {"batch_size", std::to_string(arguments.batch_size)},
               {"precision", arguments.precision}};
  for (const auto& [name, value] : own) {
    PEAL_CHECK(!name.starts_with("peal."), "[launch] the setting '", name,
               "' starts with 'peal.', which is peal's own; rename it");
    const bool taken =
        all.contains(name) || name == "epoch" || name == "epochs" || name == nn::measure_key;
    PEAL_CHECK(!taken, "[launch] the setting '", name,
               "' is one of each training's own (seed, world, batch_size, precision, epoch, "
               "epochs, measure); rename it");
  }
  all.insert(own.begin(), own.end());
  return all;
}

Autocast autocast(const RunArguments& arguments) {
  return Autocast(arguments.precision == "f16" ? DType::f16 : DType::bf16,
                  arguments.precision != "f32");
}

}  // namespace peal::launch
