// SPDX-License-Identifier: Apache-2.0
// What goes wrong with sharded checkpoints is an Error on all ranks; a save that failed leaves the
// checkpoint before it and nothing of itself, a load that failed has changed nothing.
#include <peal/nn/parallel/sharded/checkpoint_index.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <csignal>
#include <fstream>
#include <functional>

#include <sys/resource.h>

#include "sharded_checkpoint_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

fs::path shard(const fs::path& folder, int rank, int number = 1) {
  return folder / concat("shard-", number, "-rank-", rank, "-of-2.safetensors");
}

void change_byte(const fs::path& path, std::size_t at) {
  std::string text = content_of(path);
  text.at(at) = static_cast<char>(text.at(at) ^ 1);
  write(path, text);
}

// Of the index, with a checksum that is right.
void change_index(const fs::path& folder, const std::function<void(nn::CheckpointIndex&)>& change) {
  const fs::path path = folder / nn::sharded_index_name;
  nn::CheckpointIndex index = nn::index_of_json(content_of(path), "index");
  change(index);
  write(path, nn::to_json(index));
}

nn::CheckpointIndex::Entry& entry(nn::CheckpointIndex& index, const std::string& name) {
  for (auto& each : index.tensors) {
    if (each.tensor.name == name) return each;
  }
  throw std::runtime_error("no such tensor: " + name);
}

// Two ranks save, f does something to the folder, and what `how` and `parts` get then is an Error
// on all ranks that has all of these parts, after which they are as before.
void check_refused(const std::function<void(const fs::path&)>& f,
                   const std::vector<std::string>& has, How how = How::units) {
  const Folder folder;
  two([&](const Group& group, int) {
    Training training(How::units, group);
    training.steps(0, 2);
    nn::save_sharded(folder.path, training.parts, group);
  });
  f(folder.path);
  two([&](const Group& group, int) {
    Training training(how, group);
    training.steps(0, 1);
    const NamedTensors values = training.values(), moments = training.moments();
    const std::string error =
        error_of([&] { nn::load_sharded(folder.path, training.parts, group); });
    for (const std::string& part : has) check_has(error, part);
    check_has(error, concat("load ", folder.path.string()));
    CHECK(difference(training.values(), values) == 0);
    CHECK(difference(training.moments(), moments) == 0);
    training.step(5);  // the group goes on
  });
}

// Of which rank r has its own elements; or whatever a test puts there.
struct Pieces {
  std::vector<nn::LocalTensor> mine;
  NamedTensors state_dict() const { return {}; }
  void load_state_dict(const NamedTensors&) const {}
  nn::LocalState local_state() const {
    return {[this] { return mine; }, nn::all_of, [](const NamedTensors&) {}};
  }
};

nn::LocalTensor ones(const std::string& key, std::int64_t whole, std::int64_t begin,
                     std::int64_t count) {
  return {key, {whole}, full({count}, 1.0), begin};
}

// A save of two ranks that goes wrong: an Error on both that has this, and the checkpoint before it
// is whole, and all that there is.
void check_fails(const std::function<Pieces(int rank)>& make, const std::string& has) {
  const Folder folder;
  two([&](const Group& group, int rank) {
    Training training(How::units, group);
    training.steps(0, 1);
    nn::save_sharded(folder.path, training.parts, group);
    const NamedTensors values = training.values();
    const Pieces pieces = make(rank);
    const std::string error = error_of([&] {
      nn::save_sharded(folder.path, {{"model", *training.fsdp}, {"pieces", pieces}}, group);
    });
    check_has(error, has);
    group.barrier().wait();
    CHECK(folder.entries() == 3);
    group.barrier().wait();
    training.steps(1, 2);
    nn::load_sharded(folder.path, training.parts, group);
    CHECK(difference(training.values(), values) == 0);
    nn::save_sharded(folder.path, training.parts, group);
    CHECK(fs::exists(shard(folder.path, rank, 2)));
  });
  CHECK(folder.entries() == 3);
}

}  // namespace

TEST_CASE("a damaged, cut or missing file is an Error on all ranks, and nothing has changed") {
  for (const int rank : {0, 1}) {
    check_refused([&](const fs::path& folder) { fs::remove(shard(folder, rank)); },
                  {concat("rank-", rank), "cannot open"});
    check_refused(
        [&](const fs::path& folder) {
          fs::resize_file(shard(folder, rank), fs::file_size(shard(folder, rank)) - 8);
        },
        {concat("rank-", rank), "truncated"});
    // The last byte is an element's: only the checksum shows it. What is whole lies in rank 0's
    // file, so all read from that one, and one looks at all of it.
    check_refused(
        [&](const fs::path& folder) {
          change_byte(shard(folder, rank), fs::file_size(shard(folder, rank)) - 1);
        },
        {concat("rank ", rank), concat("rank-", rank), "checksum"});
    // Another one that is whole.
    check_refused(
        [&](const fs::path& folder) {
          save_safetensors(shard(folder, rank), {{"a", full({2}, 1.0)}}, {{"peal.checksum", ""}});
        },
        {concat("rank-", rank), "it is another one, or was cut short"});
  }
}

