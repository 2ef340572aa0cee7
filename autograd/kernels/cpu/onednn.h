// SPDX-License-Identifier: Apache-2.0
// What every use of oneDNN shares, and where its versions 2 and 3 differ. Thread safety: a stream
// is the calling thread's.
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

// Whether it compiles for `wanted` here.
inline bool onednn_uses(dnnl::cpu_isa wanted) {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
}

// The tensor's elements, laid out as `desc` says.
inline dnnl::memory onednn_memory(const dnnl::memory::desc& desc, const Tensor& tensor) {
  return dnnl::memory(desc, onednn_engine(), tensor.raw());
}

#if DNNL_VERSION_MAJOR >= 3

inline dnnl::memory::dims onednn_dims(const dnnl::memory::desc& desc) { return desc.get_dims(); }
inline dnnl::memory::data_type onednn_type(const dnnl::memory::desc& desc) {
  return desc.get_data_type();
}

// Primitive's own description of `what`, its constructor's arguments.
template <class Primitive, class... What>
auto onednn_describe(const dnnl::primitive_attr& attributes, const What&... what) {
  return typename Primitive::primitive_desc(onednn_engine(), what..., attributes);
}
// The same for a gradient, which follows from what its forward chose.
template <class Primitive, class Forward, class... What>
auto onednn_describe_backward(const dnnl::primitive_attr& attributes, const Forward& forward,
                              const What&... what) {
  return typename Primitive::primitive_desc(onednn_engine(), what..., forward, attributes);
}

#else

inline dnnl::memory::dims onednn_dims(const dnnl::memory::desc& desc) { return desc.dims(); }
inline dnnl::memory::data_type onednn_type(const dnnl::memory::desc& desc) {
  return desc.data_type();
}

template <class Primitive, class... What>
auto onednn_describe(const dnnl::primitive_attr& attributes, const What&... what) {
  return typename Primitive::primitive_desc(typename Primitive::desc(what...), attributes,
                                            onednn_engine());
}
template <class Primitive, class Forward, class... What>
auto onednn_describe_backward(const dnnl::primitive_attr& attributes, const Forward& forward,
                              const What&... what) {
  return typename Primitive::primitive_desc(typename Primitive::desc(what...), attributes,
                                            onednn_engine(), forward);
}

#endif

}  // namespace peal::cpu
