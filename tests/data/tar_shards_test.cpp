// SPDX-License-Identifier: Apache-2.0
// Tar shards as a data set: what is a sample, the index beside a shard, loaders that go on
// anywhere, and what is said of shards and samples that are broken.
#include <peal/data/formats/kept_index.h>
#include <peal/data/images/decode_images.h>
#include <peal/data/shards/tar_index.h>
#include <peal/tests/errors.h>

#include "drawn.h"
#include "tar_files.h"

#include <algorithm>
#include <chrono>

using peal::data::stem_and_suffix;
using peal::data::TarIndex;
using peal::data::TarShardOptions;
using peal::data::TarShards;
using peal::testing::check_has;
using peal::testing::content_of;
using peal::testing::decode_number;
using peal::testing::error_of;
using peal::testing::Folder;
using peal::testing::put;
using peal::testing::stderr_of;
using peal::testing::tar_of;
using peal::testing::TarFiles;
using peal::testing::text_of;
using peal::testing::write_shards;
namespace fs = std::filesystem;

namespace {

std::shared_ptr<TarShards> shards_in(const Folder& folder, const Samples& sizes,
                                     TarShardOptions options = {}) {
  return std::make_shared<TarShards>(write_shards(folder.path, sizes), decode_number, options);
}

Samples numbers_in(const Batch& batch) { return batch.x.to_vector<std::int64_t>(); }

}  // namespace

TEST_CASE("the stem is up to the first dot of the name, the suffix what follows") {
  const auto parts = [](const std::string& name) {
    const auto found = stem_and_suffix(name);
    return found ? found->stem + " " + found->suffix : "none";
  };
  CHECK(parts("a/b.jpg") == "a/b jpg");
  CHECK(parts("a.b/c.seg.PNG") == "a.b/c seg.png");
  CHECK(parts("./c.x") == "./c x");
  CHECK(parts("c.") == "c ");
  for (const char* none : {"a", "a.b/c", ".hidden", "a/.x", "__meta__", "__info__/a.json", ""}) {
    CHECK(parts(none) == "none");
  }
  CHECK(parts("__a/b.x") == "__a/b x");
}

TEST_CASE("samples of shards are read by their places") {
  const Folder folder;
  const auto set = shards_in(folder, {4, 1, 7});
  CHECK(set->size() == 12);
  CHECK(set->sizes() == Samples{4, 1, 7});
  const Batch batch = set->get(Samples{11, 0, 4, 0});
  CHECK(numbers_in(batch) == Samples{11, 0, 4, 0});
  CHECK(batch.y.to_vector<std::int64_t>() == Samples{1, 0, 4, 0});
  const auto files = set->files(9);
  CHECK(files.stem == "set/9");
  CHECK(files.text("x") == "9");
  CHECK(files.text("seg.png") == std::string(700, 'p'));
  CHECK(set->name(9) == set->shards()[2] + ": sample 'set/9'");
  check_has(error_of([&] { files["jpg"]; }),
            "s2.tar: sample 'set/9': expected a file 'jpg', found x, seg.png, cls");
  check_has(error_of([&] { files.number("seg.png"); }),
            "expected an integer in its file 'seg.png'");
  check_has(error_of([&] { set->get(Samples{12}); }), "12");
}

TEST_CASE("names of all kinds of tar are in an index") {
  const Folder folder;
  std::vector<std::uint8_t> archive;
  const auto add = [&](const std::vector<std::uint8_t>& entry) {
    archive.insert(archive.end(), entry.begin(), entry.end());
  };
  using peal::testing::tar_entry;
  const std::string large(120, 'd');
  add(tar_entry("set/", "", '5'));
  add(tar_entry("__meta__", "no sample"));
  add(tar_entry("README", "no sample"));
  add(tar_entry("././@LongLink", large + ".x", 'L'));
  add(tar_entry("d", "1"));
  add(tar_entry("link", "", '1', "", "d"));
  add(tar_entry("pax", "16 path=b/3.cls\n", 'x'));
  add(tar_entry("3.cls", "two"));
  add(tar_entry("4.x", "", '0', "some/where"));
  archive.resize(archive.size() + 1024);
  const std::string path = put(folder.path / "s.tar", text_of(archive));
  const TarIndex index = peal::data::index_tar(peal::data::file_bytes(path), path);
  REQUIRE(index.samples() == 3);
  CHECK(index.stem(0) == large);
  CHECK(index.stem(1) == "b/3");
  CHECK(index.stem(2) == "some/where/4");
  CHECK(index.suffixes == std::vector<std::string>{"x", "cls"});
  CHECK(index.size == std::vector<std::uint64_t>{1, 3, 0});
  const TarShards set({path}, decode_number);
  CHECK(set.files(0).text("x") == "1");
  CHECK(set.files(1).text("cls") == "two");
  CHECK(set.files(2).text("x").empty());

  const auto again = TarIndex::from_bytes(index.to_bytes(), fs::file_size(path));
  REQUIRE(again);
  CHECK(again->to_bytes() == index.to_bytes());
  CHECK(!TarIndex::from_bytes(index.to_bytes(), 600));
  TarIndex hollow = index;  // a sample without files
  hollow.first[1] = 0;
  CHECK(!TarIndex::from_bytes(hollow.to_bytes(), fs::file_size(path)));
  const std::string bytes = index.to_bytes();
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    REQUIRE(!TarIndex::from_bytes(bytes.substr(0, cut), fs::file_size(path)));
  }
}

