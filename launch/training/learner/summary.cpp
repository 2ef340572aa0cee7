// SPDX-License-Identifier: Apache-2.0
// The model's layers as a table (fastai: Learner.summary).
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/training/learner/learner.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {
namespace {

struct LayerRow {
  std::string name, shape, parameters, trains;
};

std::string with_crosses(const Shape& shape) {
  std::string text;
  for (int d = 0; d < shape.dim(); ++d) text += (d > 0 ? " x " : "") + std::to_string(shape[d]);
  return text;
}

std::string with_commas(std::int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

// Without its namespaces.
std::string short_name(const nn::Module& module) {
  const std::string whole = module.class_name();
  const std::size_t colon = whole.rfind(':');
  return colon == std::string::npos ? whole : whole.substr(colon + 1);
}

// What a module has itself, not below it.
std::pair<std::int64_t, std::int64_t> own_numbers(const nn::Module& module) {
  std::int64_t all = 0, trained = 0;
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (name.find('.') != std::string::npos) continue;
    all += parameter.numel();
    if (parameter.requires_grad()) trained += parameter.numel();
  }
  return {all, trained};
}

std::string whether_trains(std::int64_t numbers, std::int64_t trained) {
  if (numbers == 0) return "-";
  return trained == numbers ? "yes" : trained == 0 ? "no" : "partly";
}

// Forward hooks that note a row for each layer that runs, as long as this lives.
class NotedLayers {
 public:
  explicit NotedLayers(const nn::Module& model) {
    for (const auto& [path, module] : model.named_modules()) {
      nn::Module layer = module;
      const auto [numbers, trained] = own_numbers(layer);
      if (numbers == 0 && !layer.named_children().empty()) continue;
      const std::string name = short_name(layer);
      const LayerRow row{path.empty() ? name : fmt::format("{} ({})", path, name), "",
                         with_commas(numbers), whether_trains(numbers, trained)};
      const auto id = layer.register_forward_hook(
          [this, row](nn::Module&, const Tensors&, const Tensors& outputs) {
            rows.push_back(row);
            if (!outputs.empty()) rows.back().shape = with_crosses(outputs[0].shape());
            return nn::Module::Replaced();
          });
      hooks_.emplace_back(layer, id);
    }
  }
  ~NotedLayers() {
    for (auto& [layer, id] : hooks_) layer.remove_hook(id);
  }
  NotedLayers(const NotedLayers&) = delete;
  NotedLayers& operator=(const NotedLayers&) = delete;

  std::vector<LayerRow> rows;

 private:
  std::vector<std::pair<nn::Module, std::uint64_t>> hooks_;
};

std::string table_of_layers(const std::string& title, const std::vector<LayerRow>& layers) {
  std::vector<LayerRow> rows{{"layer", "output", "parameters", "trains"}};
  rows.insert(rows.end(), layers.begin(), layers.end());
  std::size_t names = 0, shapes = 0;
  for (const LayerRow& row : rows) {
    names = std::max(names, row.name.size());
    shapes = std::max(shapes, row.shape.size());
  }
  const std::string rule = std::string(names + shapes + 24, '-') + '\n';
  std::string text = title + '\n';
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const LayerRow& row = rows[i];
    text += fmt::format("{:<{}}  {:<{}}  {:>12}  {}\n", row.name, names, row.shape, shapes,
                        row.parameters, row.trains);
    if (i == 0) text += rule;
  }
  return text + rule;
}

}  // namespace

std::string Learner::summary() {
  data::DataLoader* const loader = training_loader != nullptr ? training_loader : validation_loader;
  PEAL_CHECK(loader != nullptr, "[launch] learner: summary runs a batch; there is no loader");
  const std::int64_t samples =
      std::max<std::int64_t>(1, std::min(loader->options().batch_size, loader->dataset().size()));
  std::vector<std::int64_t> first(static_cast<std::size_t>(samples));
  std::iota(first.begin(), first.end(), 0);
  const data::Batch given = loader->dataset().get(first).to(device_of_model());

  const bool was_training = model.training();
  const std::shared_ptr<void> over(nullptr, [&](void*) { model.train(was_training); });
  NotedLayers layers(model);
  {
    const NoGrad guard;
    const Autocast precision(lowered().value_or(DType::bf16), lowered().has_value());
    model.eval();
    model.reset();
    if (forward) {
      forward(model, given);
    } else {
      model(given.x);
    }
  }
  std::int64_t all = 0, learns = 0;  // a tied one counts once
  for (const auto& [name, parameter] : model.named_parameters()) {
    all += parameter.numel();
    if (parameter.requires_grad()) learns += parameter.numel();
  }
  return table_of_layers(fmt::format("{} of {}", short_name(model), with_crosses(given.x.shape())),
                         layers.rows) +
         fmt::format("parameters: {}, of which {} learn and {} are frozen\n", with_commas(all),
                     with_commas(learns), with_commas(all - learns));
}

}  // namespace peal::launch
