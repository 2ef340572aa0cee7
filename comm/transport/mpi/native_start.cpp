// SPDX-License-Identifier: Apache-2.0
// The collectives that MPI runs itself: native.h says which.
#include <peal/comm/transport/mpi/mpi.h>
#include <peal/comm/transport/mpi/native.h>

#include <cstring>

namespace peal::comm {
namespace {

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

bool MpiTransport::has(const NativeCall& call) const { return mpi_has_native(call); }

Ticket MpiTransport::start(const NativeCall& call) {
  threads_.check();
  const Ticket ticket = take_slot(1);
  Posted& posted = at(ticket);
  try {
    const auto turn = threads_.turn();
    requests_.push_back(request(call, posted));
    parts_.push_back({ticket, {Direction::send, any_source, nullptr, 0}, 0, 0, true});
    posted.open = 1;
  } catch (const Error& error) {
    posted.problem = error.what();
  }
  return ticket;
}

MPI_Request MpiTransport::request(const NativeCall& call, Posted& posted) {
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
      check_mpi(
          MPI_Iallreduce(in, call.out, posted.counts[0], type, op, collectives_.get(), &request),
          "MPI_Iallreduce");
      break;
    case Collective::broadcast:
      if (rank_ == call.root && call.in != call.out) {
        std::memcpy(call.out, call.in,
                    static_cast<std::size_t>(call.counts[0]) * size_of(call.dtype));
      }
      check_mpi(
          MPI_Ibcast(call.out, posted.counts[0], type, call.root, collectives_.get(), &request),
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
                                posted.offsets.data(), type, collectives_.get(), &request),
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
      check_mpi(MPI_Ireduce_scatter(in, call.out, posted.counts.data(), type, op,
                                    collectives_.get(), &request),
                "MPI_Ireduce_scatter");
      break;
    }
    default:
      check_mpi(MPI_Ibarrier(collectives_.get(), &request), "MPI_Ibarrier");
  }
  return request;
}

}  // namespace peal::comm
