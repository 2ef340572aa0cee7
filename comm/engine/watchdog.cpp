// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/watchdog.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <system_error>
#include <utility>

namespace peal::comm {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr milliseconds between_looks{50};
constexpr milliseconds between_questions{1000};  // and before the first
constexpr milliseconds patience{1000};           // with a device that takes or answers nothing

constexpr std::string_view queue_of_the_device = "the device's queue";

}  // namespace

WatchedQueue::WatchedQueue(Transport& transport, Control& control, std::string who,
                           std::uint64_t group, milliseconds deadline, std::atomic<bool>& ended)
    : transport_(transport),
      control_(control),
      who_(std::move(who)),
      group_(group),
      deadline_(deadline),
      ended_(ended) {}

void WatchedQueue::enqueue(const OperationRef& operation) {
  const std::lock_guard lock(mutex_);
  pending_.push_back(operation);
  ++enqueued_;
  if (pending_.size() == 1) ++oldest_;
}

// It does not die here: who calls this has it.
void WatchedQueue::dequeue(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(pending_.begin(), pending_.end(),
                                  [&](const OperationRef& o) { return o.get() == &operation; });
  if (found == pending_.end()) return;
  const bool first = found == pending_.begin();
  pending_.erase(found);
  if (first) oldest_ += pending_.empty() ? 1 : 2;
}

std::vector<OperationRef> WatchedQueue::collect() {
  const std::lock_guard lock(mutex_);
  any_spent_ = false;
  return std::exchange(spent_, {});
}

void WatchedQueue::look() noexcept {
  try {
    if (ended_) return take_answer();
    const auto now = Clock::now();
    const auto full = stood(now);
    const std::uint64_t oldest = oldest_;
    if (oldest != seen_oldest_ || (over_ && enqueued_ != asked_about_)) {
      judged_ = nullptr;
      over_ = false;
      next_question_ = now + std::min(between_questions, deadline_ / 2);
      withdraw_row();
    }
    seen_oldest_ = oldest;
    take_answer();
    const bool waits = oldest % 2 == 1 && !over_;
    if (full < patience && !waits) return;
    if (const auto message = control_.poisoned()) fail(*message);
    if (full >= patience) {
      control_.hear_beside();
      control_.check();
      const bool overdue = is_overdue(full, now, deadline_, control_, last_work_);
      PEAL_CHECK(!overdue, "[comm] ", who_, ": the queue of ", transport_.name(),
                 " has taken nothing for ", seconds(full),
                 " s (PEAL_TIMEOUT); what the ranks of this node wait for:", control_.describe());
    }
    if (waits) look_at_queue(now);
  } catch (const std::exception& error) {
    end(error.what());
  } catch (...) {
    end("[comm] the watchdog found something that is no std::exception");
  }
}

// For how long one who feeds the queue has stood.
WatchedQueue::Clock::duration WatchedQueue::stood(Clock::time_point now) {
  if (const std::uint64_t seen = feedings_; seen != seen_feeding_) {
    seen_feeding_ = seen;
    fed_ = now;
  }
  return seen_feeding_ % 2 == 1 ? now - fed_ : Clock::duration{};
}

void WatchedQueue::look_at_queue(Clock::time_point now) {
  transport_.queue()->check();
  if (row_is_out_) control_.compare(row_, describe);
  if (question_) {
    const OperationRef& oldest = question_->about.front();
    if (now - question_->asked >= patience && is_pending(oldest)) judge(*oldest, now);
  } else if (now >= next_question_ || control_.anyone_gone()) {
    ask(now);
  }
}

bool WatchedQueue::is_pending(const OperationRef& operation) {
  const std::lock_guard lock(mutex_);
  return std::find(pending_.begin(), pending_.end(), operation) != pending_.end();
}

