// Random damage to files of torch.save: they are read or refused, without excessive memory use. The
// sanitizer builds run this test.
#include <doctest/doctest.h>

#include "engine/checkpoints/torch_file.h"
#include "tests/engine/checkpoints/files.h"
#include "tests/support/fuzz.h"
#include "tests/support/places.h"
#include "tests/support/torch_archive.h"

namespace dpt {
namespace {

using testing::Bytes;
using testing::PickledTensor;
using namespace testing::pickled;

Bytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

/// Reads all tensors of all dictionaries.
void read_everything(const std::string& path) {
  constexpr std::uint64_t kMaxBytes = 1 << 20;  // a view may repeat its one element endlessly
  TorchFile file = TorchFile::open(path);
  for (const TorchDictionary& each : file.dictionaries()) {
    file.choose(each.key);
    file.check_integrity();
    for (const TensorEntry& entry : file.tensors()) {
      if (entry.bytes() <= kMaxBytes) CHECK(file.read(entry).size() == entry.bytes());
    }
  }
}

TEST_CASE("fuzz: files of torch.save") {
  const TempDir folder;
  const std::string path = folder.file("bad.pth");
  const std::string golden = testing::source_dir() + "/tests/golden/torch_state.pth";
  const PickledTensor view{{2, 3}, {1, 2}, "0", 12, 3};
  const std::string state =
      ordered({{"a", view.text()}, {"b", PickledTensor{{4}, {3}, "0", 12}.text()}});
  const std::string small = testing::pickle(dictionary({{"n", integer(3)}, {"net", state}}));
  const auto archive = [&](const std::string& data_pkl) {
    return testing::torch_archive(data_pkl, {{"0", std::string(48, '\1')}});
  };
  testing::fuzz({bytes_of(read_all(golden)), bytes_of(archive(small))}, 4000,
                [&](const Bytes& bytes) {
                  write_all_text(path, {bytes.begin(), bytes.end()});
                  read_everything(path);
                });
  // Damage that the archive's checksums do not detect, in the pickle itself.
  testing::fuzz({bytes_of(small)}, 8000, [&](const Bytes& bytes) {
    write_all_text(path, archive({bytes.begin(), bytes.end()}));
    read_everything(path);
  });
}

}  // namespace
}  // namespace dpt
