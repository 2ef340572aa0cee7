// SPDX-License-Identifier: Apache-2.0
// Draws the pictures of the documents from the schedules themselves: draw_pictures FOLDER. Run it
// with docs/pictures after a schedule or the drawing code has changed; a test compares.
#include <peal/comm/algorithms/table.h>
#include <peal/comm/draw/draw.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace peal::comm;

struct Picture {
  const char* file;
  Collective what;
  const char* algorithm;
  int world;
  std::int64_t count;
  const char* title;
};

constexpr Picture pictures[] = {
    {"ring5.svg", Collective::all_reduce, "ring", 5, 10, "all_reduce by ring, 5 ranks"},
};

std::string drawn(const Picture& picture) {
  const Entry* entry = find(picture.what, picture.algorithm);
  if (entry == nullptr) throw std::runtime_error(std::string("no such algorithm: ") + picture.file);
  const Topology nodes = single_node(picture.world);
  const std::int64_t counts[] = {picture.count};
  std::vector<Program> programs;
  for (int rank = 0; rank < picture.world; ++rank) {
    programs.push_back(plan(*entry, {picture.what, rank, picture.world, 0, counts, nodes}));
  }
  return svg(programs, picture.title);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: draw_pictures FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const Picture& picture : pictures) {
    std::ofstream file(folder / picture.file, std::ios::binary);
    file << drawn(picture);
    if (!file.flush()) throw std::runtime_error("cannot write " + (folder / picture.file).string());
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "draw_pictures: %s\n", error.what());
  return 1;
}