TEST_CASE("an index is kept beside its shard, and made again when the shard is another") {
  const Folder folder;
  const fs::path index = folder.path / "s0.tar.idx";
  CHECK(shards_in(folder, {3})->size() == 3);
  REQUIRE(fs::exists(index));
  const std::string kept = content_of(index);

  // It is what is read: a kept index of other names is believed.
  const auto shard = folder.path / "s0.tar";
  const peal::data::OpenFile file(shard);
  bool asked = false;
  const auto find_out = [&] { return asked = true, std::string(); };
  const auto all = [](std::string_view) { return true; };
  CHECK(peal::data::kept_index(file, "tar    2", find_out, all) == kept.substr(48));
  CHECK(!asked);

  // Damaged, of another kind, cut short, of another time.
  for (const std::size_t at : {std::size_t{8}, std::size_t{24}, kept.size() - 1}) {
    std::string damaged = kept;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    put(index, damaged);
    CHECK(shards_in(folder, {3})->size() == 3);
  }
  put(index, kept.substr(0, 30));
  CHECK(shards_in(folder, {5})->size() == 5);
  fs::last_write_time(shard, fs::last_write_time(shard) - std::chrono::hours(1));
  CHECK(TarShards({shard.string()}, decode_number).size() == 5);
  CHECK(content_of(index) != kept);

  // What is not ours stays, and nothing is kept where one does not want it.
  put(index, "v1.2 3\ntar 512 ...");
  CHECK(shards_in(folder, {4})->size() == 4);
  CHECK(content_of(index) == "v1.2 3\ntar 512 ...");
  fs::remove(index);
  CHECK(shards_in(folder, {4}, {.keep_index = false})->size() == 4);
  CHECK(!fs::exists(index));
}

TEST_CASE("a loader of shards goes on anywhere, with other ranks, workers and batches") {
  const Folder folder;
  const auto set = shards_in(folder, {5, 8, 4});
  const std::int64_t n = set->size();
  REQUIRE(n == 17);
  const auto loader_of = [&](Place place, std::int64_t batch, int workers) {
    const auto sampler = set->sampler(place, {.window = 4, .seed = 7, .exact = true});
    return std::make_unique<DataLoader>(
        set, sampler, peal::data::LoaderOptions{.batch_size = batch, .workers = workers});
  };
  for (int before = 1; before <= 3; ++before) {
    for (const std::int64_t batch : {1, 2, 3}) {
      for (std::int64_t steps = 0; steps * batch * before <= n; ++steps) {
        Samples seen;
        peal::NamedTensors state;
        for (int rank = 0; rank < before; ++rank) {
          const auto loader = loader_of({rank, before}, batch, rank % 2);
          loader->set_epoch(1);
          for (std::int64_t k = 0; k < steps; ++k) {
            const auto got = loader->next();
            if (!got) continue;
            const Samples mine = numbers_in(*got);
            seen.insert(seen.end(), mine.begin(), mine.end());
          }
          if (rank == 0) state = loader->state_dict();
        }
        if (state[0].second.item<std::int64_t>() != 1) continue;  // rank 0 is in the next
        std::size_t bytes = 0;
        for (const auto& [name, tensor] : state) bytes += tensor.view().bytes();
        CHECK(bytes == 48);  // seed, epoch, samples taken; window, samples, augmentation
        for (int after = 1; after <= 4; ++after) {
          Samples all = seen;
          for (int rank = 0; rank < after; ++rank) {
            const auto loader = loader_of({rank, after}, 1 + after % 3, after % 3);
            loader->load_state_dict(state);
            if (loader->consumed() >= n) continue;
            const Samples rest = flat(epoch_of(*loader));
            all.insert(all.end(), rest.begin(), rest.end());
          }
          REQUIRE(sorted(all) == up_to(n));
        }
      }
    }
  }
}

