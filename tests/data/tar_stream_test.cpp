// SPDX-License-Identifier: Apache-2.0
// Tar shards and JSON lines as streams: packed, through pipes, shuffled in windows, taken up after
// any number of samples, and what is said of broken ones.
#include <peal/autograd/core/out_of_memory.h>
#include <peal/data/data.h>
#include <peal/data/formats/byte_source.h>
#include <peal/tests/errors.h>

#include "drawn.h"
#include "tar_files.h"

#include <zlib.h>

#include <chrono>
#include <csignal>
#include <new>

using peal::data::JsonRecord;
using peal::data::JsonStream;
using peal::data::StreamLoader;
using peal::data::StreamLoaderOptions;
using peal::data::TarStream;
using peal::data::TarStreamOptions;
using peal::testing::check_has;
using peal::testing::decode_number;
using peal::testing::error_of;
using peal::testing::Folder;
using peal::testing::numbered;
using peal::testing::put;
using peal::testing::stderr_of;
using peal::testing::tar_entry;
using peal::testing::tar_of;
using peal::testing::text_of;
using peal::testing::write_shards;

namespace {

std::string gzip_of(std::string_view bytes) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&z, bytes.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

Samples rest_of(StreamLoader& loader) {
  Samples all;
  while (const auto batch = loader.next()) {
    const Samples more = batch->x.to_vector<std::int64_t>();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

std::shared_ptr<TarStream> stream_of(std::vector<std::string> shards, std::int64_t window = 1) {
  return std::make_shared<TarStream>(std::move(shards), decode_number,
                                     TarStreamOptions{.window = window});
}

}  // namespace

TEST_CASE("a shard is the same as a file, packed, and through a pipe") {
  const Folder folder;
  const auto archive = tar_of(numbered(0, 300));  // more than a step of the unpacker
  const std::string plain = put(folder.path / "s.tar", text_of(archive));
  const std::string packed = put(folder.path / "s.tar.gz", gzip_of(text_of(archive)));
  for (const std::string& name :
       {plain, "file:" + plain, packed, "pipe:cat '" + plain + "'", "pipe:cat '" + packed + "'",
        "pipe:gzip -dc < '" + packed + "'"}) {
    StreamLoader loader(stream_of({name}), {.batch_size = 7});
    REQUIRE(rest_of(loader) == up_to(300));
  }
}

TEST_CASE("a stream of shards goes on anywhere, with other ranks and readers, shuffled or not") {
  const Folder folder;
  const auto shards = write_shards(folder.path, {5, 9, 4, 7});
  for (const std::int64_t window : {1, 4, 100}) {
    const auto set = stream_of(shards, window);
    for (std::int64_t steps = 0; steps <= 6; ++steps) {
      for (int before = 1; before <= 2; ++before) {
        Samples seen;
        std::vector<peal::NamedTensors> states;
        for (int rank = 0; rank < before; ++rank) {
          StreamLoader loader(set, {.batch_size = 2,
                                    .place = {rank, before},
                                    .readers = 2,
                                    .workers = rank,
                                    .shuffle = true,
                                    .seed = 3});
          for (std::int64_t k = 0; k < steps; ++k) {
            const auto batch = loader.has_next() ? loader.next() : std::nullopt;
            if (!batch) break;
            const Samples mine = batch->x.to_vector<std::int64_t>();
            seen.insert(seen.end(), mine.begin(), mine.end());
          }
          states.push_back(loader.state_dict());
        }
        const auto state = StreamLoader::merge_states(states);
        for (int after = 1; after <= 3; ++after) {
          Samples all = seen;
          for (int rank = 0; rank < after; ++rank) {
            StreamLoader loader(set, {.batch_size = 3,
                                      .place = {rank, after},
                                      .readers = after,
                                      .shuffle = true,
                                      .seed = 3});
            loader.load_state_dict(state);
            if (!loader.has_next()) continue;
            const Samples rest = rest_of(loader);
            all.insert(all.end(), rest.begin(), rest.end());
          }
          REQUIRE(sorted(all) == up_to(25));
        }
      }
    }
  }
}

TEST_CASE("a state within a part of another seed's or window's order is refused") {
  const Folder folder;
  const auto shards = write_shards(folder.path, {20});
  const auto loader_of = [&](std::int64_t window, std::uint64_t seed) {
    return std::make_unique<StreamLoader>(stream_of(shards, window),
                                          StreamLoaderOptions{.batch_size = 4, .seed = seed});
  };
  const auto saved = loader_of(8, 1);
  Samples all = saved->next()->x.to_vector<std::int64_t>();
  peal::NamedTensors state = saved->state_dict();
  check_has(error_of([&] { loader_of(16, 1)->load_state_dict(state); }),
            "window: expected 16, as of this set, got 8");
  check_has(error_of([&] { loader_of(8, 2)->load_state_dict(state); }),
            "seed: expected 2, as of this loader, got 1");
  const std::vector<peal::NamedTensors> unlike{state, loader_of(8, 2)->state_dict()};
  check_has(error_of([&] { StreamLoader::merge_states(unlike); }), "where seed is 1 in one");
  // Where no part was begun, or samples come as they lie, any order goes on; and so do older
  // states.
  loader_of(16, 2)->load_state_dict(loader_of(8, 1)->state_dict());
  const auto as_they_lie = loader_of(1, 1);
  as_they_lie->next();
  loader_of(1, 2)->load_state_dict(as_they_lie->state_dict());
  std::erase_if(state,
                [](const auto& entry) { return entry.first == "seed" || entry.first == "window"; });
  const auto later = loader_of(8, 1);
  later->load_state_dict(state);
  const Samples rest = rest_of(*later);
  all.insert(all.end(), rest.begin(), rest.end());
  CHECK(sorted(all) == up_to(20));
}

TEST_CASE("a window shuffles within its blocks, another way in each epoch") {
  const Folder folder;
  const auto shards = write_shards(folder.path, {20});
  StreamLoader loader(stream_of(shards, 8), {.batch_size = 20, .seed = 1});
  const Samples first = rest_of(loader), second = rest_of(loader);
  CHECK(first != second);
  CHECK(first != up_to(20));
  for (std::size_t begin = 0; begin < 20; begin += 8) {
    const auto from = first.begin() + static_cast<std::ptrdiff_t>(begin);
    const Samples block(from, begin == 16 ? first.end() : from + 8);
    CHECK(sorted(block).front() == static_cast<std::int64_t>(begin));
    CHECK(sorted(block).back() ==
          static_cast<std::int64_t>(std::min(begin + 8, std::size_t{20})) - 1);
  }
}

TEST_CASE("bad samples of a stream are passed over and counted, up to as many as are allowed") {
  const Folder folder;
  auto files = numbered(0, 9);
  for (auto& [name, content] : files) {
    if (name == "set/3.x" || name == "set/7.x" || name == "set/8.x") content = "broken";
  }
  const std::string path = put(folder.path / "b.tar", text_of(tar_of(files)));
  for (const int workers : {0, 1}) {
    const std::string said = stderr_of([&] {
      StreamLoader loader(stream_of({path}),
                          {.batch_size = 2, .workers = workers, .max_bad_samples = 3});
      for (int epoch = 0; epoch < 2; ++epoch) {
        CHECK(rest_of(loader) == Samples{0, 1, 2, 4, 5, 6});
        REQUIRE(loader.bad_samples().size() == 3);
        CHECK(loader.bad_samples()[1].sample == 7);
      }
    });
    check_has(said, "[data] sample 3 of part 0 (epoch 0): ");
    check_has(said, "b.tar: sample 'set/3': expected an integer in its file 'x', got 'broken'");
    check_has(said, "; it is passed over");
    stderr_of([&] {
      StreamLoader loader(stream_of({path}),
                          {.batch_size = 2, .workers = workers, .max_bad_samples = 2});
      const std::string message = error_of([&] { rest_of(loader); });
      check_has(message, "sample 8 of part 0");
      CHECK(error_of([&] { loader.next(); }) == message);
      loader.set_epoch(0);
      CHECK(loader.next()->x.to_vector<std::int64_t>() == Samples{0, 1});
    });
    StreamLoader strict(stream_of({path}), {.batch_size = 2, .workers = workers});
    check_has(error_of([&] { rest_of(strict); }), "sample 3 of part 0 (epoch 0): ");
  }
  check_has(error_of([&] { StreamLoader(stream_of({path}), {.max_bad_samples = -1}); }), "got -1");
}

TEST_CASE("bad samples behind the last batch are counted also where a loop asks for another one") {
  const Folder folder;
  std::vector<std::string> shards;
  for (const char* name : {"a.tar", "b.tar"}) {
    auto files = numbered(0, 3);
    for (auto& [file, content] : files) {
      if (file == "set/2.x") content = "broken";
    }
    shards.push_back(put(folder.path / name, text_of(tar_of(files))));
  }
  for (const int workers : {0, 2}) {
    const auto loader_of = [&](std::int64_t most) {
      return std::make_unique<StreamLoader>(
          stream_of(shards),
          StreamLoaderOptions{
              .batch_size = 2, .readers = 2, .workers = workers, .max_bad_samples = most});
    };
    const auto two = loader_of(2), one = loader_of(1);
    const std::string said = stderr_of([&] {
      for (int epoch = 0; epoch < 2; ++epoch) {
        two->set_epoch(epoch);
        while (two->has_next()) two->next();
        CHECK(two->bad_samples().size() == 2);
      }
    });
    check_has(said, "[data] sample 2 of part 1 (epoch 1): ");
    stderr_of([&] {
      const std::string message = error_of([&] {
        while (one->has_next()) one->next();
      });
      check_has(message, "it is bad sample 2 of this epoch, of which max_bad_samples lets 1 be");
      CHECK(one->has_next());
      CHECK(error_of([&] { one->next(); }) == message);
      one->set_epoch(0);
      CHECK(one->next()->x.to_vector<std::int64_t>() == Samples{0, 1});
    });
  }
}

TEST_CASE("that there is no memory is no fault of a sample of a shard or file") {
  const Folder folder;
  const auto shards = write_shards(folder.path, {3});
  const std::string lines = put(folder.path / "n.jsonl", "{\"n\": 0}\n{\"n\": 1}\n");
  for (const bool of_tensors : {false, true}) {
    const auto full = [of_tensors](const auto&, Draw&) -> peal::data::Sample {
      if (of_tensors) throw peal::OutOfMemory("none is left");
      throw std::bad_alloc();
    };
    const auto throws_it = [of_tensors](const auto& read) {
      if (of_tensors) {
        CHECK_THROWS_AS(read(), peal::OutOfMemory);
      } else {
        CHECK_THROWS_AS(read(), std::bad_alloc);
      }
    };
    const std::vector<std::shared_ptr<const peal::data::StreamDataset>> streams{
        std::make_shared<TarStream>(shards, full),
        std::make_shared<JsonStream>(std::vector{lines}, full)};
    for (const auto& stream : streams) {
      for (const int workers : {0, 1}) {
        StreamLoader loader(stream, {.workers = workers, .max_bad_samples = 9});
        throws_it([&] { loader.next(); });
      }
    }
    const peal::data::JsonLines by_place({lines}, full);
    throws_it([&] { by_place.get(Samples{0}); });
  }
}

TEST_CASE("a program whose status nobody can know has not read all") {
  const Folder folder;
  const std::string path = put(folder.path / "a.jsonl", "{\"n\": 1}\n{\"n\": 2}\n");
  const auto before = std::signal(SIGCHLD, SIG_IGN);  // as some supervisors leave it
  const std::string said = error_of([&] {
    StreamLoader loader(std::make_shared<JsonStream>(
        std::vector<std::string>{"pipe:cat '" + path + "'; exit 3"},
        [](const JsonRecord& line, peal::data::Draw&) {
          return peal::data::Sample{Tensor::scalar(line.integer("n")), {}};
        }));
    rest_of(loader);
  });
  std::signal(SIGCHLD, before);
  check_has(said, "its status is unknown, as SIGCHLD is ignored");
}

TEST_CASE("a link in the place of a sample's file is refused, and a symbolic one is told") {
  const Folder folder;
  auto archive = tar_entry("a.x", "1");
  const auto add = [&](const std::vector<std::uint8_t>& entry) {
    archive.insert(archive.end(), entry.begin(), entry.end());
  };
  add(tar_entry("a.cls", "1"));
  add(tar_entry("README", "", '2', "", "elsewhere"));
  add(tar_entry("notes", "", '1', "", "a.x"));  // no sample's
  const auto end = [&] { return std::string(text_of(archive)) + std::string(1024, '\0'); };
  const std::string good = put(folder.path / "good.tar", end());
  add(tar_entry("b.x", "", '1', "", "a.x"));
  const std::string bad = put(folder.path / "bad.tar", end());
  const std::string link = "bad.tar: b.x: expected a file, got a link to 'a.x'; pack the shard ";
  const std::string words = "good.tar: symbolic links are left out, of which it has 1";
  const std::string streamed = stderr_of([&] {
    StreamLoader loader(stream_of({good}));
    for (int epoch = 0; epoch < 3; ++epoch) CHECK(rest_of(loader) == Samples{1});
  });
  check_has(streamed, words);
  CHECK(streamed.find(words) == streamed.rfind(words));  // once, not in each epoch
  check_has(stderr_of([&] { CHECK(peal::data::TarShards({good}, decode_number).size() == 1); }),
            words);
  check_has(error_of([&] {
              StreamLoader loader(stream_of({bad}));
              rest_of(loader);
            }),
            link);
  check_has(error_of([&] { peal::data::TarShards({bad}, decode_number); }), link);
}

TEST_CASE("a shard that cannot be read is named, and is no bad sample") {
  const Folder folder;
  const auto archive = tar_of(numbered(0, 40));
  const std::string packed = gzip_of(text_of(archive));
  const auto said_of = [&](const std::string& name) {
    StreamLoader loader(stream_of({name}), {.batch_size = 4, .max_bad_samples = 100});
    return error_of([&] { rest_of(loader); });
  };
  const std::string cut = put(folder.path / "cut.tgz", packed.substr(0, packed.size() / 2));
  check_has(said_of(cut), "cut.tgz: ");
  check_has(said_of(cut), "copy or download the archive again");
  std::string damaged = packed;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x55);
  check_has(said_of(put(folder.path / "damaged.tgz", damaged)), "damaged.tgz: ");
  check_has(said_of((folder.path / "none.tar").string()), "none.tar: no such file");
  check_has(said_of("pipe:echo no such bucket >&2; exit 3"),
            "the program that reads it ended with status 3: no such bucket");
  check_has(said_of("pipe:kill -9 $$"), "was ended by signal 9");
  check_has(said_of("s3://bucket/x.tar"), "'s3://bucket/x.tar': expected a path, file:PATH, ");
  check_has(error_of([] { peal::data::program_bytes({"no-such-program"}, "N"); }),
            "N: the program 'no-such-program' cannot be started: No such file or directory");
}

// What says so lies behind the zeros that end the archive.
TEST_CASE("the checksum behind a packed archive is read, and the status of its program") {
  const Folder folder;
  const auto said_of = [&](const std::string& name) {
    StreamLoader loader(stream_of({name}), {.batch_size = 4});
    return error_of([&] { rest_of(loader); });
  };
  std::string archive(text_of(tar_of(numbered(0, 40))));
  archive.append(9216, '\0');  // up to a block of 10240, as GNU tar writes
  const std::string packed = gzip_of(archive);
  const std::string zeros(2000, '\0');
  const std::string filled = put(folder.path / "filled.tgz", packed + zeros);
  StreamLoader loader(stream_of({filled}), {.batch_size = 4});
  CHECK(rest_of(loader) == up_to(40));

  std::string damaged = packed;
  damaged[packed.size() - 8] = static_cast<char>(damaged[packed.size() - 8] ^ 1);
  const std::string path = put(folder.path / "damaged.tgz", damaged);
  check_has(said_of(path), "damaged.tgz: damaged gzip stream: incorrect data check");
  check_has(error_of([&] { peal::data::untar_data(path, {.cache = folder.path}); }),
            "incorrect data check");
  const std::string cut = put(folder.path / "cut.tgz", packed.substr(0, packed.size() - 3));
  check_has(said_of(cut), "cut.tgz: its gzip stream is cut short");
  const std::string plain = put(folder.path / "plain.tar", archive);
  check_has(said_of("pipe:cat '" + plain + "'; echo bad sum >&2; exit 4"),
            "ended with status 4: bad sum");
  check_has(said_of("pipe:cat '" + filled + "'; exit 5"), "ended with status 5");
}

TEST_CASE("an archive of zeros alone has no samples, and a size may stand in a pax header") {
  const Folder folder;
  const std::string empty = put(folder.path / "empty.tar", std::string(10'240, '\0'));
  auto large = tar_entry("pax", "10 size=3\n", 'x');  // as of 8 GiB and more
  const auto header = tar_entry("set/0.x", "");
  large.insert(large.end(), header.begin(), header.end());
  const std::string content = "070" + std::string(509, '\0');
  large.insert(large.end(), content.begin(), content.end());
  const auto rest = tar_of({{"set/0.cls", "1"}});
  large.insert(large.end(), rest.begin(), rest.end());
  const std::string sized = put(folder.path / "sized.tar", text_of(large));
  StreamLoader loader(stream_of({empty, sized, empty}), {.batch_size = 4});
  CHECK(rest_of(loader) == Samples{70});
  const peal::data::TarShards shards({empty, sized}, decode_number);
  CHECK(shards.sizes() == Samples{0, 1});
  CHECK(shards.get(Samples{0}).x.to_vector<std::int64_t>() == Samples{70});
  StreamLoader none(stream_of({empty}), {.batch_size = 4});
  CHECK(rest_of(none).empty());
}

TEST_CASE("a program that passes over the signal is ended, whether it writes or sleeps") {
  const auto begin = std::chrono::steady_clock::now();
  for (const char* what : {"cat /dev/zero", "sleep 600"}) {
    const auto bytes = peal::data::open_bytes(std::string("pipe:trap '' TERM; echo abc; ") + what);
    std::vector<std::uint8_t> three(3);
    CHECK(bytes->read(three) == 3);
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(300));
}

TEST_CASE("a program that is no longer wanted is ended") {
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto bytes = peal::data::open_bytes("pipe:echo abc; sleep 600");
    std::vector<std::uint8_t> three(3);
    CHECK(bytes->read(three) == 3);
    CHECK(text_of(three) == "abc");
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(300));
}

TEST_CASE("lines of a packed file are a stream") {
  const Folder folder;
  std::string text = "\xef\xbb\xbf{\"n\": 0}\n\n";
  for (int n = 1; n < 12'000; ++n) {
    text += n == 7 ? std::string("{\"n\": \n") : "{\"n\": " + std::to_string(n) + "}\r\n";
  }
  text += "{\"n\": 12000}";
  const std::string packed = put(folder.path / "a.jsonl.gz", gzip_of(text));
  const auto make = [](const JsonRecord& line, Draw&) -> peal::data::Sample {
    return {Tensor::scalar(line.integer("n")), {}};
  };
  Samples expected = up_to(12'001);
  expected.erase(expected.begin() + 7);
  for (const std::int64_t window : {1, 50}) {
    const auto set = std::make_shared<JsonStream>(std::vector{packed}, make,
                                                  peal::data::JsonStreamOptions{.window = window});
    const std::string said = stderr_of([&] {
      StreamLoader loader(set, {.batch_size = 100, .max_bad_samples = 1});
      CHECK(sorted(rest_of(loader)) == expected);
    });
    check_has(said, "a.jsonl.gz:9: expected a line of JSON: ");
  }
}

TEST_CASE("samples of other lengths are put together by a collate of one's own") {
  const Folder folder;
  const auto shards = write_shards(folder.path, {3});
  const auto decode = [](const peal::data::TarSample& files, Draw&) -> peal::data::Sample {
    return {Tensor::zeros({files.number("x") + 1}), Tensor::scalar(files.number("cls"))};
  };
  const auto set = std::make_shared<TarStream>(
      shards, decode, TarStreamOptions{.together = peal::data::pad_collate()});
  StreamLoader loader(set, {.batch_size = 3});
  const auto batch = loader.next();
  CHECK(batch->x.shape() == peal::Shape{3, 3});
  CHECK((*batch)["lengths"].to_vector<std::int64_t>() == Samples{1, 2, 3});
}
