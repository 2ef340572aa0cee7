// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/mpi/mpi.h>
#include <peal/comm/transport/mpi/native.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

namespace peal::comm {
namespace {

void check_mpi(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(concat("[mpi] ", what, ": ", std::string_view(text, static_cast<std::size_t>(length))));
}

// For what mpi_has_native() admits. What MPI does not know is moved, never reduced, as unsigned.
MPI_Datatype native_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
    case DType::u8:
    case DType::boolean:
      return MPI_UINT8_T;
    case DType::f16:
    case DType::bf16:
      return MPI_UINT16_T;
    case DType::i8:
      return MPI_INT8_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op native_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      return MPI_SUM;
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::band:
      return MPI_BAND;
    case ReduceOp::bor:
      return MPI_BOR;
    case ReduceOp::bxor:
      return MPI_BXOR;
  }
  return MPI_OP_NULL;
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm communicator, std::size_t piece)
    : communicator_(communicator), piece_(piece), owner_(std::this_thread::get_id()) {
  check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(communicator_, &world_), "MPI_Comm_size");
  void* limit = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(communicator_, MPI_TAG_UB, &limit, &found), "MPI_Comm_get_attr");
  if (found) tag_limit_ = *static_cast<int*>(limit);
  int level = 0;
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  any_thread_ = level >= MPI_THREAD_SERIALIZED;
}

std::unique_ptr<MpiTransport> MpiTransport::duplicate(MPI_Comm communicator, std::size_t piece) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(communicator, &copy), "MPI_Comm_dup");
  return std::make_unique<MpiTransport>(copy, piece);
}

std::unique_ptr<Transport> MpiTransport::subset(const std::vector<int>& ranks, std::uint64_t id) {
  check_thread();
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(communicator_, &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some),
            "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(communicator_, some, static_cast<int>(id % 32768), &communicator),
            "MPI_Comm_create_group");
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  return std::make_unique<MpiTransport>(communicator, piece_);
}

MpiTransport::~MpiTransport() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized && !abandoned_) MPI_Comm_free(&communicator_);
}

void MpiTransport::check_thread() const {
  PEAL_CHECK(any_thread_ || std::this_thread::get_id() == owner_, "[mpi] rank ", rank_,
             ": MPI was initialised for one thread, and this is another; call "
             "collectives from the thread that made the group, or MPI_Init_thread with "
             "MPI_THREAD_SERIALIZED");
}

// 16 bits of the number and the rest of the signature, where tags have 31 bits, as they have in
// Open MPI.
int MpiTransport::tag_of(Channel channel) const {
  const auto limit = static_cast<std::uint64_t>(tag_limit_);
  return static_cast<int>(((channel.signature << 16) | (channel.sequence & 0xffff)) % limit);
}

Ticket MpiTransport::take_slot() {
  if (free_slots_.empty()) {
    slots_.emplace_back();
    return slots_.size() - 1;
  }
  const Ticket ticket = free_slots_.back();
  free_slots_.pop_back();
  return ticket;
}

void MpiTransport::give_back(Ticket ticket) {
  Posted& posted = at(ticket);
  posted.requests.clear();
  posted.parts.clear();
  posted.counts.clear();
  posted.offsets.clear();
  posted.input = {};
  free_slots_.push_back(ticket);
}

Ticket MpiTransport::post(Channel channel, std::span<const Message> round) {
  check_thread();
  const int tag = tag_of(channel);
  const Ticket ticket = take_slot();
  Posted& posted = at(ticket);
  for (const Message& message : round) {
    const int peer = message.peer == any_source ? MPI_ANY_SOURCE : message.peer;
    std::size_t at = 0, bytes = 0;
    do {  // until one that is not whole
      bytes = std::min(piece_, message.bytes - at);
      const int count = static_cast<int>(bytes);
      MPI_Request request = MPI_REQUEST_NULL;
      if (message.direction == Direction::send) {
        check_mpi(MPI_Isend(message.data + at, count, MPI_BYTE, message.peer, tag, communicator_,
                            &request),
                  "MPI_Isend");
      } else {
        check_mpi(MPI_Irecv(message.data + at, count, MPI_BYTE, peer, tag, communicator_, &request),
                  "MPI_Irecv");
      }
      posted.requests.push_back(request);
      posted.parts.push_back({message, at, bytes});
      at += bytes;
    } while (bytes == piece_);
  }
  return ticket;
}

void MpiTransport::check_arrival(const Posted& posted, int index, const MPI_Status& status) const {
  const auto& [message, at, bytes] = posted.parts[static_cast<std::size_t>(index)];
  int code = status.MPI_ERROR;
  int kind = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &kind);
  const int from = message.peer == any_source ? status.MPI_SOURCE : message.peer;
  PEAL_CHECK(kind != MPI_ERR_TRUNCATE, "expected ", message.bytes, " bytes from rank ", from,
             ", got more");
  check_mpi(code, message.direction == Direction::send ? "send" : "receive");
  if (message.direction == Direction::send) return;
  int got = 0;
  MPI_Get_count(&status, MPI_BYTE, &got);
  const auto arrived = static_cast<std::size_t>(got);
  PEAL_CHECK(arrived == bytes, "expected ", message.bytes, " bytes from rank ", from, ", got ",
             at + arrived);
  if (message.source != nullptr) *message.source = from;
}

