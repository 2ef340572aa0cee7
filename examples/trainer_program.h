// SPDX-License-Identifier: Apache-2.0
// What examples 05 and 09 to 12 share: programs that train a model by the Trainer, or judge one.
// Thread safety: a rank's thread.
#pragma once

#include <peal/launch/training/trainer/trainer.h>

namespace trainer_program {

// What is best for a model that begins anew, where transformers' defaults are for such as were
// trained before; each program adds its own.
inline const peal::launch::TrainingArguments defaults{.do_train = true,
                                                      .eval_strategy = "epoch",
                                                      .max_grad_norm = 0,
                                                      .num_train_epochs = 1,
                                                      .logging_strategy = "epoch",
                                                      .save_strategy = "no",
                                                      .seed = 0};

// Or judges the model of --resume_from_checkpoint, with --do_train false.
inline void train_or_judge(peal::launch::Trainer& trainer) {
  if (trainer.args().do_train) {
    trainer.train();
    return;
  }
  trainer.load_model();
  trainer.evaluate();
}

}  // namespace trainer_program
