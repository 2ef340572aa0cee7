// SPDX-License-Identifier: Apache-2.0
// libFuzzer on the safetensors reader. Whatever the bytes: tensors whose elements are exactly the
// file's, or a peal::Error. The input is taken as a file, and also as a header alone, before which
// comes its right length and after which come as many bytes as the input's first one says: so
// mutations reach behind the checks of the length.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/safetensors.h>

#include <cstdlib>
#include <cstring>
#include <set>

namespace {

using Bytes = std::vector<std::uint8_t>;

void require(bool condition) {
  if (!condition) std::abort();
}

void read(std::span<const std::uint8_t> file) {
  peal::Safetensors parsed;
  try {
    parsed = peal::parse_safetensors(file, "F");
  } catch (const peal::Error&) {
    return;
  }
  std::uint64_t length = 0;
  require(file.size() >= 8);
  std::memcpy(&length, file.data(), 8);
  std::size_t elements = 0;
  std::set<std::string> names;
  for (const auto& [name, tensor] : parsed.tensors) {
    require(names.insert(name).second && tensor.defined());
    const std::size_t bytes = tensor.view().bytes();
    const Bytes copy(static_cast<const std::uint8_t*>(tensor.raw()),
                     static_cast<const std::uint8_t*>(tensor.raw()) + bytes);
    elements += copy.size();
  }
  require(elements == file.size() - 8 - length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read({data, size});
  if (size > 0) {
    const std::uint64_t length = size - 1;
    Bytes file(8 + size - 1 + data[0]);
    std::memcpy(file.data(), &length, 8);
    std::memcpy(file.data() + 8, data + 1, length);
    read(file);
  }
  return 0;
}
