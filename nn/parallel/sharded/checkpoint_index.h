// SPDX-License-Identifier: Apache-2.0
// Index of a sharded checkpoint, as a value (PyTorch: .metadata of torch.distributed.checkpoint):
// which tensors there are, and which elements of each lie in which file. As JSON:
//
//   {"format": "peal.sharded_checkpoint", "version": 1, "world": 2, "parts": ["model"],
//    "metadata": {"epoch": "3"},
//    "files": [{"name": "shard-1-rank-0-of-2.safetensors", "bytes": 1072, "checksum": "crc32:..."},
//              ...],
//    "tensors": {"model.fc1.weight": {"dtype": "F32", "shape": [3, 4],
//                                     "runs": [{"file": 0, "tensor": "model.fc1.weight",
//                                               "begin": 0, "end": 7}, ...]}, ...},
//    "checksum": "crc32:..."}
//
// A run is the elements [begin, end) of the flattened tensor, which are all that the file has under
// that name; together the runs of a tensor are all of its elements, each once. The checksum is of
// the text with 8 zeros in its place. Thread safety: pure functions and values.
#pragma once

#include <peal/autograd/core/safetensors_file.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace peal::nn {

struct CheckpointIndex {
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::string checksum;
  };
  struct Run {
    std::size_t file = 0;
    std::string tensor;
    std::int64_t begin = 0, end = 0;
  };
  struct Entry {
    SavedTensor tensor;
    std::vector<Run> runs;
  };
  int world = 1;
  std::vector<std::string> parts;
  Metadata metadata;
  std::vector<File> files;
  std::vector<Entry> tensors;
  std::string checksum = {};  // of what was read
};

std::string to_json(const CheckpointIndex& index);
// Error, which begins with `path`, for a text that is no index, or not one that is whole.
CheckpointIndex index_of_json(const std::string& text, const std::string& path);
// Those of all ranks as one. Error where two differ in a tensor.
CheckpointIndex merged(const std::vector<CheckpointIndex>& of_ranks);
// Error, which begins with `path`, that names a tensor of which elements are in no file, or in two.
// Runs are in order then.
void check_covered(CheckpointIndex& index, const std::string& path);
// Of a checkpoint, or a model, that is one safetensors file: each tensor is one run.
CheckpointIndex index_of_file(const std::filesystem::path& path);

}  // namespace peal::nn
