// SPDX-License-Identifier: Apache-2.0
// What every use of oneDNN shares. Thread safety: a stream is the calling thread's.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <dnnl.hpp>

namespace peal::cpu {

inline const dnnl::engine& onednn_engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

inline dnnl::stream& onednn_stream() {
  thread_local dnnl::stream mine(onednn_engine());
  return mine;
}

// The tensor's elements, laid out as `desc` says.
inline dnnl::memory onednn_memory(const dnnl::memory::desc& desc, const Tensor& tensor) {
  return dnnl::memory(desc, onednn_engine(), tensor.raw());
}

}  // namespace peal::cpu
