// SPDX-License-Identifier: Apache-2.0
// The results as a JSON file, with nccl-tests' keys and habits (version 3: roots are padded text,
// truth is "true" or "false"), and peal's further columns. It is a complete file after each row.
// Unlike theirs it names few variables of the environment, none of which is a secret. Thread
// safety: rank 0's main thread.
#pragma once

#include <peal/bench/perf/report.h>

#include <memory>
#include <string>
#include <vector>

namespace peal::bench {

class JsonReport {
 public:
  // FILE.json, or, where there is one, FILE.json.0 and so on; says so on standard output. Error
  // where it cannot be written.
  JsonReport(const Options& options, const std::vector<RankLine>& ranks);
  ~JsonReport();

  void add(const Row& row);
  void finish(const Summary& summary);

 private:
  void write() const;
  struct Document;
  const Options& options_;
  std::string path_;
  std::unique_ptr<Document> document_;
};

}  // namespace peal::bench
