// SPDX-License-Identifier: Apache-2.0
// safetensors file, read in parts: its header at once, and of its tensors those elements that are
// asked for (Python's safetensors: safe_open, get_slice). For checkpoints of which each rank needs
// a part (nn/parallel/sharded/sharded_checkpoint.h); whole ones: safetensors.h.
//
//   const SafetensorsFile file("shard.safetensors");
//   const Tensor some = Tensor::empty({100}, DType::f32, Device{});
//   file.check();                      // its checksum: reads all bytes once, in little memory
//   file.read("fc1.weight", 50, some);  // elements 50 to 149
//
// The file stays open, so that one that takes its name later is not read. Errors are those of
// load_safetensors. Thread safety: one thread.
#pragma once

#include <peal/autograd/core/safetensors.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace peal {

// What a file says of a tensor.
struct SavedTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::vector<SavedTensor>& tensors() const { return tensors_; }  // in the header's order
  const Metadata& metadata() const;
  // As the file says it, compared with nothing; empty where it has none.
  std::string checksum() const;
  std::uint64_t bytes() const;
  // Error where the bytes are others than those that its checksum was made of.
  void check() const;
  // Fills a tensor on the CPU, of the type that is saved, with elements from `begin` on.
  void read(std::string_view name, std::int64_t begin, const Tensor& into) const;

 private:
  struct Body;
  std::shared_ptr<Body> body_;
  std::vector<SavedTensor> tensors_;
};

}  // namespace peal
