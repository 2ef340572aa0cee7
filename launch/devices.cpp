// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/devices.h>

#include <fmt/format.h>

#include <map>

namespace peal::launch {

Device choose_device(const std::string& text, const Rank& rank, int devices) {
  Device device = parse_device(text);
  if (device.type == DeviceType::cpu) return device;
  PEAL_CHECK(
      devices > 0, "[launch] rank ", rank.rank, ": device ", text,
      " asked for, but no CUDA device is here: the build has no CUDA parts "
      "(-DPEAL_CUDA=ON), the machine no driver, or CUDA_VISIBLE_DEVICES shows none; use cpu");
  if (text == "cuda") device.index = rank.local_rank % devices;
  PEAL_CHECK(device.index < devices, "[launch] rank ", rank.rank, ": device ", text,
             " asked for, expected one of cuda:0 to cuda:", devices - 1);
  return device;
}

std::string device_report(Device device, const DeviceDescription& description, const Rank& rank) {
  if (device.type == DeviceType::cpu) return concat("rank ", rank.rank, " trains on the cpu");
  return fmt::format("rank {} trains on {}, {} ({}), {:.0f} GB", rank.rank, name_of(device),
                     description.name, description.uuid,
                     static_cast<double>(description.memory) / 1e9);
}

std::string sharing_warning(const std::vector<std::string>& uuids) {
  std::map<std::string, std::string> ranks;  // by device
  std::map<std::string, int> count;
  for (std::size_t r = 0; r < uuids.size(); ++r) {
    if (uuids[r].empty()) continue;
    std::string& names = ranks[uuids[r]];
    names += concat(names.empty() ? "" : ", ", r);
    ++count[uuids[r]];
  }
  std::string text;
  for (const auto& [uuid, names] : ranks) {
    if (count[uuid] > 1)
      text += concat(text.empty() ? "[launch] ranks " : "; ranks ", names, " share ", uuid);
  }
  if (!text.empty())
    text += ": they take turns on it, and NCCL refuses that; start a rank for each device";
  return text;
}

}  // namespace peal::launch
