// SPDX-License-Identifier: Apache-2.0
// Saving in the background (PyTorch: torch.distributed.checkpoint.async_save): the step waits for a
// copy of the state in memory, and a thread writes that while the training goes on.
//
//   nn::BackgroundSave saving;
//   saving.save(path, nn::snapshot({{"model", model}, {"optimizer", optimizer}}));
//   ...                // steps, which change nothing of what is written
//   saving.wait();     // Error here, or in the next save(), where it could not be written
//
// Invariant: one save at a time, so at most one copy beside the state. What is under way is
// finished before the program ends. Thread safety: one thread; not collective.
#pragma once

#include <peal/autograd/core/fork.h>
#include <peal/nn/checkpoint.h>

#include <filesystem>
#include <functional>
#include <future>

namespace peal::nn {

class BackgroundSave {
 public:
  BackgroundSave() = default;
  // Waits; an error that nobody was told goes to the log. In a child by fork() there is nothing to
  // wait for.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Waits for the save before it, and throws what went wrong there; then nothing is begun. `then`
  // runs on the thread when the file is there, whole.
  void save(std::filesystem::path path, Snapshot snapshot, std::function<void()> then = {});
  // Until the file is there. Throws what went wrong, once.
  void wait();

 private:
  std::future<void> written_;  // not valid: nothing is under way
  ForkMark mark_;
};

}  // namespace peal::nn
