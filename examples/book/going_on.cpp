// SPDX-License-Identifier: Apache-2.0
// What a run goes on from, and what it would be without all of it.
// docs/book/13-when-things-fail.md
#include <fmt/core.h>
#include <peal/examples/book/book.h>
#include <peal/nn/nn.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <vector>

namespace book {
namespace {

using namespace peal;

// Steps of a small training with momentum; `after` sees each step that is done.
void train_small(nn::Module& model, nn::Optimizer& optimizer, int first, int last,
                 const std::function<void(int)>& after = {}) {
  for (int step = first; step < last; ++step) {
    manual_seed(static_cast<std::uint64_t>(step));
    optimizer.zero_grad();
    mean(square(model(randn({8, 4})))).backward();
    optimizer.step();
    if (after) after(step + 1);
  }
}

struct Run {
  nn::Sequential model = (manual_seed(9), nn::mlp({4, 8, 1}));
  nn::SGD optimizer{model.named_parameters(), {.lr = 0.05, .momentum = 0.9}};
  std::vector<nn::Part> parts{{"model", model}, {"optimizer", optimizer}};
};

bool same(nn::Module& a, nn::Module& b) {
  const NamedTensors x = a.state_dict(), y = b.state_dict();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!equal(x[i].second, y[i].second)) return false;
  }
  return true;
}

}  // namespace

void going_on() {
  namespace fs = std::filesystem;
  const fs::path path = "build/book-checkpoints";
  fs::remove_all(path);
  nn::CheckpointFolder folder(path, 2);

  Run stopped, through;
  train_small(stopped.model, stopped.optimizer, 0, 10, [&](int step) {
    if (step % 2 != 0) return;
    nn::save(folder.next(step), stopped.parts);
    folder.remove_old();
  });
  train_small(through.model, through.optimizer, 0, 16);
  for (const fs::path& file : folder.files()) fmt::print("{}\n", file.filename().string());

  const fs::path newest = folder.files().front();
  fs::resize_file(newest, fs::file_size(newest) / 2);
  fmt::print("the newest is cut to half of its bytes\n");
  std::fflush(stdout);
  const fs::path whole = folder.latest().value();
  fmt::print("going on from {}\n", whole.filename().string());
  Run again;
  nn::load(whole, again.parts);
  train_small(again.model, again.optimizer, 8, 16);
  fmt::print("after step 16: {} of the run that was never stopped\n",
             same(again.model, through.model) ? "the bits" : "not the bits");
  Run forgetful;  // the model alone
  nn::load(whole, {forgetful.parts[0]}, false);
  train_small(forgetful.model, forgetful.optimizer, 8, 16);
  fmt::print("without the optimizer's state: {}\n",
             same(forgetful.model, through.model) ? "the bits" : "not the bits");
  fs::remove_all(path);
}

}  // namespace book
