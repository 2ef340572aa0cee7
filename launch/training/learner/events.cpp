// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/training/learner/events.h>

#include <array>
#include <cstddef>

namespace peal::launch {
namespace {

struct NamedMethod {
  std::string_view name;
  void (Callback::*method)(Loop&);
};

// In the order of Event.
constexpr std::array methods_of_events{
    NamedMethod{"before_fit", &Callback::before_fit},
    NamedMethod{"after_cancel_fit", &Callback::after_cancel_fit},
    NamedMethod{"after_fit", &Callback::after_fit},
    NamedMethod{"before_epoch", &Callback::before_epoch},
    NamedMethod{"after_cancel_epoch", &Callback::after_cancel_epoch},
    NamedMethod{"after_epoch", &Callback::after_epoch},
    NamedMethod{"before_train", &Callback::before_train},
    NamedMethod{"after_cancel_train", &Callback::after_cancel_train},
    NamedMethod{"after_train", &Callback::after_train},
    NamedMethod{"before_validate", &Callback::before_validate},
    NamedMethod{"after_cancel_validate", &Callback::after_cancel_validate},
    NamedMethod{"after_validate", &Callback::after_validate},
    NamedMethod{"before_batch", &Callback::before_batch},
    NamedMethod{"after_cancel_batch", &Callback::after_cancel_batch},
    NamedMethod{"after_batch", &Callback::after_batch},
    NamedMethod{"before_backward", &Callback::before_backward},
    NamedMethod{"after_cancel_backward", &Callback::after_cancel_backward},
    NamedMethod{"after_backward", &Callback::after_backward},
    NamedMethod{"before_step", &Callback::before_step},
    NamedMethod{"after_cancel_step", &Callback::after_cancel_step},
    NamedMethod{"after_step", &Callback::after_step},
    NamedMethod{"after_pred", &Callback::after_pred},
    NamedMethod{"after_loss", &Callback::after_loss}};

}  // namespace

std::string_view name_of(Event event) {
  return methods_of_events.at(static_cast<std::size_t>(event)).name;
}

void Callback::on(Event event, Loop& loop) {
  (this->*methods_of_events.at(static_cast<std::size_t>(event)).method)(loop);
}

}  // namespace peal::launch
