// SPDX-License-Identifier: Apache-2.0
// BasicNet on digits by the Learner, fastai's way: a rate is searched, then there is one cycle.
//
//   peal-run -n 2 build/release/examples/15_learner
//
// The book (docs/book): chapter 7, data-parallel training.
#include <peal/data/loader.h>
#include <peal/data/synthetic_digits.h>
#include <peal/launch/job.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/loss.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/basic_net.h>

#include <cstdio>

using namespace peal;

int main() {
  return launch::run_main([](launch::Job& job) {
    data::DataLoader training(data::synthetic_digits(640, 1), {.batch_size = 32, .shuffle = true});
    data::DataLoader validation(data::synthetic_digits(200, 2), {.batch_size = 50});
    manual_seed(0);
    launch::Learner learner(job, {&training, &validation}, nn::BasicNet(),
                            {.loss = nn::NLLLoss{},
                             .metrics = {{"accuracy", std::make_shared<nn::Accuracy>()}},
                             .tell = [](const std::string& line) { std::puts(line.c_str()); }});
    learner.fit_one_cycle(2, learner.lr_find(1e-6, 1, 30).valley);
  });
}
