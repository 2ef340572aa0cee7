// SPDX-License-Identifier: Apache-2.0
// A device for machines and sanitizers that have none: its memory is the CPU's, and each of its
// streams is a thread that does what was put into it, in order. So ThreadSanitizer sees every
// access of "the device", and what is ordered by nothing but luck is a race. Fresh memory is
// poisoned; released memory is given back when its streams have come to that point.
// Thread safety: any thread.
#pragma once

#include <peal/autograd/core/stream.h>

#include <functional>

namespace peal::testing {

// The tables of Device{cuda, 0..15}, wire kernels too. Before first use; again it does nothing.
void register_queue_device();

// What stands in a stream; it may wait for others' work, and for what `release` is told.
void put(const Stream& stream, std::function<void()> work);

// Whether the device says if an event is reached; who asks one that does not stands there.
void answer(Device device, bool answers);

}  // namespace peal::testing
