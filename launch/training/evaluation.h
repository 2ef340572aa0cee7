// SPDX-License-Identifier: Apache-2.0
// Evaluation of a model by all ranks together: each judges its own part of the set, and the sums of
// metrics are added up, so the result is that of one rank over all of it.
//
//   auto found = launch::evaluate(net, loader, job.group(),
//                                 {{"accuracy", std::make_shared<nn::Accuracy>()}});
//   fmt::print("{}\n", launch::in_words(found));              // accuracy 88.91 %
//
// Thread safety: one thread.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/data/loader.h>
#include <peal/nn/metrics/metric.h>
#include <peal/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace peal::launch {

struct NamedMetric {
  std::string name;
  std::shared_ptr<nn::Metric> metric;
};

// What a metric came to.
struct Value {
  Value() = default;
  template <class T>
  requires std::is_arithmetic_v<T> Value(std::string of, T number)
      : name(std::move(of)), value(static_cast<double>(number)) {}
  bool operator==(const Value&) const = default;

  std::string name;
  double value = 0;
};

// What a model gives for a batch.
using Forward = std::function<Tensor(const data::Batch& batch)>;

// The metrics of what the model gives (model(x) by default) beside y, over all ranks' batches, in
// their order, before which it is reset(). Leaves the model in evaluation. Collective; exact where
// the loader's shard is. Error on all ranks where they have no sample together.
std::vector<Value> evaluate(nn::Module& model, data::DataLoader& loader,
                            const comm::ProcessGroup& group,
                            const std::vector<NamedMetric>& metrics, const Forward& forward = {});

// The share of the loader's samples whose class (y, i64 [B]) has the largest of the model's outputs
// [B, classes]. As above.
double accuracy(nn::Module& model, data::DataLoader& loader, const comm::ProcessGroup& group);

// "accuracy 88.91 %, rmse 0.1234": what is an accuracy is a percentage.
std::string in_words(const std::vector<Value>& values);

}  // namespace peal::launch
