// SPDX-License-Identifier: Apache-2.0
// Events and callbacks (fastai: Callback, event, CancelFitException): at each named moment of the
// training loop (loop.h) every callback is called, those of a lower order() first.
//
//   struct Stop : launch::Callback {
//     void after_epoch(launch::Loop& loop) override {
//       if (loop.values.back().value > 0.99) throw launch::CancelFitException();
//     }
//   };
//
// A Cancel...Exception leaves what it names: its after_cancel event comes, and its after event in
// any case. All ranks call the same events, and cancel alike: decide by what all have (loop.values,
// agreed()), else all get an Error, in a batch of the validation excepted, where a rank may cancel
// alone. Any other exception ends the training on all ranks. Thread safety: the rank's thread.
#pragma once

#include <cstdint>
#include <exception>
#include <string_view>

namespace peal::launch {

class Loop;

// In threes, what begins, is cancelled and is over; and two moments within a batch.
enum class Event : std::uint8_t {
  before_fit,
  after_cancel_fit,
  after_fit,
  before_epoch,
  after_cancel_epoch,
  after_epoch,
  before_train,
  after_cancel_train,
  after_train,
  before_validate,
  after_cancel_validate,
  after_validate,
  before_batch,
  after_cancel_batch,
  after_batch,
  before_backward,
  after_cancel_backward,
  after_backward,
  before_step,
  after_cancel_step,
  after_step,
  after_pred,
  after_loss,
};
std::string_view name_of(Event event);

template <Event event>
class CancelException : public std::exception {
 public:
  const char* what() const noexcept override {
    return "[launch] learner: a Cancel exception left the part of the training that it ends";
  }
};
using CancelFitException = CancelException<Event::before_fit>;
using CancelEpochException = CancelException<Event::before_epoch>;
using CancelTrainException = CancelException<Event::before_train>;
using CancelValidException = CancelException<Event::before_validate>;
using CancelBatchException = CancelException<Event::before_batch>;
using CancelBackwardException = CancelException<Event::before_backward>;
using CancelStepException = CancelException<Event::before_step>;

class Callback {
 public:
  virtual ~Callback() = default;
  // Callbacks of a lower one are called first; those of one, in the order in which they were added.
  virtual int order() const { return 0; }
  // Each event; calls the method of its name.
  virtual void on(Event event, Loop& loop);

  // Each is called when its event comes, and does nothing as it is. A fit: all its epochs; an
  // epoch: a training and a validation; after_cancel comes where a Cancel exception ended it, after
  // in any case.
  virtual void before_fit(Loop&) {}
  virtual void after_cancel_fit(Loop&) {}
  virtual void after_fit(Loop&) {}
  virtual void before_epoch(Loop&) {}
  virtual void after_cancel_epoch(Loop&) {}
  virtual void after_epoch(Loop&) {}
  virtual void before_train(Loop&) {}
  virtual void after_cancel_train(Loop&) {}
  virtual void after_train(Loop&) {}
  virtual void before_validate(Loop&) {}
  virtual void after_cancel_validate(Loop&) {}
  virtual void after_validate(Loop&) {}
  // Of training and of validation: loop.training says which.
  virtual void before_batch(Loop&) {}
  virtual void after_cancel_batch(Loop&) {}
  virtual void after_batch(Loop&) {}
  virtual void before_backward(Loop&) {}
  virtual void after_cancel_backward(Loop&) {}
  virtual void after_backward(Loop&) {}
  virtual void before_step(Loop&) {}
  virtual void after_cancel_step(Loop&) {}
  virtual void after_step(Loop&) {}
  virtual void after_pred(Loop&) {}
  virtual void after_loss(Loop&) {}
};

}  // namespace peal::launch
