// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/training/arguments.h>

namespace peal::launch {

void add_training_options(CommandLine& line, TrainingArguments& arguments) {
  line.option("--epochs", &arguments.epochs, "how often the training set is gone through")
      .positive();
  line.option("--batch-size", &arguments.batch_size, "samples a rank and step").positive();
  line.option("--lr", &arguments.lr, "the optimizer's learning rate").not_negative();
  line.option("--device", &arguments.device, "cpu, cuda or cuda:N");
  line.option("--precision", &arguments.precision,
              "what the model computes in: f32, bf16 or f16; its parameters stay f32")
      .one_of({"f32", "bf16", "f16"});
  line.option("--save", &arguments.save, "checkpoint to write after each epoch (safetensors)");
  line.option("--resume", &arguments.resume, "checkpoint to go on from").existing_file();
  line.option("--seed", &arguments.seed, "of parameters, order and dropout");
  line.option("--json", &arguments.json, "file for the figures");
  line.flag("--profile", &arguments.profile, "print time, rates and memory by op, of rank 0");
  line.option("--trace", &arguments.trace, "file for rank 0's ops as a picture (ui.perfetto.dev)");
}

Autocast autocast(const TrainingArguments& arguments) {
  return Autocast(arguments.precision == "f16" ? DType::f16 : DType::bf16,
                  arguments.precision != "f32");
}

}  // namespace peal::launch
