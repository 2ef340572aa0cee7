// SPDX-License-Identifier: Apache-2.0
// Groups of threads, each of which has a device whose queues are threads (queue_device.h), and
// whose collectives go over those (queue_transport.h): so ThreadSanitizer sees all of it.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/start/threads.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "queue_transport.h"

namespace peal::testing {

using Logs = std::vector<std::shared_ptr<QueueLog>>;
// Of as many ranks, each of which is late in its own way.
Logs logs_of(int world);

using OnRank = std::function<void(const comm::ProcessGroup&)>;
void over_queues(int world, const comm::ProcessGroup::Options& options, const OnRank& f,
                 const Logs& logs);
void over_queues(int world, const comm::ProcessGroup::Options& options, const OnRank& f);
// What it throws; "nothing" where it does not.
std::string failure(int world, const comm::ProcessGroup::Options& options, const OnRank& f,
                    const Logs& logs);

// On the context's device.
Tensor ones(std::int64_t count);

}  // namespace peal::testing
