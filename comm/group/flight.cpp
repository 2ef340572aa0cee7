// SPDX-License-Identifier: Apache-2.0
// The flight recorder's rows, in words, and as files where a rank has failed.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/record/flight_record.h>

#include <unistd.h>

#include <chrono>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>

namespace peal::comm {
namespace {

// Of a rank of this node, which may be dead.
FlightRecord record_of(const GroupBody& group, int rank, std::string_view why) {
  const FlightRecorder& flight = group.lane->control().flight(rank);
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  using std::chrono::system_clock;
  const auto written = std::chrono::nanoseconds(system_clock::now().time_since_epoch());
  FlightRecord record{.run = group.found.run,
                      .rank = rank,
                      .world = group.lane->control().world(),
                      .host = host,
                      .why = std::string(why),
                      .over = group.lane->control().is_poisoned(),
                      .now = FlightRecorder::now(),
                      .written = written.count(),
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
// It may die over it, or fail: then another does. So may it be slow, as the disk is, and the others
// would be no faster: one at a time goes on without the one before.
void GroupBody::write_flight_of_failure() const noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds patience{500};
  Control& control = lane->control();
  try {
    const auto why = control.poisoned();
    if (options.flight.empty() || !why || inherited()) return;
    int writer = Board::nobody;
    for (auto since = Clock::now(); !control.flight_written();) {
      const int now = control.flight_writer();
      if (std::exchange(writer, now) != now) since = Clock::now();
      const bool waited = now == Board::nobody || Clock::now() - since > patience;
      if (waited && control.take_flight(now)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (control.flight_written()) return;
    for (int each = 0; each < control.world(); ++each) {
      if (!control.has_flight(each)) continue;  // on another node
      const bool begun = each == control.rank() || control.flight(each).size() > 0;
      if (begun) comm::write_flight(options.flight, record_of(*this, each, *why));
    }
    control.end_flight(true);
  } catch (const std::exception& error) {
    control.end_flight(false);
    if (control.take_flight_word()) log_error(error.what());
  }
}

}  // namespace peal::comm
