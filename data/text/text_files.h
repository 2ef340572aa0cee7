// SPDX-License-Identifier: Apache-2.0
// Texts in files, and their classes where somebody knows them: a text file; a folder of .txt files;
// folders of them, one a class (train/pos/1.txt, train/neg/2.txt; fastai: TextDataLoaders
// .from_folder); an archive (.tar, .tar.gz) that holds such folders; a CSV file with a column of
// texts and perhaps one of classes (.csv, .csv.gz). The same files give the same texts in the same
// order everywhere: by path, or by line. Thread safety: free functions without state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace peal::data {

struct TextFiles {
  std::string name;                  // what errors call all of them
  std::vector<std::string> texts;    // UTF-8, as they are
  std::vector<std::string> sources;  // of each: "reviews/pos/1.txt", "reviews.csv, line 7"
  std::vector<std::string> labels;   // the class of each; none where nobody knows

  std::int64_t size() const { return std::ssize(texts); }
  // The labels there are, sorted. Error for texts without labels.
  std::vector<std::string> classes() const;
  // The number of each one's label among these classes. Error for texts without labels, and a label
  // that is none of them.
  std::vector<std::int64_t> class_numbers(const std::vector<std::string>& classes) const;
};

struct TextColumns {
  std::string text = "text", label = "label";
};

// Those in `path`, or with `part` those in the folder, or the file "part.csv", of that name in it.
// Errors: not there; no .txt file, or none in a folder of a class; those of read_csv() and
// TarReader; a CSV file without a column of texts, or with a row whose label is empty; a file that
// is gzip or has zero bytes, and so is no text.
TextFiles read_texts(const std::filesystem::path& path, const std::string& part = "",
                     const TextColumns& columns = {});

}  // namespace peal::data
