// SPDX-License-Identifier: Apache-2.0
// Devices: which one a rank trains on, and whether two ranks have the same. Pure; Job::device()
// asks the machine and the other ranks. Thread safety: free functions without state.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/launch/rank.h>

#include <string>
#include <vector>

namespace peal::launch {

// What the user's word means on this rank of a node with `devices` CUDA devices: "cpu"; "cuda", the
// device of the rank's local number, over and over where there are more ranks than devices (a
// launcher that shows each rank one device alone gives it that); "cuda:N", that one. Error where
// there is no such device.
Device choose_device(const std::string& text, const Rank& rank, int devices);

// One line for the log: "rank 1 trains on cuda:1, NVIDIA H200 (GPU-8f9c...), 141 GB".
std::string device_report(Device device, const DeviceDescription& description, const Rank& rank);

// Empty, or a warning that names ranks which share a device; `uuids` by rank, empty on the CPU.
std::string sharing_warning(const std::vector<std::string>& uuids);

}  // namespace peal::launch