TEST_CASE("a copy that is damaged where one rank alone reads it is an Error on all ranks") {
  const Folder folder;
  two([&](const Group& group, int) {
    Training training(How::units, group);
    nn::save_sharded(folder.path / "0", training.parts, group);
  });
  fs::copy(folder.path / "0", folder.path / "1");
  // Rank 1 reads the other file of its copy for the checksums alone.
  for (const auto& [of, damaged] : {std::pair{0, 1}, {1, 0}}) {
    const fs::path path = shard(folder.path / std::to_string(of), damaged);
    const std::string whole = content_of(path);
    change_byte(path, fs::file_size(path) - 1);
    two([&](const Group& group, int rank) {
      Training training(How::ddp, group);
      const NamedTensors values = training.values();
      const nn::Part model = training.parts[0];
      const std::string error = error_of(
          [&] { nn::load_sharded(folder.path / std::to_string(rank), {model}, group, false); });
      check_has(error, concat("rank ", of));
      check_has(error, concat("rank-", damaged));
      CHECK(difference(training.values(), values) == 0);
    });
    write(path, whole);
  }
}

TEST_CASE(
    "words that are no UTF-8 on one rank are an Error on all, and nothing of the save stays") {
  const Folder folder;
  two([&](const Group& group, int rank) {
    Training training(How::ddp, group);
    const Metadata metadata{{"host", rank == 1 ? "caf\xe9" : "cafe"}};
    check_has(error_of([&] {
                nn::save_sharded(folder.path / "run/new/", training.parts, group, metadata);
              }),
              "rank 1");
  });
  CHECK(fs::is_empty(folder.path / "run/new"));
}

TEST_CASE("files that are called nearly as shards stay") {
  const Folder folder;
  two([&](const Group& group, int rank) {
    Training training(How::ddp, group);
    if (rank == 0) write(folder.path / "shard-backup-rank-0.safetensors", "mine");
    group.barrier().wait();
    nn::save_sharded(folder.path, training.parts, group);
  });
  CHECK(content_of(folder.path / "shard-backup-rank-0.safetensors") == "mine");
}

TEST_CASE("what is no index, or a damaged one, is an Error on all ranks") {
  const auto with_index = [](const std::function<void(const fs::path&)>& f) {
    return [f](const fs::path& folder) { f(folder / nn::sharded_index_name); };
  };
  check_refused(with_index([](const fs::path& path) { fs::remove(path); }),
                {"is no folder of a sharded checkpoint"});
  check_refused(with_index([](const fs::path& path) { write(path, "[1, 2"); }),
                {"it is no index of a sharded checkpoint, or was cut short"});
  check_refused(with_index([](const fs::path& path) { write(path, "{\"a\": 1}"); }),
                {"it is no index of a sharded checkpoint"});
  check_refused(
      with_index([](const fs::path& path) { fs::resize_file(path, fs::file_size(path) / 2); }),
      {"cut short"});
  check_refused(with_index([](const fs::path& path) {
                  change_byte(path, content_of(path).find("\"end\":") + 6);
                }),
                {"expected the checksum crc32:"});
  check_refused(
      [](const fs::path& folder) {
        change_index(folder, [](nn::CheckpointIndex& index) { index.files[0].name = "../a"; });
      },
      {"a file of the folder is called '../a'"});
}

TEST_CASE("runs that leave elements out, or have them twice, are an Error that names the tensor") {
  const std::string name = "model.transformer.wte.weight";
  const auto with_runs = [&](const std::function<void(std::vector<nn::CheckpointIndex::Run>&)>& f) {
    return [&, f](const fs::path& folder) {
      change_index(folder, [&](nn::CheckpointIndex& index) { f(entry(index, name).runs); });
    };
  };
  check_refused(with_runs([](auto& runs) { runs.pop_back(); }), {name, "are in no file"});
  check_refused(with_runs([](auto& runs) { ++runs.front().begin; }),
                {name, "elements 0 to 1 are in no file"});
  check_refused(with_runs([](auto& runs) { runs.push_back(runs.front()); }),
                {name, "are there twice"});
  check_refused(with_runs([](auto& runs) { ++runs.back().end; }), {name, "more than it has"});
  check_refused(with_runs([](auto& runs) { runs.front().file = 7; }), {name, "in file 7"});
}

