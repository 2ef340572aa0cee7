// SPDX-License-Identifier: Apache-2.0
// Records: what a rank writes down of itself while it fails, or others do (a log of events): lines
// "WORD NANOSECONDS TEXT" in the file FOLDER/rank.N, each with one write(), so that they are there
// however the rank ends. Times are CLOCK_MONOTONIC's, which all processes of a machine share.
// Thread safety: any thread.
#pragma once

#include <string>

namespace peal::failures {

class Records {
 public:
  // Appends. Error where the file cannot be written.
  Records(const std::string& folder, int rank);
  ~Records();
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  // Line ends in the text become blanks.
  void write(const char* word, std::string text = {}) const;

 private:
  int file_;
};

}  // namespace peal::failures
