// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/mpi/mpi.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

namespace peal::comm {
namespace {

// Channels of messages lie past every number that a collective can have.
bool is_message(Channel channel) { return channel.sequence >> 63 != 0; }

Tags tags_of(MPI_Comm communicator, const MpiThreads& threads) {
  void* limit = nullptr;
  int found = 0;
  const auto turn = threads.turn();
  check_mpi(MPI_Comm_get_attr(communicator, MPI_TAG_UB, &limit, &found), "MPI_Comm_get_attr");
  constexpr int promised = 32767;  // by the standard
  return Tags(found != 0 ? *static_cast<int*>(limit) : promised);
}

}  // namespace

MpiTransport::MpiTransport(MpiCommunicator collectives, MpiCommunicator messages, std::size_t piece,
                           Patience patience)
    : collectives_(std::move(collectives)),
      messages_(std::move(messages)),
      tags_(tags_of(collectives_.get(), threads_)),
      piece_(piece),
      patience_(std::move(patience)) {
  const auto turn = threads_.turn();
  check_mpi(MPI_Comm_rank(collectives_.get(), &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(collectives_.get(), &world_), "MPI_Comm_size");
}

std::unique_ptr<MpiTransport> MpiTransport::duplicate(MPI_Comm communicator, std::size_t piece,
                                                      const Patience& patience) {
  const MpiThreads threads;
  auto collectives = MpiCommunicator::duplicate(communicator, threads, patience);
  auto messages = MpiCommunicator::duplicate(collectives.get(), threads, patience);
  return std::make_unique<MpiTransport>(std::move(collectives), std::move(messages), piece,
                                        patience);
}

std::unique_ptr<Transport> MpiTransport::subset(const std::vector<int>& ranks, std::uint64_t id) {
  if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()) {
    collectives_.meet(patience_, concat("rank ", rank_, ", while others make a sub-group"));
    return nullptr;
  }
  auto part = collectives_.part(ranks, static_cast<int>(id % 32768), patience_);
  auto messages = MpiCommunicator::duplicate(part.get(), threads_, patience_);
  return std::make_unique<MpiTransport>(std::move(part), std::move(messages), piece_,
                                        Patience{.deadline = patience_.deadline});
}

MpiTransport::~MpiTransport() {
  if (!abandoned_) return;
  collectives_.abandon();
  messages_.abandon();
}

// With room for its requests, so that none is lost for want of memory.
Ticket MpiTransport::take_slot(std::size_t requests) {
  const std::size_t all = requests_.size() + requests;
  if (requests_.capacity() < all) requests_.reserve(2 * all);
  parts_.reserve(requests_.capacity());
  if (free_slots_.empty()) {
    slots_.emplace_back();
    free_slots_.reserve(slots_.size());
    free_slots_.push_back(slots_.size() - 1);
  }
  const Ticket ticket = free_slots_.back();
  free_slots_.pop_back();
  Posted& posted = at(ticket);
  posted.first = requests_.size();
  posted.open = 0;
  posted.layout = layout_;
  posted.fresh = true;
  return ticket;
}

void MpiTransport::give_back(Ticket ticket) {
  Posted& posted = at(ticket);
  posted.problem.clear();
  posted.counts.clear();
  posted.offsets.clear();
  posted.input = {};
  free_slots_.push_back(ticket);
}

void MpiTransport::post_part(const Part& part, int tag, MPI_Comm communicator) {
  const Message& message = part.message;
  std::byte* const data = message.data + part.at;
  const int count = static_cast<int>(part.bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  if (message.direction == Direction::send) {
    check_mpi(MPI_Isend(data, count, MPI_BYTE, message.peer, tag, communicator, &request),
              "MPI_Isend");
  } else {
    const int peer = message.peer == any_source ? MPI_ANY_SOURCE : message.peer;
    // Who expects nothing gives a byte: Intel MPI 2021.18 takes a message of any size for an empty
    // one otherwise.
    static std::byte unexpected;
    check_mpi(MPI_Irecv(count == 0 ? &unexpected : data, std::max(count, 1), MPI_BYTE, peer, tag,
                        communicator, &request),
              "MPI_Irecv");
  }
  requests_.push_back(request);
  parts_.push_back(part);
}

Ticket MpiTransport::post(Channel channel, std::span<const Message> round) {
  threads_.check();
  std::size_t requests = 0;
  for (const Message& message : round) requests += message.bytes / piece_ + 1;
  const Ticket ticket = take_slot(requests);
  Posted& posted = at(ticket);
  const bool of_user = is_message(channel);
  const MPI_Comm communicator = of_user ? messages_.get() : collectives_.get();
  const int tag =
      of_user ? tags_.message(static_cast<int>(channel.sequence & 0xffff), channel.signature)
              : tags_.collective(channel.sequence, channel.signature);
  const auto turn = threads_.turn();
  // What comes behind a message that is not there would be taken for it.
  posted.problem = broken_;
  if (!broken_.empty()) return ticket;
  try {
    for (const Message& message : round) {
      std::size_t at = 0, bytes = 0;
      do {  // until one that is not whole
        bytes = std::min(piece_, message.bytes - at);
        post_part({ticket, message, at, bytes}, tag, communicator);
        ++posted.open;
        at += bytes;
      } while (bytes == piece_);
    }
  } catch (const Error& error) {
    posted.problem = broken_ = error.what();
  }
  return ticket;
}

// A request is done, well or not.
void MpiTransport::note(const Part& part, const MPI_Status& status) {
  const Message& message = part.message;
  Posted& posted = at(part.ticket);
  --posted.open;
  const int from = message.peer == any_source ? status.MPI_SOURCE : message.peer;
  try {
    int kind = MPI_SUCCESS;
    if (status.MPI_ERROR != MPI_SUCCESS) MPI_Error_class(status.MPI_ERROR, &kind);
    PEAL_CHECK(kind != MPI_ERR_TRUNCATE, "expected ", message.bytes, " bytes from rank ", from,
               ", got more");
    check_mpi(status.MPI_ERROR, part.native                            ? "a collective of its own"
                                : message.direction == Direction::send ? "send"
                                                                       : "receive");
    if (part.native || message.direction == Direction::send) return;
    int got = 0;
    MPI_Get_count(&status, MPI_BYTE, &got);
    const auto arrived = static_cast<std::size_t>(got);
    PEAL_CHECK(arrived == part.bytes, "expected ", message.bytes, " bytes from rank ", from,
               ", got ", part.at + arrived);
    if (message.source != nullptr) *message.source = from;
  } catch (const Error& error) {
    if (posted.problem.empty()) posted.problem = error.what();
  }
}

// Asks MPI about the requests in this range, which goes to the end, or is all.
void MpiTransport::ask(std::size_t first, std::size_t count) {
  indices_.resize(std::max(indices_.size(), count));
  statuses_.resize(indices_.size());
  int done = 0;
  const auto turn = threads_.turn();
  const int code = MPI_Testsome(static_cast<int>(count), requests_.data() + first, &done,
                                indices_.data(), statuses_.data());
  int kind = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &kind);
  if (kind != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testsome");
  if (done == MPI_UNDEFINED || done == 0) return;
  for (int i = 0; i < done; ++i) {
    MPI_Status& status = statuses_[static_cast<std::size_t>(i)];
    if (code == MPI_SUCCESS) status.MPI_ERROR = MPI_SUCCESS;  // else MPI leaves the field unset
    const std::size_t place =
        first + static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
    note(parts_[place], status);
    requests_[place] = MPI_REQUEST_NULL;  // one that failed is done as well
  }
  drop_done(first);
}

// Moves those behind up, in their order.
void MpiTransport::drop_done(std::size_t first) {
  if (first == 0) ++layout_;
  std::size_t to = first;
  for (std::size_t from = first; from < requests_.size(); ++from) {
    if (requests_[from] == MPI_REQUEST_NULL) continue;
    requests_[to] = requests_[from];
    parts_[to++] = parts_[from];
  }
  requests_.resize(to);
  parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(to), parts_.end());
}

bool MpiTransport::test(Ticket ticket) {
  threads_.check();
  Posted& posted = at(ticket);
  if (posted.open != 0) {
    const bool last = posted.layout == layout_ && posted.first + posted.open == requests_.size();
    if (posted.fresh && last) {
      ask(posted.first, posted.open);
    } else if (posted.fresh || posted.seen == asked_) {
      ++asked_;
      ask(0, requests_.size());
    }
    posted.fresh = false;
    posted.seen = asked_;
  }
  if (!posted.problem.empty()) fail(posted.problem);
  if (posted.open != 0) return false;
  give_back(ticket);
  return true;
}

// Receives that nothing has come for yet; one whose message is just coming ends by that. For a
// moment only, and no more once one did not end. After a failure MPI is not asked: it may wait for
// a peer that is dead.
void MpiTransport::call_back(Ticket ticket) {
  using Clock = std::chrono::steady_clock;
  if (abandoned_ || !broken_.empty() || !calls_back_ || !threads_.allowed()) return;
  try {
    patience_.hopeless();
  } catch (const Error&) {
    return;
  }
  const auto turn = threads_.turn();
  std::vector<std::size_t> called;  // their places
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const bool receives = !parts_[i].native && parts_[i].message.direction == Direction::recv;
    if (parts_[i].ticket != ticket || !receives) continue;
    if (MPI_Cancel(&requests_[i]) == MPI_SUCCESS) called.push_back(i);
  }
  if (called.empty()) return;
  const auto until = Clock::now() + std::chrono::milliseconds(5);
  const auto is_over = [&](std::size_t i) {
    int done = 0;
    if (MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) calls_back_ = false;
    if (!calls_back_ || done == 0) return false;
    requests_[i] = MPI_REQUEST_NULL;
    --at(ticket).open;
    return true;
  };
  do {
    std::erase_if(called, is_over);
  } while (!called.empty() && calls_back_ && Clock::now() < until);
  calls_back_ = calls_back_ && called.empty();
  drop_done(0);
}

// MPI has no way to take back a message that has begun, least of all from a peer that is dead. What
// cannot be shown to be done is left to MPI for ever, with everything it may read or write.
bool MpiTransport::cancel(Ticket ticket) {
  Posted& posted = at(ticket);
  if (posted.open != 0) call_back(ticket);
  const bool all = posted.open == 0;
  if (!all) {
    static std::mutex mutex;
    static auto& kept = *new std::vector<Posted>;
    {
      std::lock_guard lock(mutex);
      kept.push_back(std::move(posted));
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].ticket == ticket) requests_[i] = MPI_REQUEST_NULL;
    }
    drop_done(0);
  }
  give_back(ticket);
  return all;
}

std::vector<Message> MpiTransport::open(Ticket ticket) const {
  std::vector<Message> messages;
  for (const Part& part : parts_) {
    if (part.ticket != ticket || part.native) continue;
    messages.push_back(part.message);
    messages.back().bytes = part.bytes;
  }
  return messages;
}

}  // namespace peal::comm
