// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks: programs of one step, on channels past every collective's number.
#include <peal/comm/group/group_body.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

MessageCall call_of(const P2POp& op) { return {op.direction, op.data, op.peer, op.tag}; }

void check_message(const GroupBody& group, const MessageCall& call) {
  const int rank = group.rank, world = group.world;
  if (call.peer == any_source && !call.sends()) {
    PEAL_CHECK(world > 1, "recv: from any source, but rank 0 is alone in its group");
    const std::size_t most = group.lane->transport().limits().most_from_any;
    PEAL_CHECK(call.data.bytes() <= most, "[comm] ", group.lane->who(), ", recv: expected at most ",
               most, " bytes from any source over ", group.lane->transport().name(), ", got ",
               call.data.bytes(), "; name the sender");
  } else {
    PEAL_CHECK(call.peer >= 0 && call.peer < world && call.peer != rank, "[comm] ",
               group.lane->who(), ", ", call.verb(),
               call.sends() ? ": expected another rank to send to, 0 to "
                            : ": expected another rank to receive from, 0 to ",
               world - 1, ", got ", call.peer, call.peer == rank ? ", which is this one" : "");
  }
  PEAL_CHECK(call.tag >= 0 && call.tag <= 0xffff, call.verb(), ": tags are 0 to 65535, got ",
             call.tag);
}

// REQUIRES: check_message() has let it pass.
Work message(GroupBody& group, const MessageCall& call) {
  Transport& transport = group.lane->transport();
  if (!group.captures(transport)) group.refuse_capture(describe(call), transport);
  // Past every number that a collective can have.
  const Channel channel{(std::uint64_t{1} << 63) | static_cast<std::uint64_t>(call.tag),
                        signature(call)};
  return group.submit(call, plan_of(call), transport, channel, "");
}

}  // namespace

Work ProcessGroup::send(const View& data, int to, int tag) const {
  const MessageCall call{Direction::send, data, to, tag};
  check_message(body(), call);
  return message(body(), call);
}

Work ProcessGroup::recv(const View& data, int from, int tag) const {
  const MessageCall call{Direction::recv, data, from, tag};
  check_message(body(), call);
  return message(body(), call);
}

// Rank 0 tells all that it is there, hears from all, and then lets them go. The words are messages,
// which take no number: ranks that are elsewhere among their calls are not disturbed.
void ProcessGroup::monitored_barrier(std::chrono::milliseconds timeout) const {
  GroupBody& group = body();
  if (group.world == 1) return;
  group.refuse_inherited();
  Transport& transport = group.lane->transport();
  if (!group.captures(transport)) group.refuse_capture("monitored_barrier", transport);
  // Past every tag of the user's, and of the clocks' (trace.cpp).
  constexpr Channel channel{(std::uint64_t{1} << 63) | (std::uint64_t{1} << 17), 0xBA22};
  const Tensor words = Tensor::zeros({3 * group.world}, DType::u8, Device{});
  const auto pass_word = [&](Direction direction, int peer, int number) {
    const MessageCall call{direction, words.view().part(3 * peer + number, 1), peer};
    return group.submit(call, plan_of(call), transport, channel, "");
  };
  timeout = std::max(timeout, std::chrono::milliseconds(0));
  const auto end = end_after(timeout);
  // Whether it is there in time; throws where it has failed.
  const auto comes = [&](const Work& word) {
    while (!word.test() && Operation::Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (!word.test()) return false;
    word.wait();
    return true;
  };
  const auto give_up = [&](const std::string& missing) {
    const std::string message =
        concat("[comm] ", group.lane->who(), ", monitored_barrier: ",
               missing.find(',') == missing.npos ? "this rank has" : "these ranks have",
               " not come within ", seconds(timeout), " s: ", missing);
    group.engine->abort(group.lane, message);
    fail(message);
  };
  if (group.rank != 0) {
    const Work here = pass_word(Direction::recv, 0, 0), go = pass_word(Direction::recv, 0, 1);
    const Work mine = pass_word(Direction::send, 0, 2);
    if (!comes(here)) give_up(concat(global_rank(0)));
    return Work::all({mine, go}).wait();  // rank 0 sees to their end
  }
  std::vector<Work> heard, said;
  for (int peer = 1; peer < group.world; ++peer) {
    said.push_back(pass_word(Direction::send, peer, 0));
    heard.push_back(pass_word(Direction::recv, peer, 2));
  }
  std::string missing;
  for (int peer = 1; peer < group.world; ++peer) {
    if (comes(heard[static_cast<std::size_t>(peer - 1)])) continue;
    missing += concat(missing.empty() ? "" : ", ", global_rank(peer));
  }
  if (!missing.empty()) give_up(missing);
  for (int peer = 1; peer < group.world; ++peer) {
    said.push_back(pass_word(Direction::send, peer, 1));
  }
  Work::all(std::move(said)).wait();
}

Work ProcessGroup::batch_isend_irecv(const std::vector<P2POp>& ops) const {
  for (const P2POp& op : ops) check_message(body(), call_of(op));
  std::vector<Work> works;
  works.reserve(ops.size());
  for (const P2POp& op : ops) works.push_back(message(body(), call_of(op)));
  return works.empty() ? Work(body().lane->serial()) : Work::all(std::move(works));
}

}  // namespace peal::comm
