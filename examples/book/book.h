// SPDX-License-Identifier: Apache-2.0
// The programs of docs/book that have no example of their own: one a section, each to be read from
// top to bottom beside its chapter. Thread safety: each starts its own ranks.
#pragma once

namespace book {

// Chapter 6.
void tape_by_hand();
void tape_of_peal();
// Chapter 8.
void batch_norm_of_ranks();
// Chapter 9.
void padded_accuracy();
// Chapter 10.
void formats();
void lost_gradients();
void mixed_training();
// Chapter 11.
void memory_of_ranks();
void sharded_step();
// Chapter 12.
void cut_layers();
// Chapter 13.
void other_calls();
void lost_message();
void failing_rank();
void going_on();

}  // namespace book