TEST_CASE("the state of another seed's order is refused, and gives an unnamed seed") {
  const Folder folder;
  const auto set = shards_in(folder, {9});
  DataLoader saved(set, set->sampler({}, {.seed = 7}), {.batch_size = 2});
  saved.next();
  DataLoader other(set, set->sampler({}, {.seed = 8}), {.batch_size = 2});
  const std::string message = error_of([&] { other.load_state_dict(saved.state_dict()); });
  check_has(message, "seed: expected 8, as of this sampler, got 7");
  CHECK(other.consumed() == 0);

  const DatasetRef plain = set;
  DataLoader drawn(plain, {.batch_size = 2, .shuffle = true, .seed = 3});
  const Samples begun = numbers_in(*drawn.next());
  DataLoader named(plain, {.batch_size = 2, .shuffle = true, .seed = 4});
  check_has(error_of([&] { named.load_state_dict(drawn.state_dict()); }), "expected 4");
  DataLoader unnamed(plain, {.batch_size = 3, .shuffle = true});
  unnamed.load_state_dict(drawn.state_dict());
  Samples all = flat(epoch_of(unnamed));
  all.insert(all.end(), begun.begin(), begun.end());
  CHECK(sorted(all) == up_to(9));
}

TEST_CASE("the state of another window, or of more shards, is refused within an epoch") {
  const Folder folder, another;
  const auto set = shards_in(folder, {9, 9});
  DataLoader saved(set, set->sampler({}, {.window = 8}), {.batch_size = 2});
  DataLoader wide(set, set->sampler({}, {.window = 16}), {.batch_size = 2});
  wide.load_state_dict(saved.state_dict());
  Samples all = numbers_in(*saved.next());
  peal::NamedTensors state = saved.state_dict();
  check_has(error_of([&] { wide.load_state_dict(state); }),
            "window: expected 16, as of this sampler, got 8");
  CHECK(wide.consumed() == 0);
  const auto more = shards_in(another, {9, 9, 1});
  DataLoader longer(more, more->sampler({}, {.window = 8}), {.batch_size = 2});
  check_has(error_of([&] { longer.load_state_dict(state); }),
            "samples: expected 19, as of this sampler, got 18");
  // States of before, which do not say it.
  std::erase_if(
      state, [](const auto& entry) { return entry.first == "window" || entry.first == "samples"; });
  DataLoader later(set, set->sampler({}, {.window = 8}), {.batch_size = 2});
  later.load_state_dict(state);
  const Samples rest = flat(epoch_of(later));
  all.insert(all.end(), rest.begin(), rest.end());
  CHECK(sorted(all) == up_to(18));
}

TEST_CASE("a bad sample of a shard is counted and named, and is not fatal") {
  const Folder folder;
  TarFiles files = peal::testing::numbered(0, 6);
  for (auto& [name, content] : files) {
    if (name == "set/2.x") content = "two";
    if (name == "set/4.cls") content = "";
  }
  const std::string path = put(folder.path / "bad.tar", text_of(tar_of(files)));
  const auto set = std::make_shared<TarShards>(std::vector{path}, decode_number);
  check_has(error_of([&] {
              set->get(Samples{1, 2});
            }),
            "bad.tar: sample 'set/2': expected an integer in its file 'x', got 'two'");
  const std::string said = stderr_of([&] {
    DataLoader loader(set, {.batch_size = 2, .workers = 1, .max_bad_samples = 2});
    CHECK(flat(epoch_of(loader)) == Samples{0, 1, 3, 3, 5, 5});
    REQUIRE(loader.bad_samples().size() == 2);
    CHECK(loader.bad_samples()[1].sample == 4);
  });
  check_has(said, "bad.tar: sample 'set/4': expected an integer in its file 'cls', got ''");
  DataLoader strict(set, {.batch_size = 2});
  check_has(error_of([&] { epoch_of(strict); }), "sample 'set/2'");
}

