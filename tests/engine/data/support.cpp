#include "tests/engine/data/support.h"

#include <zlib.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "datasets/dataset.h"
#include "engine/data/data_sets.h"
#include "engine/data/loader.h"
#include "tests/support/skip.h"

namespace dpt::data_test {

namespace fs = std::filesystem;

void TempDir::write(const std::string& name, const Bytes& bytes) const {
  const fs::path to = fs::path(path()) / name;
  fs::create_directories(to.parent_path());
  std::ofstream out(to, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.flush().good());
}

Bytes gzip(const Bytes& bytes) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes out(deflateBound(&stream, bytes.size()) + 64);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

Bytes idx(const std::vector<std::uint32_t>& dims, const Bytes& elements) {
  Bytes out = {0, 0, 8, static_cast<std::uint8_t>(dims.size())};
  for (const std::uint32_t n : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      out.push_back(static_cast<std::uint8_t>(n >> shift));
    }
  }
  return concat(out, elements);
}

Bytes noise(std::size_t count, std::uint32_t seed) {
  Bytes out(count);
  std::uint32_t x = seed;
  for (std::uint8_t& byte : out) {
    x = (x * 1103515245U + 12345U) & 0x7fffffffU;
    byte = static_cast<std::uint8_t>(x >> 16);
  }
  return out;
}

Bytes concat(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string error_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  FAIL("no error was thrown");
  return {};
}

std::string error_of(const std::function<void()>& action, const TempDir& dir, ErrorKind kind) {
  const std::string text = error_of(action, kind);
  std::string shown;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(dir.path(), from)) != std::string::npos;) {
    shown.append(text, from, at - from);
    shown += '$';
    from = at + dir.path().size();
  }
  shown.append(text, from);
  return shown;
}

namespace {

/// Sets the field of that name; "OUTER.NAME" addresses a field of a nested struct.
void set_field(const ObjectTable& table, void* options, const std::string& name,
               const PlainValue& value) {
  const std::size_t dot = name.find('.');
  for (const Field& field : table.fields) {
    if (field.name != name.substr(0, dot)) continue;
    if (dot == std::string::npos) return field.set(options, value);
    return set_field(*field.object, field.nested(options), name.substr(dot + 1), value);
  }
  FAIL("no field is called " << name);
}

}  // namespace

Variant variant(const VariantTable& table, const std::string& name, const Fields& fields) {
  for (const ObjectTable* object : table.alternatives) {
    if (object->name != name) continue;
    const std::shared_ptr<void> options = object->make();
    for (const auto& [key, value] : fields) set_field(*object, options.get(), key, value);
    return {name, {"config.yaml", 3, 5}, object, options};
  }
  FAIL("no " << table.what << " is called " << name);
  return {};
}

DataSets open(const std::string& name, const Fields& fields, const DataRequirements& requirements) {
  return open_dataset(variant(dataset_kinds().table(), name, fields), requirements);
}

std::pair<Bytes, std::int32_t> sample(const DataSource& source, std::int64_t index) {
  Bytes pixels(static_cast<std::size_t>(source.shape().elements()) * size_of(source.type()));
  std::int32_t label = -1;
  source.read(index, std::as_writable_bytes(std::span(pixels)), label);
  return {pixels, label};
}

std::string real_data(const std::string& name) {
  const char* folder = std::getenv("DPT_DATA");
  const fs::path path =
      (folder ? fs::path(folder) : fs::path(testing::source_dir()) / ".." / "shared" / "datasets") /
      name;
  if (fs::exists(path)) return path.string();
  testing::skip_test(path.string() + " is not there (set DPT_DATA)");
  return {};
}

}  // namespace dpt::data_test
