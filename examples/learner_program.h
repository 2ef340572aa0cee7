// SPDX-License-Identifier: Apache-2.0
// What examples 17 to 19 share: a program that trains a Learner on --data and exports it, or asks
// one that was exported (--load) about --predict. Thread safety: a rank's thread.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/launch/command_line.h>
#include <peal/launch/job.h>

#include <functional>
#include <string>

namespace learner_program {

struct Options {
  std::string data, exported, loaded, asked, device = "cpu";
};

// `words`: what --data and --predict are, for --help; and what is missing where neither is named.
struct Words {
  const char *data, *asked, *missing;
};

using Work = std::function<void(peal::launch::Job&)>;

// The line has the program's own options.
inline int run(peal::launch::CommandLine& line, int argc, char** argv, Options& o,
               const Words& words, const Work& train, const Work& predict) {
  line.option("--data", &o.data, words.data);
  line.option("--export", &o.exported, "file for the model and what it is used by");
  line.option("--load", &o.loaded, "such a file, to judge --predict by");
  line.option("--predict", &o.asked, words.asked);
  line.option("--device", &o.device, "to train on: cpu, cuda or cuda:N");
  if (const auto status = line.parse(argc, argv)) return *status;
  return peal::launch::run_main([&](peal::launch::Job& job) {
    PEAL_CHECK(!o.data.empty() || (!o.loaded.empty() && !o.asked.empty()), words.missing);
    (o.loaded.empty() ? train : predict)(job);
  });
}

}  // namespace learner_program
