// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/dispatcher.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {
namespace {

// What a batch is, as numbers: how many tensors, and of each its type, its sizes and its name. None
// is the end of the epoch.
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

NamedTensors tensors_of(const data::Batch& batch) {
  NamedTensors all{{"x", batch.x.detach().to(Device{})}};
  if (batch.y.defined()) all.emplace_back("y", batch.y.detach().to(Device{}));
  for (const auto& [name, tensor] : batch.more)
    all.emplace_back(name, tensor.detach().to(Device{}));
  return all;
}

data::Batch batch_of(const NamedTensors& tensors) {
  data::Batch batch;
  for (const auto& [name, tensor] : tensors) {
    if (name == "x") {
      batch.x = tensor;
    } else if (name == "y") {
      batch.y = tensor;
    } else {
      batch.more.emplace_back(name, tensor);
    }
  }
  return batch;
}

Tensor words_of(const std::vector<std::int64_t>& words) {
  return Tensor::from(words, {std::ssize(words)}, Device{});
}

void send(const comm::ProcessGroup& group, const NamedTensors& tensors, int to) {
  const Tensor text = words_of(described(tensors)), length = words_of({text.numel()});
  std::vector<comm::P2POp> messages{{comm::Direction::send, length, to},
                                    {comm::Direction::send, text, to}};
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() > 0) messages.push_back({comm::Direction::send, tensor, to});
  }
  group.batch_isend_irecv(messages).wait();
}

NamedTensors receive(const comm::ProcessGroup& group, int from) {
  const Tensor length = Tensor::zeros({1}, DType::i64, Device{});
  group.recv(length, from).wait();
  const Tensor text = Tensor::zeros({length.item<std::int64_t>()}, DType::i64, Device{});
  group.recv(text, from).wait();
  NamedTensors tensors = like(text.to_vector<std::int64_t>());
  std::vector<comm::P2POp> messages;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() > 0) messages.push_back({comm::Direction::recv, tensor, from});
  }
  if (!messages.empty()) group.batch_isend_irecv(messages).wait();
  return tensors;
}

}  // namespace

Dispatcher::Dispatcher(comm::ProcessGroup group, std::unique_ptr<data::DataLoader> reader)
    : group_(std::move(group)), reader_(std::move(reader)) {
  PEAL_CHECK((reader_ != nullptr) == (group_.rank() == 0), "[launch] dispatcher: rank ",
             group_.rank(), reader_ ? " has a reader" : " has no reader",
             "; rank 0 reads, and no other");
}

std::optional<data::Batch> Dispatcher::next() {
  if (!reader_) {
    const NamedTensors tensors = receive(group_, 0);
    return tensors.empty() ? std::nullopt : std::optional(batch_of(tensors));
  }
  std::optional<data::Batch> own = reader_->next();
  for (int to = 1; to < group_.world(); ++to) {
    if (!own) {
      send(group_, {}, to);
      continue;
    }
    const auto batch = reader_->next();
    PEAL_CHECK(batch, "[launch] dispatcher: the epoch ended after ", to, " of ", group_.world(),
               " ranks had a batch; plan it by data::dispatch_order()");
    send(group_, tensors_of(*batch), to);
  }
  return own ? std::optional(batch_of(tensors_of(*own))) : std::nullopt;
}

}  // namespace peal::launch
