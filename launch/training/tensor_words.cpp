// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/training/tensor_words.h>

#include <cstddef>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

namespace peal::launch {

std::vector<std::int64_t> described(const NamedTensors& tensors) {
  std::vector<std::int64_t> words{std::ssize(tensors)};
  for (const auto& [name, tensor] : tensors) {
    words.push_back(static_cast<std::int64_t>(tensor.dtype()));
    words.push_back(tensor.dim());
    for (const std::int64_t size : tensor.shape()) words.push_back(size);
    words.push_back(std::ssize(name));
    words.insert(words.end(), name.begin(), name.end());
  }
  return words;
}

NamedTensors like(const std::vector<std::int64_t>& words) {
  auto at = words.begin();
  NamedTensors tensors(static_cast<std::size_t>(*at++));
  for (auto& [name, tensor] : tensors) {
    const auto dtype = static_cast<DType>(*at++);
    Shape shape;
    for (std::int64_t dims = *at++; dims > 0; --dims) shape.push_back(*at++);
    for (std::int64_t length = *at++; length > 0; --length) {
      name.push_back(static_cast<char>(*at++));
    }
    tensor = Tensor::empty(shape, dtype, Device{});
  }
  return tensors;
}

NamedTensors broadcast_tensors(const comm::ProcessGroup& group, const NamedTensors& tensors,
                               int root) {
  const bool here = group.rank() == root;
  std::string text;
  for (const std::int64_t word : here ? described(tensors) : std::vector<std::int64_t>{}) {
    text += std::to_string(word) + ' ';
  }
  std::istringstream in(group.broadcast_object(text, root));
  const std::vector<std::int64_t> words{std::istream_iterator<std::int64_t>(in), {}};
  NamedTensors all = like(words);
  std::vector<View> views;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (here) all[i].second = tensors[i].second.detach().to(Device{});
    if (all[i].second.numel() > 0) views.push_back(all[i].second);
  }
  if (!views.empty()) group.broadcast_coalesced(views, root, "a state").wait();
  return all;
}

}  // namespace peal::launch