bool MpiTransport::test(Ticket ticket) {
  check_thread();
  Posted& posted = at(ticket);
  const int count = static_cast<int>(posted.requests.size());
  thread_local std::vector<int> indices;
  thread_local std::vector<MPI_Status> statuses;
  indices.resize(posted.requests.size());
  statuses.resize(posted.requests.size());
  int done = 0;
  const int code =
      MPI_Testsome(count, posted.requests.data(), &done, indices.data(), statuses.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testsome");
  if (done == MPI_UNDEFINED) {  // nothing active is left
    give_back(ticket);
    return true;
  }
  if (!posted.parts.empty()) {
    for (int i = 0; i < done; ++i) {
      MPI_Status& status = statuses[static_cast<std::size_t>(i)];
      if (code == MPI_SUCCESS) status.MPI_ERROR = MPI_SUCCESS;  // else MPI leaves the field unset
      check_arrival(posted, indices[static_cast<std::size_t>(i)], status);
    }
  }
  const bool all = std::all_of(posted.requests.begin(), posted.requests.end(),
                               [](MPI_Request request) { return request == MPI_REQUEST_NULL; });
  if (all) give_back(ticket);
  return all;
}

// MPI has no way to take back a message that has begun, least of all from a peer that is dead. What
// cannot be shown to be done is left to MPI for ever, with everything it may read or write.
bool MpiTransport::cancel(Ticket ticket) {
  Posted& posted = at(ticket);
  const bool all = std::all_of(posted.requests.begin(), posted.requests.end(),
                               [](MPI_Request request) { return request == MPI_REQUEST_NULL; });
  if (!all) {
    static std::mutex mutex;
    static auto& kept = *new std::vector<Posted>;
    std::lock_guard lock(mutex);
    kept.push_back(std::move(posted));
  }
  give_back(ticket);
  return all;
}

std::vector<Message> MpiTransport::open(Ticket ticket) const {
  const Posted& posted = at(ticket);
  std::vector<Message> messages;
  for (std::size_t i = 0; i < posted.parts.size(); ++i) {
    if (posted.requests[i] == MPI_REQUEST_NULL) continue;
    messages.push_back(posted.parts[i].message);
    messages.back().bytes = posted.parts[i].bytes;
  }
  return messages;
}

bool MpiTransport::has_native(const NativeCall& call) const { return mpi_has_native(call); }

Ticket MpiTransport::start_native(const NativeCall& call) {
  check_thread();
  const Ticket ticket = take_slot();
  Posted& posted = at(ticket);
  for (const std::int64_t count : call.counts) {
    posted.offsets.push_back(posted.counts.empty() ? 0
                                                   : posted.offsets.back() + posted.counts.back());
    posted.counts.push_back(static_cast<int>(count));
  }
  const MPI_Datatype type = native_type(call.dtype);
  const MPI_Op op = native_op(call.op);
  const auto own = static_cast<std::size_t>(rank_);
  const void* in = call.in == call.out ? MPI_IN_PLACE : call.in;
  MPI_Request request = MPI_REQUEST_NULL;
  switch (call.what) {
    case Collective::all_reduce:
      check_mpi(MPI_Iallreduce(in, call.out, posted.counts[0], type, op, communicator_, &request),
                "MPI_Iallreduce");
      break;
    case Collective::broadcast:
      if (rank_ == call.root && call.in != call.out) {
        std::memcpy(call.out, call.in,
                    static_cast<std::size_t>(call.counts[0]) * size_of(call.dtype));
      }
      check_mpi(MPI_Ibcast(call.out, posted.counts[0], type, call.root, communicator_, &request),
                "MPI_Ibcast");
      break;
    case Collective::all_gather:
      if (call.in ==
          call.out + static_cast<std::size_t>(posted.offsets[own]) * size_of(call.dtype)) {
        in = MPI_IN_PLACE;
      } else {
        in = call.in;
      }
      check_mpi(MPI_Iallgatherv(in, posted.counts[own], type, call.out, posted.counts.data(),
                                posted.offsets.data(), type, communicator_, &request),
                "MPI_Iallgatherv");
      break;
    case Collective::reduce_scatter: {
      // In place, MPI wants the result at the start of the buffer; here it is in the rank's own
      // block.
      const std::size_t size = size_of(call.dtype);
      const std::size_t total =
          static_cast<std::size_t>(posted.offsets.back() + posted.counts.back()) * size;
      in = call.in;
      if (call.out == call.in + static_cast<std::size_t>(posted.offsets[own]) * size &&
          total != 0) {
        posted.input.assign(call.in, call.in + total);
        in = posted.input.data();
      }
      check_mpi(MPI_Ireduce_scatter(in, call.out, posted.counts.data(), type, op, communicator_,
                                    &request),
                "MPI_Ireduce_scatter");
      break;
    }
    default:
      check_mpi(MPI_Ibarrier(communicator_, &request), "MPI_Ibarrier");
  }
  posted.requests.push_back(request);
  return ticket;
}

}  // namespace peal::comm
