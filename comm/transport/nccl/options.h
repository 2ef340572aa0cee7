// SPDX-License-Identifier: Apache-2.0
// Options of NCCL's communicators, by the names of ncclConfig_t (and of PyTorch's
// ProcessGroupNCCL.Options.config). What is not given is NCCL's to choose, or its environment's
// (NCCL_CTA_POLICY, NCCL_MIN_CTAS, NCCL_MAX_CTAS), which goes before what a program says. The same
// on all ranks. Thread safety: a value.
#pragma once

#include <cstdint>
#include <optional>

namespace peal::comm {

// How many blocks (CTAs) of the device a collective takes from the kernels that compute beside it:
// as many as make it fast, as few as still reach nearly that, or, where only memory is moved
// between devices that can, none (their copy engines move it).
enum class CtaPolicy : std::uint8_t { standard, efficiency, zero };

struct NcclOptions {
  std::optional<CtaPolicy> cta_policy{};
  // Bounds of the blocks that a collective takes.
  std::optional<int> min_ctas{}, max_ctas{};
  // Memory for collectives (ProcessGroup::allocate, DDP's buckets) is a symmetric window where NCCL
  // has them (2.27 on, ranks joined by NVLink), else registered.
  bool symmetric_memory = true;
};

}  // namespace peal::comm