TEST_CASE("shards that are missing, cut short, packed or no tar are named") {
  const Folder folder;
  const auto paths = write_shards(folder.path, {3, 3});
  const std::string none = (folder.path / "none.tar").string();
  check_has(error_of([&] {
              TarShards({paths[0], none, paths[1]}, decode_number);
            }),
            "[data] tar shards: 1 of 3 are no files here: " + none);
  check_has(error_of([&] { TarShards({}, decode_number); }), "expected shards, got none");
  check_has(error_of([&] { TarShards({"pipe:cat x.tar"}, decode_number); }),
            "1 of 1 are no files here: pipe:cat x.tar");
  check_has(error_of([&] { TarShards({folder.path.string()}, decode_number); }),
            "expected a file, got a folder");

  // Changed under a set that has its index: written again in another order, cut short while open.
  const TarShards stale({paths[0]}, decode_number);
  auto turned = peal::testing::numbered(0, 3);
  std::rotate(turned.begin(), turned.begin() + 3, turned.end());
  const auto size = fs::file_size(paths[0]);
  put(paths[0], text_of(tar_of(turned)));
  CHECK(fs::file_size(paths[0]) == size);
  fs::last_write_time(paths[0], fs::last_write_time(paths[0]) + std::chrono::hours(1));
  check_has(error_of([&] { stale.get(Samples{2}); }),
            "s0.tar: it was changed since it was looked through");
  CHECK(TarShards({paths[0]}, decode_number).get(Samples{0}).x.item<std::int64_t>() == 1);
  const TarShards before({paths[1]}, decode_number);
  before.get(Samples{0});
  fs::resize_file(paths[1], 1024 + 300);
  check_has(error_of([&] { before.get(Samples{2}); }),
            "s1.tar: it was changed since it was looked");
  // And before it had one: within a content, and within a header.
  fs::resize_file(paths[1], 512 + 700 + 400);
  const std::string message = error_of([&] { TarShards({paths[1]}, decode_number); });
  check_has(message, "s1.tar: it ends within 'set/3.seg.PNG' (700 bytes), ");
  check_has(message, "bytes early; copy or download the archive again");

  const std::string text = put(folder.path / "no.tar", std::string(3000, 'x'));
  check_has(error_of([&] { TarShards({text}, decode_number); }), "no.tar: not a tar archive");
  const std::string packed = put(folder.path / "p.tar", "\x1f\x8b\x08 and more");
  check_has(error_of([&] { TarShards({packed}, decode_number); }), "p.tar: its samples cannot be");
  const std::string bare = put(folder.path / "bare.tar", text_of(tar_of({{"README", "x"}})));
  check_has(error_of([&] { TarShards({bare}, decode_number); }), "bare.tar: found no sample");
  const std::string twice =
      put(folder.path / "twice.tar", text_of(tar_of({{"a.x", "1"}, {"a.X", "2"}})));
  check_has(error_of([&] { TarShards({twice}, decode_number); }), "sample 'a' has two files 'x'");
}

TEST_CASE("shards of images are tensors and classes") {
  const Folder folder;
  const auto image = peal::testing::png_of(peal::testing::drawn_image(6, 8));
  const auto photo = peal::testing::jpeg_of(peal::testing::drawn_image(6, 8));
  const TarFiles files{{"a.png", std::string(text_of(image))},
                       {"a.cls", "3"},
                       {"b.jpg", std::string(text_of(photo))},
                       {"b.cls", "4"},
                       {"c.jpg", "broken"},
                       {"c.cls", "5"},
                       {"d.cls", "6"}};
  const std::string path = put(folder.path / "i.tar", text_of(tar_of(files)));
  const TarShards set({path}, peal::data::decode_images());
  const Batch batch = set.get(Samples{1, 0});
  CHECK(batch.x.shape() == peal::Shape{2, 3, 6, 8});
  CHECK(batch.y.to_vector<std::int64_t>() == Samples{4, 3});
  CHECK(batch.x.to_vector<float>()[144] ==
        static_cast<float>(peal::testing::drawn_image(6, 8).pixels[0]) / 255);
  check_has(error_of([&] { set.get(Samples{2}); }), "i.tar: sample 'c'");
  check_has(error_of([&] { set.get(Samples{3}); }),
            "i.tar: sample 'd': expected a file 'jpg', found cls");
}

TEST_CASE("more shards than stay open are read from several threads") {
  const Folder folder;
  const Samples sizes(70, 2);
  const auto set = shards_in(folder, sizes, {.keep_index = false});
  DataLoader loader(set, set->sampler({}, {.window = 140}), {.batch_size = 5, .workers = 3});
  CHECK(sorted(flat(epoch_of(loader))) == up_to(140));
}