TEST_CASE("another model's checkpoint is an Error that names tensors and shapes") {
  const Folder folder;
  two([&](const Group& group, int) {
    Training training(How::units, group);
    nn::save_sharded(folder.path, training.parts, group);
  });
  const auto other = [] { return nn::GPT({13, 6, 2, 2, 5}); };
  for (const How how : {How::units, How::ddp}) {
    two([&](const Group& group, int) {
      Training training(how, group, fresh<nn::GPT>(other));
      const NamedTensors values = training.values();
      const std::string error =
          error_of([&] { nn::load_sharded(folder.path, training.parts, group); });
      check_has(error, "part 'model': load_state_dict: ");
      check_has(error, "wrong shape: ");
      check_has(error, "expected [13, 6], got [11, 6]");
      check_has(error, "unexpected: ");
      CHECK(difference(training.values(), values) == 0);
    });
  }
}

TEST_CASE("a state that an optimizer cannot take is found before the model is loaded") {
  const Folder folder;
  for (const How how : {How::units, How::zero, How::ddp}) {
    CAPTURE(name_of(how));
    two([&](const Group& group, int) {
      Training training(how, group);
      training.steps(0, 2);
      nn::save_sharded(folder.path, training.parts, group);
    });
    // Of one parameter alone, which one rank owns.
    change_index(folder.path, [](nn::CheckpointIndex& index) {
      auto& wrong = entry(index, "optimizer.transformer.ln_f.bias.exp_avg_sq");
      wrong.tensor.name += "_wrong";
    });
    two([&](const Group& group, int) {
      Training training(how, group);
      training.steps(0, 1);
      const NamedTensors values = training.values(), moments = training.moments();
      const std::string error =
          error_of([&] { nn::load_sharded(folder.path, training.parts, group); });
      check_has(error, "part 'optimizer': ");
      check_has(error, "transformer.ln_f.bias.exp_avg_sq");
      CHECK(difference(training.values(), values) == 0);
      CHECK(difference(training.moments(), moments) == 0);
    });
  }
}

TEST_CASE("what was loaded before a part that cannot be is taken back, in place too") {
  const Folder folder;
  two([&](const Group& group, int) {
    Training training(How::zero, group);
    nn::ExponentialMovingAverage average(training.model, {.decay = 0.5});
    const std::vector<nn::Part> parts{{"average", average}, {"optimizer", *training.optimizer}};
    const auto step = [&] {
      training.step(0);
      average.update();
    };
    step();
    nn::save_sharded(folder.path, parts, group);
    group.barrier().wait();
    if (group.rank() == 0) {
      change_index(folder.path, [](nn::CheckpointIndex& index) {
        entry(index, "optimizer.transformer.ln_f.bias.exp_avg").tensor.name += "_wrong";
      });
    }
    group.barrier().wait();
    step();
    NamedTensors before;
    for (const auto& [key, tensor] : average.state_dict()) before.emplace_back(key, tensor.clone());
    const NamedTensors moments = training.moments();
    check_has(error_of([&] { nn::load_sharded(folder.path, parts, group); }), "exp_avg_wrong");
    CHECK(difference(average.state_dict(), before) == 0);
    CHECK(difference(training.moments(), moments) == 0);
  });
}

TEST_CASE("a rank that cannot write: all raise what it says, and the checkpoint before stays") {
  for (const int bad : {0, 1}) {
    check_fails(
        [&](int rank) {
          Pieces pieces{{ones("a", 4, 2 * rank, 2)}};
          if (rank == bad) pieces.mine.push_back(ones("a", 4, 2 * rank, 2));
          return pieces;
        },
        concat("rank ", bad, ": save "));
  }
}

TEST_CASE("a file that grows too large for the disk: the rank is named, and nothing of it stays") {
  const Folder folder;
  two([&](const Group& group, int rank) {
    Pieces pieces{{ones("a", 3, rank, rank + 1)}};
    nn::save_sharded(folder.path, {{"pieces", pieces}}, group);
    group.barrier().wait();
    pieces.mine.push_back(ones("b", 200'000, rank == 0 ? 0 : 1, rank == 0 ? 1 : 199'999));
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit;
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
    group.barrier().wait();
    rlimit low = limit;
    low.rlim_cur = 100'000;
    if (rank == 0) REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
    group.barrier().wait();
    const std::string error = error_of([&] {
      nn::save_sharded(folder.path, {{"pieces", pieces}}, group);
    });
    group.barrier().wait();
    if (rank == 0) {
      ::setrlimit(RLIMIT_FSIZE, &limit);
      std::signal(SIGXFSZ, SIG_DFL);
    }
    check_has(error, "rank 1: ");
    check_has(error, "shard-2-rank-1-of-2.safetensors");
    CHECK(folder.entries() == 3);
    CHECK(fs::exists(shard(folder.path, 0)));
  });
}