void WatchedQueue::ask(Clock::time_point now) {
  next_question_ = now + between_questions;
  const auto question = std::make_shared<Question>();
  question->asked = now;
  {
    const std::lock_guard lock(mutex_);
    if (pending_.empty()) return;
    spent_.reserve(spent_.size() + pending_.size());
    question->about = pending_;
    asked_about_ = enqueued_;
  }
  question_ = question;
  try {
    asker_ = std::thread([question] {
      const auto& about = question->about;
      Place place = Place::over;
      try {
        std::size_t first = 0;
        while (first < about.size() && about[first]->execution.is_past()) ++first;
        question->first = first;
        if (first < about.size()) {
          place = about[first]->execution.may_begin() ? Place::under_way : Place::before;
        }
      } catch (const Error&) {  // who advances it will say what it is
        place = Place::before;
      }
      question->answer = place;
    });
  } catch (const std::system_error&) {  // there is no thread to be had now
    close_question();
  }
}

void WatchedQueue::take_answer() {
  if (!question_ || question_->answer == Place::unknown) return;
  asker_.join();
  const Place answer = question_->answer;
  try {
    if (answer == Place::over) {
      over_ = true;
      withdraw_row();
    } else if (answer == Place::under_way && !ended_) {
      const OperationRef& first = question_->about[question_->first];
      if (is_pending(first)) judge(*first, question_->asked);
    }
  } catch (...) {
    close_question();
    throw;
  }
  close_question();
}

// What it was about is the host's to drop.
void WatchedQueue::close_question() {
  const std::lock_guard lock(mutex_);
  for (OperationRef& each : question_->about) spent_.push_back(std::move(each));
  any_spent_ = true;
  question_ = nullptr;
}

// Throws where waiting for it is of no more use. The device has come to it, and not to its end, as
// far as it says anything.
void WatchedQueue::judge(const Operation& operation, Clock::time_point now) {
  control_.hear_beside();
  control_.check();
  if (judged_ != &operation) {
    judged_ = &operation;
    begun_ = now;
    withdraw_row();
  }
  const bool first = !row_is_out_;
  if (first) row_ = row_of(operation, group_, queue_of_the_device);
  // Another group may have written over it.
  if (first || control_.own_row() != row_) control_.publish(row_);
  row_is_out_ = true;
  if (first) control_.compare(row_, describe);
  const auto idle = now - begun_;
  if (idle < deadline_) next_question_ = std::min(next_question_, begun_ + deadline_);
  if (!is_overdue(idle, now, deadline_, control_, last_work_)) return;
  fail(overdue(operation, who_, deadline_, queue_of_the_device, control_));
}

void WatchedQueue::withdraw_row() {
  if (row_is_out_ && control_.own_row() == row_) control_.publish({});
  row_is_out_ = false;
}

// First the message, so that whoever finds the queue at its end finds why. Where one step fails,
// the next may still free whoever waits.
void WatchedQueue::end(const char* message) noexcept {
  try {
    control_.poison(message);
  } catch (...) {
  }
  ended_ = true;
  try {
    transport_.abandon();
  } catch (...) {
  }
}

// A question that the device does not answer, and what it is about, stay for ever.
void WatchedQueue::leave() {
  const auto began = Clock::now();
  while (question_ && question_->answer == Place::unknown && Clock::now() - began < patience) {
    std::this_thread::sleep_for(1ms);
  }
  if (!question_) return;
  if (question_->answer != Place::unknown) {
    asker_.join();
    return close_question();
  }
  static_cast<void>(new std::shared_ptr<Question>(std::move(question_)));
  asker_.detach();
}

Watchdog::~Watchdog() {
  thread_.request_stop();
  sleeps_.notify_all();
}

void Watchdog::watch(std::shared_ptr<WatchedQueue> queue) {
  const std::lock_guard lock(mutex_);
  queues_.push_back(std::move(queue));
  if (thread_.joinable()) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void Watchdog::forget(const std::shared_ptr<WatchedQueue>& queue) {
  const std::lock_guard lock(mutex_);
  std::erase(queues_, queue);
  queue->leave();
}

void Watchdog::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    for (const auto& queue : queues_) queue->look();
    sleeps_.wait_for(lock, stop, between_looks, [] { return false; });
  }
}

}  // namespace peal::comm
