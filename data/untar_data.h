// SPDX-License-Identifier: Apache-2.0
// Data sets from archives (fastai: untar_data): a tar, packed or not, from a path or a server, is
// unpacked once into a cache and found there from then on.
//
//   const auto folder = launch::rank0_first(job.group(), [] {
//     return data::untar_data("https://host/imagenette2.tgz", {.sha256 = "569b4497.."});
//   });
//   const auto train = data::image_folder(folder / "imagenette2" / "train");
//
// The cache is $PEAL_HOME, or else $XDG_CACHE_HOME/peal or ~/.cache/peal. A set is there whole or
// not at all: it is unpacked beside its place, and renamed when all of it is there and the checksum
// is right. It is unpacked anew where its archive's checksum is another than the set was made from;
// that is looked at where, of a file, the size or time is another. Thread safety: threads and
// processes may ask for the same set at once; one works, the others wait for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace peal::data {

struct UntarOptions {
  std::string sha256 = {};           // of the archive, 64 hexadecimal digits; empty: whatever comes
  std::filesystem::path cache = {};  // empty: as above
};

// The folder with what was in the archive: cache/data/NAME, without .tar, .tar.gz or .tgz; where
// that is of another archive with other content, NAME and some digits. Names are those of
// open_bytes(). A file that is gone is still served, unless the same content was asked for by
// another path since. Symbolic links are left out, with a warning. Errors: those of TarReader and
// open_bytes(), another checksum, a name in the archive that leads out of the folder, a folder that
// is not writable or cannot be locked.
std::filesystem::path untar_data(const std::string& archive, const UntarOptions& options = {});

// Errors: none of the variables is set.
std::filesystem::path cache_folder();

}  // namespace peal::data
