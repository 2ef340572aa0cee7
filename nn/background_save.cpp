// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/log.h>
#include <peal/nn/background_save.h>

#include <utility>

namespace peal::nn {

BackgroundSave::~BackgroundSave() {
  if (mark_.inherited()) {  // its thread is the parent's, and a wait for it would not end
    static_cast<void>(new std::future<void>(std::move(written_)));
    return;
  }
  try {
    wait();
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

void BackgroundSave::save(std::filesystem::path path, Snapshot snapshot,
                          std::function<void()> then) {
  wait();
  written_ = std::async(std::launch::async,
                        with_context([path = std::move(path), snapshot = std::move(snapshot),
                                      then = std::move(then)] {
                          save_snapshot(path, snapshot);
                          if (then) then();
                        }));
}

void BackgroundSave::wait() {
  if (written_.valid()) written_.get();
}

}  // namespace peal::nn
