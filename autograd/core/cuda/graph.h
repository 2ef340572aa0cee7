// SPDX-License-Identifier: Apache-2.0
// Graphs on CUDA: the entries of StreamSpace that core/graph.h is made of. Thread safety: one
// thread captures; other threads may go on meanwhile.
#pragma once

#include <peal/autograd/core/device.h>

#include <memory>

namespace peal::cuda {

std::shared_ptr<void> create_graph(Device device);
void begin_capture(void* graph, void* stream);
void end_capture(void* graph, void* stream);
void abandon_capture(void* graph, void* stream);
void replay(void* graph, void* stream);

}  // namespace peal::cuda
