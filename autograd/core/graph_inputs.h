// SPDX-License-Identifier: Apache-2.0
// GraphInputs: numbers of the host that a captured graph reads, each replay's its own. They are
// written into page-locked memory, from where a copy ahead of the replay takes them to the device;
// the host goes on at once, up to sixteen replays ahead. Thread safety: one thread.
#pragma once

#include <peal/autograd/core/stream.h>
#include <peal/autograd/core/tensor.h>

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

namespace peal {

class GraphInputs {
 public:
  static constexpr std::size_t chunk_bytes = 4096;

  explicit GraphInputs(Device device) : device_(device) {}
  // As Graph::input().
  Tensor add(const Shape& shape, DType dtype, std::function<void(void*)> write);
  // Writes all, and copies them on the current stream.
  void upload();
  void clear();

 private:
  static constexpr std::size_t ahead = 16;
  struct Chunk {
    Tensor here;   // [ahead, chunk_bytes], page-locked
    Tensor there;  // [chunk_bytes] on the device
    std::size_t used = 0;
  };
  struct Input {
    std::size_t chunk, at;
    std::function<void(void*)> write;
  };

  Device device_;
  std::vector<Chunk> chunks_;
  std::vector<Input> inputs_;
  std::array<Event, ahead> taken_;  // a slot's copy is done
  std::size_t uploads_ = 0;
};

}  // namespace peal
