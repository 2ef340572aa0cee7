// SPDX-License-Identifier: Apache-2.0
// A program without a Job and without a backward: `lone_program save FOLDER` writes a model, each
// rank its own file; `lone_program load FOLDER` goes through a data set.
#include <peal/data/loader.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/layers/linear.h>

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

namespace {

struct One : peal::data::Dataset {
  std::int64_t size() const override { return 1; }
  peal::data::Batch get(std::span<const std::int64_t>) const override {
    return {peal::Tensor::zeros({1}), peal::Tensor::zeros({1})};
  }
};

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  const peal::nn::Linear model(1, 1);
  const std::filesystem::path file =
      std::filesystem::path(words[2]) / std::to_string(static_cast<long>(getpid()));
  if (std::string(words[1]) == "save") {
    peal::nn::save(file, {{"model", model}});
  } else {
    peal::data::DataLoader loader(std::make_shared<One>());
    loader.next();
  }
}