TEST_CASE("where the index cannot be written there is no checkpoint, and no file of it") {
  const Folder folder;
  fs::create_directory(folder.path / nn::sharded_index_name);
  two([&](const Group& group, int) {
    Training training(How::units, group);
    check_has(error_of([&] { nn::save_sharded(folder.path, training.parts, group); }), "rank 0: ");
    group.barrier().wait();
    CHECK(folder.entries() == 1);
  });
  const fs::path file = folder.path / "file";
  write(file, "");
  two([&](const Group& group, int) {
    Training training(How::units, group);
    check_has(error_of([&] { nn::save_sharded(file, training.parts, group); }), "rank 0: ");
  });
}

TEST_CASE("ranks that leave elements out, have them twice or differ save nothing") {
  check_fails([](int rank) { return Pieces{{ones("a", 5, 3 * rank, 2)}}; },
              "pieces.a [5]: elements 2 to 3 are in no file");
  check_fails([](int rank) { return Pieces{{ones("a", 5, 2 * rank, 3)}}; },
              "pieces.a [5]: elements 2 to 3 are there twice");
  check_fails([](int rank) { return Pieces{{ones("a", 4 + rank, 2 * rank, 2)}}; },
              "pieces.a is f32 [4] on an earlier rank, and f32 [5] on rank 1");
  const Folder folder;
  two([&](const Group& group, int rank) {
    const Pieces pieces;
    const std::string name = rank == 0 ? "one" : "two";
    check_has(error_of([&] {
                nn::save_sharded(folder.path, {{name, pieces}}, group);
              }),
              "is 'one' on rank 0 and 'two' on rank 1: save the same parts on every rank");
    check_has(error_of([&] {
                nn::load_sharded(folder.path, {{"one", pieces}}, group);
              }),
              "is no folder of a sharded checkpoint");
  });
  CHECK(folder.entries() == 0);
}

TEST_CASE("what a killed save left goes with the next one") {
  const Folder folder;
  write(folder.path / "shard-7-rank-2-of-3.safetensors", "half");
  write(folder.path / "notes.safetensors", "mine");
  two([&](const Group& group, int) {
    Training training(How::units, group);
    nn::save_sharded(folder.path, training.parts, group);
    nn::load_sharded(folder.path, training.parts, group);
  });
  CHECK(folder.entries() == 4);
  CHECK(fs::exists(shard(folder.path, 0, 8)));
  CHECK(fs::exists(folder.path / "notes.safetensors"));
}

TEST_CASE("of a folder that all see one rank looks at all bytes of a file, and at a copy its own") {
  const Folder folder, copy;
  constexpr std::int64_t size = 1 << 20;  // bytes, that both ranks want
  const auto pieces_of = [](int rank) {
    Pieces all{{ones("own", 2, rank, 1)}};
    all.mine.push_back({"alike", {size / 4}, full({size / 4}, 1.0), std::nullopt});
    return all;
  };
  two([&](const Group& group, int rank) {
    const Pieces pieces = pieces_of(rank);
    nn::save_sharded(folder.path, {{"pieces", pieces}}, group);
  });
  fs::copy(folder.path, copy.path);
  const auto bytes_read = [] {  // by this thread
    std::ifstream file("/proc/thread-self/io");
    std::string name;
    std::int64_t bytes = 0;
    file >> name >> bytes;
    return name == "rchar:" ? bytes : 0;
  };
  two([&](const Group& group, int rank) {
    Pieces pieces = pieces_of(rank);
    const std::int64_t before = bytes_read();
    nn::load_sharded(folder.path, {{"pieces", pieces}}, group);
    const double times = static_cast<double>(bytes_read() - before) / size;
    CHECK(times < (rank == 0 ? 2.5 : 1.5));                  // its elements, and once to look
    if (before > 0) CHECK(times > (rank == 0 ? 1.9 : 0.9));  // where the system counts
  });
  change_byte(shard(copy.path, 0), fs::file_size(shard(copy.path, 0)) - 1);
  two([&](const Group& group, int rank) {
    Pieces pieces = pieces_of(rank);
    const fs::path& mine = rank == 0 ? folder.path : copy.path;
    const std::string error = error_of([&] {
      nn::load_sharded(mine, {{"pieces", pieces}}, group);
    });
    check_has(error, "rank 1");
    check_has(error, "checksum");
  });
}
