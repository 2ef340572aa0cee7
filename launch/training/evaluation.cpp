// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/training/evaluation.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/parallel/ddp.h>

#include <fmt/format.h>

namespace peal::launch {

std::vector<Value> evaluate(nn::Module& model, data::DataLoader& loader,
                            const comm::ProcessGroup& group,
                            const std::vector<NamedMetric>& metrics, const Forward& forward) {
  const NoGrad guard;
  // Forwards without synchronisation have left each rank buffers of its own.
  if (auto* const ddp = model.as<nn::DistributedDataParallel>()) ddp->sync_buffers();
  model.eval();
  model.reset();
  for (const NamedMetric& each : metrics) each.metric->reset();
  double samples = 0;
  for (const data::Batch& batch : loader) {
    samples += static_cast<double>(batch.size());
    const Tensor output = forward ? forward(batch) : model(batch.x);
    for (const NamedMetric& each : metrics) each.metric->update(output, batch.y);
  }
  const Tensor all = Tensor::scalar(samples);
  group.all_reduce(all).wait();
  PEAL_CHECK(all.item<double>() > 0, "[launch] evaluation: no rank has a sample to judge by");
  std::vector<Value> values;
  for (const NamedMetric& each : metrics) values.push_back({each.name, each.metric->value(group)});
  return values;
}

double accuracy(nn::Module& model, data::DataLoader& loader, const comm::ProcessGroup& group) {
  return evaluate(model, loader, group, {{"accuracy", std::make_shared<nn::Accuracy>()}})[0].value;
}

std::string in_words(const std::vector<Value>& values) {
  std::string words;
  for (const auto& [name, value] : values) {
    const bool share = name.find("accuracy") != std::string::npos;
    words += concat(words.empty() ? "" : ", ", name, " ");
    words += share ? fmt::format("{:.2f} %", value * 100) : fmt::format("{:.4f}", value);
  }
  return words;
}

}  // namespace peal::launch
