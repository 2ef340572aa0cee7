// SPDX-License-Identifier: Apache-2.0
// How a call becomes an operation, or is over at once.
#include <peal/comm/engine/branch.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/group/in_stream.h>
#include <peal/comm/reduce/reduce_op.h>
#include <peal/comm/schedule/mix.h>

#include <exception>
#include <utility>

namespace peal::comm {

// Ranks whose tensors go differently, one over a device's transport and another through the host,
// disagree, and never meet.
Channel GroupBody::next_channel(const CollectiveCall& call, Transport& transport,
                                std::uint64_t* window_turn) {
  refuse_inherited();
  transport.check_thread();  // before the number is taken, for ranks count alike
  const std::uint64_t on_device = transport.device().type == DeviceType::cpu ? 0 : 1;
  return engine->next_channel(*lane, signature(call) ^ on_device, window_turn);
}

void GroupBody::check_window(const Plan& plan, Transport& transport, std::string_view what) const {
  if (!plan.one_sided) return;
  const auto who = [&] { return concat("[comm] ", lane->who(), ", ", what, ": ", plan.name); };
  const Window* const window = lane->window();
  PEAL_CHECK(window != nullptr, who(), " needs memory that the ranks share");
  for (const int other : plan.sharers) {
    PEAL_CHECK(window->joins(other), who(), " needs memory in common with rank ", other,
               ", which is on another node");
  }
  PEAL_CHECK(transport.device().type == DeviceType::cpu, who(), " is for tensors on the CPU");
  PEAL_CHECK(Branch::current() == nullptr, who(),
             " cannot be started by then(): the group's shared memory serves operations in the "
             "order of the calls");
}

void GroupBody::check_overlap(const CollectiveCall& call) const {
  if (call.in.count == 0 || call.out.count == 0) return;
  const std::byte *const in = call.in.data(), *const out = call.out.data();
  if (in >= out + call.out.bytes() || out >= in + call.in.bytes()) return;
  const std::size_t size = size_of(call.dtype());
  std::ptrdiff_t wanted = 0;
  if (has_in_place(call.what)) {
    wanted = in_place_offset(problem_of(call)) * static_cast<std::ptrdiff_t>(size);
    if (in - out == wanted) return;
  }
  fail(concat("[comm] ", lane->who(), ", ", describe(call, sequence(), {}),
              ": in and out overlap; ",
              has_in_place(call.what)
                  ? concat("in place, in begins ", wanted / static_cast<std::ptrdiff_t>(size),
                           " elements after out, here ", in - out, " bytes after it")
                  : std::string("they must be apart")));
}

Work GroupBody::start(CollectiveCall call, const Label& label, std::string_view named) {
  call.purpose = label.tag;
  for (const char letter : named) mix(call.purpose, static_cast<unsigned char>(letter));
  if (call.reduces()) check_reduction(call.dtype(), call.op);
  PEAL_CHECK(call.root >= 0 && call.root < world, "[comm] ", lane->who(), ", ", name(call.what),
             ": expected a root among the ranks of the group, 0 to ", world - 1, ", got ",
             call.root);
  check_overlap(call);
  const bool nothing_to_do = world == 1 && call.in.data() == call.out.data() &&
                             call.gathered.empty() && call.op != ReduceOp::premul_sum;
  Transport& transport = route(call);
  if (!nothing_to_do && !captures(transport)) {
    refuse_capture(describe(call, sequence(), label.text), transport);
  }
  if (nothing_to_do) {
    next_channel(call, transport);
    engine->count(*lane, call);
    return {};
  }
  refuse_inherited();
  auto plan = choose(call, transport, named);
  if (plan && plan->one_sided) {
    check_window(*plan, transport, name(call.what));
    return start_in_window(std::move(call), std::move(plan), label.text, named.empty());
  }
  const Channel channel = next_channel(call, transport);
  return submit(std::move(call), std::move(plan), transport, channel, label.text);
}

Work GroupBody::all_reduce(const View& out, const View& in, ReduceOp op, const Label& label) {
  // Only what was begun like this before is known.
  Exchange exchange;
  const bool here = in.device().type == DeviceType::cpu && out.device().type == DeviceType::cpu;
  if (lane->window() != nullptr && in.count > 0 && here && may_be_immediate()) {
    const std::byte* const from = in.data();
    std::byte* const to = out.data();
    const std::size_t bytes = in.bytes();
    if (from == to || from >= to + bytes || to >= from + bytes) {
      exchange = engine->exchange_known(*lane, {in.dtype, op, in.count, label.tag}, from, to, bytes,
                                        label.text);
    }
  }
  if (exchange.state == Exchange::State::over) {
    out.storage->bump_version();
    return Work(lane->serial(), exchange.algorithm);
  }
  CollectiveCall call{
      .what = Collective::all_reduce, .in = in, .out = out, .op = op, .counts = {in.count}};
  if (exchange.state == Exchange::State::refused) return start(std::move(call), label);
  call.purpose = label.tag;
  return go_on(std::move(call), exchange, label.text);
}

// What only this rank knows may refuse it, for the others see no difference: all run one program.
bool GroupBody::may_be_immediate() const {
  return Branch::current() == nullptr && Graph::capturing() == nullptr && !inherited();
}

Work GroupBody::start_in_window(CollectiveCall call, std::shared_ptr<const Plan> plan,
                                std::string_view label, bool may_be_known) {
  Exchange exchange;
  if (may_be_immediate() && can_be_immediate(call, *plan)) {
    Immediate immediate(call, plan, world);
    exchange = engine->exchange(*lane, immediate, call.in.data(), call.out.data(), call.out.bytes(),
                                label);
    const bool all_reduce = call.what == Collective::all_reduce;
    if (all_reduce && may_be_known) engine->know(*lane, call, std::move(immediate));
  }
  if (exchange.state == Exchange::State::refused) {
    std::uint64_t turn = 0;
    const Channel channel = next_channel(call, lane->transport(), &turn);
    return submit(std::move(call), std::move(plan), lane->transport(), channel, label, turn);
  }
  if (exchange.state == Exchange::State::begun) return go_on(std::move(call), exchange, label);
  count_written(call.out.storage, call.writes_out(rank), call.what == Collective::broadcast);
  return Work(lane->serial(), exchange.algorithm);
}

// The others have heard of it.
Work GroupBody::go_on(CollectiveCall call, const Exchange& exchange, std::string_view label) {
  const Finished what = finished(call, exchange.channel.signature);
  try {
    return submit(std::move(call), exchange.whole, lane->transport(), exchange.channel, label,
                  exchange.window_turn, exchange);
  } catch (const std::exception& error) {
    lane->control().poison(concat("[comm] ", lane->who(), ", ",
                                  describe(what, exchange.channel.sequence), ": ", error.what()));
    throw;
  }
}

Work GroupBody::submit(Call call, std::shared_ptr<const Plan> plan, Transport& transport,
                       Channel channel, std::string_view label, std::uint64_t window_turn,
                       const Exchange& begun) {
  refuse_inherited();
  auto operation = std::make_shared<Operation>(lane, std::move(call), std::move(plan), transport,
                                               channel, options.segment, label);
  operation->window_turn = window_turn;
  operation->execution.go_on_from(begun);
  if (Graph* const graph = Graph::capturing()) {
    captured_by(*graph).add(operation);
  } else {
    const bool here =
        InStream::is_on() && Branch::current() == nullptr && operation->execution.stay();
    engine->submit(operation);
    if (here) engine->wait(*operation);
  }
  return Work(std::move(operation));
}

}  // namespace peal::comm
