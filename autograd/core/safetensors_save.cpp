// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/core/safetensors_checksum.h>
#include <peal/autograd/core/safetensors_format.h>

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

namespace peal {
namespace {

using namespace safetensors_format;
using Json = nlohmann::ordered_json;

std::uint64_t bytes_of(const Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel()) * size_of(tensor.dtype());
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const Metadata& metadata) {
  const auto check = [&](bool condition, const std::string& name, std::string_view problem) {
    PEAL_CHECK(condition, "save ", path.string(), ": tensor '", name, "' ", problem);
  };
  std::vector<std::size_t> order(tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    check(tensors[i].second.defined(), tensors[i].first, "has no value");
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(tensors[a].second.dtype()) > size_of(tensors[b].second.dtype());
  });
  std::vector<std::uint64_t> begins(tensors.size());
  std::uint64_t at = 0;
  for (const std::size_t i : order) {
    begins[i] = at;
    at += bytes_of(tensors[i].second);
  }

  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  const bool wants_checksum = metadata.contains(std::string(checksum_key));
  if (wants_checksum) header["__metadata__"][std::string(checksum_key)] = checksum_text(no_digits);
  std::set<std::string_view> names{"__metadata__"};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    check(names.insert(name).second, name, "is there twice, or has the format's own name");
    const auto type = std::find_if(
        type_names.begin(), type_names.end(),
        [dtype = tensor.dtype()](const TypeName& known) { return known.dtype == dtype; });
    header[name] = {
        {"dtype", type->name},
        {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
        {"data_offsets", {begins[i], begins[i] + bytes_of(tensor)}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& error) {
    fail(concat("save ", path.string(), ": a name or metadata is not UTF-8: ", error.what()));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');

  AtomicFile file(path);
  RunningChecksum sum;
  const auto write = [&](const void* data, std::uint64_t bytes) {
    file.write(data, bytes);
    if (wants_checksum) sum.add(data, bytes);
  };
  const std::uint64_t length = text.size();
  write(&length, length_bytes);
  write(text.data(), text.size());
  for (const std::size_t i : order) {
    const Tensor here = tensors[i].second.detach().to(Device{});
    if (here.numel() > 0) write(here.raw(), bytes_of(here));
  }
  if (wants_checksum) {
    const std::string digits = sum.digits();
    file.overwrite(length_bytes + place_of_digits(text).value(), digits.data(), digits.size());
  }
  file.commit();
}

}  // namespace peal
