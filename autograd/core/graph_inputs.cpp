// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph_inputs.h>

#include <utility>

namespace peal {

Tensor GraphInputs::add(const Shape& shape, DType dtype, std::function<void(void*)> write) {
  constexpr std::size_t alignment = 16;
  const std::size_t element = size_of(dtype);
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * element;
  const std::size_t room = (bytes + alignment - 1) / alignment * alignment;
  PEAL_CHECK(room <= chunk_bytes, "CUDA graph: an input of ", bytes, " bytes; at most ",
             chunk_bytes);
  if (chunks_.empty() || chunks_.back().used + room > chunk_bytes) {
    constexpr auto size = static_cast<std::int64_t>(chunk_bytes);
    chunks_.push_back({Tensor::pinned({static_cast<std::int64_t>(ahead) * size}, DType::u8),
                       Tensor::empty({size}, DType::u8, device_)});
  }
  Chunk& chunk = chunks_.back();
  inputs_.push_back({chunks_.size() - 1, chunk.used, std::move(write)});
  chunk.used += room;
  auto body = std::make_shared<TensorBody>();
  body->storage = chunk.there.storage();
  body->at = static_cast<std::int64_t>(inputs_.back().at / element);
  body->shape = shape;
  body->dtype = dtype;
  return Tensor(std::move(body));
}

void GraphInputs::upload() {
  if (inputs_.empty()) return;
  const std::size_t slot = uploads_++ % ahead;
  taken_[slot].synchronize();
  const auto host = [&](const Chunk& chunk) {
    return chunk.here.storage()->data() + slot * chunk_bytes;
  };
  for (const Input& input : inputs_) input.write(host(chunks_[input.chunk]) + input.at);
  for (const Chunk& chunk : chunks_) {
    memory_space(device_).copy(chunk.there.storage()->data(), device_, host(chunk), Device{},
                               chunk.used, false);
  }
  taken_[slot].record(current_stream(device_));
}

void GraphInputs::clear() {
  inputs_.clear();
  chunks_.clear();
}

}  // namespace peal
