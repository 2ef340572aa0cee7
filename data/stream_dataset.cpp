// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/rows.h>
#include <peal/data/stream_dataset.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace peal::data {
namespace {

Tensor joined_tensors(const std::string& name, const std::vector<Tensor>& parts) {
  if (!parts[0].defined()) return {};
  const Tensor& first = parts[0];
  std::vector<std::int64_t> sizes(first.shape().begin(), first.shape().end());
  PEAL_CHECK(!sizes.empty(), "[data] stream: a sample's tensor '", name,
             "' has no dim for the batch; a sample is a batch of one, [1, ...]");
  sizes[0] = 0;
  for (const Tensor& part : parts) {
    bool alike = part.defined() && part.dtype() == first.dtype() && part.dim() == first.dim();
    for (int d = 1; alike && d < first.dim(); ++d) alike = part.size(d) == first.size(d);
    PEAL_CHECK(alike, "[data] stream: samples of one batch have a tensor '", name, "' ",
               first.dtype(), " ", first.shape(), " and ",
               part.defined() ? concat(part.dtype(), " ", part.shape()) : "none",
               "; let the set override collate(), to pad them, say");
    sizes[0] += part.size(0);
  }
  const Tensor all = Tensor::empty(Shape(sizes), first.dtype(), Device{});
  auto* at = static_cast<std::byte*>(all.view().data());
  for (const Tensor& part : parts) {
    const View view = part.view();
    if (view.bytes() > 0) std::memcpy(at, view.data(), view.bytes());
    at += view.bytes();
  }
  return all;
}

// Of a batch of one.
Tensor row_of(const Tensor& x) {
  if (!x.defined()) return x;
  const Tensor row = Tensor::empty(shape_of_row(x), x.dtype(), Device{});
  if (const std::size_t bytes = row.view().bytes(); bytes > 0) {
    std::memcpy(row.raw(), x.raw(), bytes);
  }
  return row;
}

}  // namespace

Batch joined(std::span<const Batch> samples) {
  PEAL_CHECK(!samples.empty(), "[data] stream: expected samples for a batch, got none");
  const auto each = [&](const std::string& name, const auto& tensor_of) {
    std::vector<Tensor> parts;
    for (const Batch& sample : samples) parts.push_back(tensor_of(sample));
    return joined_tensors(name, parts);
  };
  Batch all{each("x", [](const Batch& sample) { return sample.x; }),
            each("y", [](const Batch& sample) { return sample.y; })};
  for (const auto& [name, tensor] : samples[0].more) {
    all.more.emplace_back(
        name, each(name, [&, &name = name](const Batch& sample) { return sample[name]; }));
  }
  return all;
}

Batch joined(std::span<const Batch> samples, const Collate& together) {
  if (!together) return joined(samples);
  std::vector<Sample> rows;
  for (const Batch& each : samples) {
    Sample row{row_of(each.x), row_of(each.y)};
    for (const auto& [name, tensor] : each.more) row.more.emplace_back(name, row_of(tensor));
    rows.push_back(std::move(row));
  }
  return together(rows);
}

}  // namespace peal::data
