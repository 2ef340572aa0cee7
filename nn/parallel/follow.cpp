// SPDX-License-Identifier: Apache-2.0
// Following: a rank without a batch does what those who have one announce (join.h).
#include <peal/nn/parallel/reducer.h>

namespace peal::nn {

Announcement Reducer::place(Announcement::What what) const {
  return {.what = what,
          .tag = step_hash_,
          .wrapper = tag_,
          .steps = steps_,
          .forward_calls = forward_calls_,
          .without_backward = without_backward_,
          .weighted = weights_.is_open()};
}

void Reducer::follow(const Announcement& where) {
  using What = Announcement::What;
  check_whole();
  if (where.what == What::begin || where.what == What::next) {
    steps_ = where.steps;
    forward_calls_ = where.forward_calls;
    without_backward_ = where.without_backward;
  }
  if (where.what == What::begin) {
    check_not_left();
    backward_ = 0;
    step_hash_ = where.tag;
    captured_ = false;
    following_ = true;
    begin_without_batch(where.weighted);
    name_step();
    prepare();
    open();
    ask_missing(nowhere);
    hold_buckets(nowhere);
    for (std::size_t p = 0; p < came_.size(); ++p) {
      if (came_[p] == Came::nothing) stand_in(p);
    }
    leave_out_shared();
  } else if (where.what == What::samples) {
    weights_.estimate(0);
  } else if (where.what == What::bucket) {
    launch();
  } else if (where.what == What::finish) {
    close();
    following_ = false;
  }
}

}  // namespace peal::nn
