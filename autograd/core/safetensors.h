// SPDX-License-Identifier: Apache-2.0
// safetensors: named tensors in one file that PyTorch, JAX and NumPy read too. The format
// (https://huggingface.co/docs/safetensors, "Format"): the header's length as 8 little-endian
// bytes, a JSON header {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...,
// "__metadata__": {text: text}}, then the elements, row-major and without gaps; offsets count from
// the end of the header.
//
// A file is data from outside: everything in it is checked before it is believed, and an error
// names the file, the tensor, what was expected and what came. Thread safety: free functions
// without state; two writers of one path leave one of the two files whole.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal {

// Tensors by name, in an order that means something (registration, or the file's header).
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

struct Safetensors {
  NamedTensors tensors;  // on the CPU, in the header's order
  Metadata metadata;
  // "crc32:..." of what was read (safetensors_checksum.h); empty where the file has none. Two
  // copies of one whole file have the same.
  std::string checksum = {};
};

// A file that is there, and that the system does not let this process read, now at least (rights,
// too many open files, a disk that does not answer): nothing is said about what it holds.
class UnreadableFile : public Error {
 public:
  using Error::Error;
};

// Replaces `path` whole or not at all (atomic_file.h). Tensors may be on any device. The header is
// padded so that elements start at a multiple of 8 bytes, and wider types come first, so that each
// tensor is aligned to its type. Error for a name twice, an undefined tensor, a name
// "__metadata__".
void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const Metadata& metadata = {});

// Reads f32, f64, f16, bf16, i32, i64, u8, i8 and bool; another type is an error that names it.
// UnreadableFile.
Safetensors load_safetensors(const std::filesystem::path& path);

// The same from memory; `name` stands for the file in errors.
Safetensors parse_safetensors(std::span<const std::uint8_t> content, std::string_view name);

}  // namespace peal
