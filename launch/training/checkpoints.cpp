// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/log.h>
#include <peal/launch/training/checkpoints.h>

#include <charconv>
#include <utility>

namespace peal::launch {

Checkpoints::Checkpoints(Job& job, std::vector<nn::Part> parts, Metadata settings)
    : job_(job), parts_(std::move(parts)), settings_(std::move(settings)) {}

void Checkpoints::try_to_save(const std::string& path) const {
  if (job_.is_main()) AtomicFile probe(path);
}

void Checkpoints::save(const std::string& path, int next_epoch) const {
  if (job_.is_main()) {
    Metadata metadata = settings_;
    metadata["epoch"] = std::to_string(next_epoch);
    nn::save(path, parts_, metadata);
  }
  job_.group().barrier().wait();
}

int Checkpoints::resume(const std::string& path, int epochs) const {
  const Metadata metadata = nn::load(path, parts_).metadata;
  const auto saved = [&](const std::string& name) {
    const auto found = metadata.find(name);
    PEAL_CHECK(found != metadata.end(), path, ": it does not say its ", name,
               "; is it a checkpoint of this program?");
    return found->second;
  };
  for (const auto& [name, here] : settings_) {
    PEAL_CHECK(saved(name) == here, path, ": it was saved with ", name, " ", saved(name),
               ", and this run has ", here, "; go on with the same");
  }
  const std::string text = saved("epoch");
  int epoch = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), epoch);
  PEAL_CHECK(problem == std::errc{} && end == text.data() + text.size() && epoch >= 0, path,
             ": its epoch is '", text, "', which is no such number; the file is damaged");
  PEAL_CHECK(epoch < epochs, path, ": its run has ", epoch,
             " epochs behind it; ask for more with --epochs (now ", epochs,
             ", counted from the start)");
  if (job_.is_main()) log_info("going on after epoch ", epoch, " of ", path);
  return epoch;
}

}  // namespace peal::launch
