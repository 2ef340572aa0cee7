// SPDX-License-Identifier: Apache-2.0
// The flight recorder's rows, in words, and as files where a rank has failed.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/record/flight_record.h>

#include <unistd.h>

#include <exception>
#include <string_view>

namespace peal::comm {
namespace {

// Of a rank of this node, which may be dead.
FlightRecord record_of(const GroupBody& group, int rank, std::string_view why) {
  const FlightRecorder& flight = group.lane->control().flight(rank);
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  FlightRecord record{.rank = rank,
                      .world = group.lane->control().world(),
                      .host = host,
                      .why = std::string(why),
                      .now = FlightRecorder::now(),
                      .begun = flight.size()};
  for (const FlightRow& row : flight.read()) {
    record.operations.push_back({.number = row.number,
                                 .group = row.group,
                                 .sequence = row.sequence,
                                 .signature = row.what.signature,
                                 .message = is_message(row),
                                 .state = std::string(name(row.state)),
                                 .begin = row.begin,
                                 .end = row.end,
                                 .text = describe(row)});
  }
  return record;
}

}  // namespace

std::string ProcessGroup::flight(std::size_t most) const {
  return text(record_of(body(), body().lane->control().rank(), ""), most);
}

void ProcessGroup::write_flight(const std::string& folder, const std::string& why) const {
  comm::write_flight(folder, record_of(body(), body().lane->control().rank(), why));
}

// The first of the node's ranks to come here writes for all of them: others may be dead or stopped.
void GroupBody::write_flight_of_failure() const noexcept {
  try {
    Control& control = lane->control();
    const auto why = control.poisoned();
    if (options.flight.empty() || !why || inherited() || !control.take_flight()) return;
    for (int each = 0; each < control.world(); ++each) {
      if (!control.has_flight(each)) continue;  // on another node
      const bool begun = each == control.rank() || control.flight(each).size() > 0;
      if (begun) comm::write_flight(options.flight, record_of(*this, each, *why));
    }
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

}  // namespace peal::comm
