// SPDX-License-Identifier: Apache-2.0
// Models in several files with an index: what is in which, that they come back with the memory of
// one tensor, and what is refused before anything is written.
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/model_shards.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <string>
#include <vector>

using namespace peal;
using testing::Folder;

namespace {

nn::Sequential three(std::uint64_t seed, std::int64_t wide = 4) {
  manual_seed(seed);
  return nn::Sequential(nn::Linear(wide, wide), nn::Linear(wide, wide), nn::Linear(wide, wide));
}

std::vector<std::vector<float>> values(const nn::Module& model) {
  std::vector<std::vector<float>> all;
  for (const auto& [name, tensor] : model.state_dict()) {
    all.push_back(cast(tensor, DType::f32).to_vector<float>());
  }
  return all;
}

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

std::string failure(const std::filesystem::path& from, bool strict = true) {
  nn::Sequential net = three(2);
  const auto before = values(net);
  const std::string words =
      testing::error_of([&] { nn::load_checkpoint_in_model(net, from, strict); });
  CHECK(values(net) == before);
  return words;
}

}  // namespace

TEST_CASE("a model is in files of a bounded size, with an index, and comes back") {
  const Folder folder;
  const nn::Sequential net = three(1);  // weights of 64 bytes, biases of 16
  nn::save_model_shards(folder.path, net, {.max_shard_size = 100});
  CHECK(folder.entries() == 4);
  const auto index = read_json(folder.path / "model.safetensors.index.json");
  CHECK(index.at("metadata").at("total_size") == 240);
  CHECK(index.at("weight_map").at("0.weight") == "model-00001-of-00003.safetensors");
  CHECK(index.at("weight_map").at("2.bias") == "model-00003-of-00003.safetensors");
  for (const auto& from : {folder.path, folder.path / "model.safetensors.index.json"}) {
    nn::Sequential other = three(2);
    CHECK(values(other) != values(net));
    CHECK(nn::load_checkpoint_in_model(other, from).missing_keys.empty());
    CHECK(values(other) == values(net));
  }
  nn::Sequential low = three(2);
  low.to(DType::bf16);
  nn::load_checkpoint_in_model(low, folder.path);
  CHECK(low.state_dict()[0].second.dtype() == DType::bf16);
  // A tensor above the bound has a file of its own; of earlier files none is left.
  nn::save_model_shards(folder.path, net, {.max_shard_size = 40});
  CHECK(folder.entries() == 7);
  nn::save_model_shards(folder.path, net);
  CHECK(folder.entries() == 1);
  nn::Sequential other = three(2), third = three(3);
  nn::load_checkpoint_in_model(other, folder.path);
  nn::load_model(folder.path / "model.safetensors", third);
  CHECK(values(other) == values(net));
  CHECK(values(third) == values(net));
}

TEST_CASE("loading takes the memory of the largest tensor") {
  const Folder folder;
  constexpr std::int64_t wide = 512;  // a weight is 1 MiB
  nn::save_model_shards(folder.path, three(1, wide), {.max_shard_size = 3 << 20});
  nn::Sequential net = three(2, wide);
  const std::size_t before = cpu_allocator_statistics().in_use;
  cpu_reset_peak();
  nn::load_checkpoint_in_model(net, folder.path);
  CHECK(cpu_allocator_statistics().peak - before <= (1 << 20) + (64 << 10));
}

TEST_CASE("what does not fit, or is of two savings, is refused before anything is written") {
  const Folder folder;
  nn::save_model_shards(folder.path, three(1), {.max_shard_size = 100});
  const auto index = folder.path / "model.safetensors.index.json";
  const auto json = read_json(index);
  const auto with = [&](const std::string& tensor, const std::string& file) {
    auto changed = json;
    changed["weight_map"][tensor] = file;
    std::ofstream(index) << changed;
    return failure(folder.path);
  };
  CHECK(with("0.weight", "../x.safetensors").find("expected a file of the same folder") !=
        std::string::npos);
  CHECK(with("0.weight", "none.safetensors").find("none.safetensors") != std::string::npos);
  CHECK(with("0.weight", "model-00002-of-00003.safetensors").find("of two savings") !=
        std::string::npos);
  CHECK(with("more", "model-00002-of-00003.safetensors").find("of two savings") !=
        std::string::npos);
  std::ofstream(index) << "{}";
  CHECK(failure(folder.path).find("expected an index with a weight_map") != std::string::npos);
  std::filesystem::remove(index);
  CHECK(failure(folder.path).find("may have been cut short") != std::string::npos);
  CHECK(failure(folder.path / "none").find("no such file or folder") != std::string::npos);

  nn::save_model_shards(folder.path, three(1, 5), {.max_shard_size = 100});
  const std::string shapes = failure(folder.path);
  CHECK(shapes.find("6 differences") != std::string::npos);
  CHECK(shapes.find("wrong shape: 0.weight: expected [4, 4], got [5, 5]") != std::string::npos);

  nn::save_model_shards(folder.path, nn::Sequential(nn::Linear(4, 4), nn::Linear(4, 4)));
  CHECK(failure(folder.path).find("missing: 2.weight") != std::string::npos);
  nn::Sequential net = three(2);
  const auto passed_over = nn::load_checkpoint_in_model(net, folder.path, false);
  CHECK(passed_over.missing_keys == std::vector<std::string>{"2.weight", "2.bias"});

  // One byte of the second file is another than it was.
  nn::save_model_shards(folder.path, three(1), {.max_shard_size = 100});
  std::fstream file(folder.path / "model-00002-of-00003.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x55');
  file.close();
  CHECK(failure(folder.path).find("model-00002-of-00003") != std::string::npos);
}
