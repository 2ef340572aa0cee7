// SPDX-License-Identifier: Apache-2.0
#include "over_queues.h"

#include <memory>
#include <string>

#include "collective_values.h"
#include "failing_run.h"
#include "on_rank.h"
#include "queue_device.h"

namespace peal::testing {

Logs logs_of(int world) {
  Logs logs;
  for (int rank = 0; rank < world; ++rank) {
    logs.push_back(std::make_shared<QueueLog>());
    logs.back()->busy = rank;
  }
  return logs;
}

void over_queues(int world, const comm::ProcessGroup::Options& options, const OnRank& f,
                 const Logs& logs) {
  register_queue_device();
  const auto place = std::make_shared<MeetingPlace>(world);
  comm::run_ranks(world, options, [&](const comm::ProcessGroup& group) {
    const OnDevice here(group.rank());
    group.attach(std::make_unique<QueueTransport>(place, group.rank(), here.device,
                                                  logs[static_cast<std::size_t>(group.rank())]));
    f(group);
  });
}

void over_queues(int world, const comm::ProcessGroup::Options& options, const OnRank& f) {
  over_queues(world, options, f, logs_of(world));
}

std::string failure(int world, const comm::ProcessGroup::Options& options, const OnRank& f,
                    const Logs& logs) {
  return error_of([&] { over_queues(world, options, f, logs); });
}

Tensor ones(std::int64_t count) {
  return comm::testing::filled(count, DType::f32, [](std::int64_t) { return 1; });
}

}  // namespace peal::testing
