// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/checkpoint.h>

#include <charconv>

namespace peal::nn {
namespace {

constexpr std::string_view optimizer_prefix = "optimizer.", extra_prefix = "extra.";
constexpr std::string_view own_prefix = "peal.";
const std::string seed_key = "peal.generator.seed", offset_key = "peal.generator.offset";

struct Parts {
  NamedTensors model, optimizer, extra;
  Metadata metadata;
};

Parts read_parts(const std::filesystem::path& path) {
  Safetensors file = load_safetensors(path);
  Parts parts;
  parts.metadata = std::move(file.metadata);
  for (auto& [name, tensor] : file.tensors) {
    if (name.starts_with(optimizer_prefix)) {
      parts.optimizer.emplace_back(name.substr(optimizer_prefix.size()), std::move(tensor));
    } else if (name.starts_with(extra_prefix)) {
      parts.extra.emplace_back(name.substr(extra_prefix.size()), std::move(tensor));
    } else {
      parts.model.emplace_back(name, std::move(tensor));
    }
  }
  return parts;
}

// f(), with the file's name put before what goes wrong.
template <class F>
void naming(const std::filesystem::path& path, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    fail(concat("load ", path.string(), ": ", error.what()));
  }
}

std::uint64_t take_number(const std::filesystem::path& path, Metadata& metadata,
                          const std::string& key) {
  const auto node = metadata.extract(key);
  PEAL_CHECK(!node.empty(), "load ", path.string(), ": metadata '", key,
             "' is missing: this is a model, not a checkpoint; use load_model");
  const std::string& text = node.mapped();
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  PEAL_CHECK(error == std::errc() && end == text.data() + text.size(), "load ", path.string(),
             ": metadata '", key, "': expected a number, got '", text, "'");
  return number;
}

}  // namespace

void save_model(const std::filesystem::path& path, const Module& model, const Metadata& metadata) {
  save_safetensors(path, model.state_dict(), metadata);
}

void load_model(const std::filesystem::path& path, Module& model) {
  const Parts parts = read_parts(path);
  naming(path, [&] { model.load_state_dict(parts.model); });
}

void save_checkpoint(const std::filesystem::path& path, const Module& model,
                     const Optimizer& optimizer, const Metadata& metadata,
                     const NamedTensors& extra) {
  NamedTensors all = model.state_dict();
  for (const auto& [name, tensor] : all) {
    for (const std::string_view prefix : {optimizer_prefix, extra_prefix}) {
      PEAL_CHECK(!name.starts_with(prefix), "save ", path.string(), ": the model's key '", name,
                 "' starts with '", prefix, "', which is the checkpoint's own; rename it");
    }
  }
  for (auto& [name, tensor] : optimizer.state_dict()) {
    all.emplace_back(std::string(optimizer_prefix) + name, std::move(tensor));
  }
  for (const auto& [name, tensor] : extra) {
    all.emplace_back(std::string(extra_prefix) + name, tensor);
  }
  for (const auto& [name, text] : metadata) {
    PEAL_CHECK(!name.starts_with(own_prefix), "save ", path.string(), ": metadata '", name,
               "' starts with '", own_prefix, "', which is peal's own; rename it");
  }
  Metadata texts = metadata;
  texts[seed_key] = std::to_string(context().generator.seed);
  texts[offset_key] = std::to_string(context().generator.offset);
  save_safetensors(path, all, texts);
}

Checkpoint load_checkpoint(const std::filesystem::path& path, Module& model, Optimizer& optimizer) {
  Parts parts = read_parts(path);
  Checkpoint checkpoint;
  checkpoint.generator.seed = take_number(path, parts.metadata, seed_key);
  checkpoint.generator.offset = take_number(path, parts.metadata, offset_key);
  checkpoint.metadata = std::move(parts.metadata);
  checkpoint.extra = std::move(parts.extra);
  naming(path, [&] {
    model.load_state_dict(parts.model);
    optimizer.load_state_dict(parts.optimizer);
  });
  return checkpoint;
}

}  // namespace peal::nn
