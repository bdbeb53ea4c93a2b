// Names of files on servers. tests/scripts/downloads_test.py tests the downloads.
#include "engine/downloads/remote_file.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include "kernels/base/error.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

std::string error_of_name(const std::string& name) {
  try {
    remote_file_of(name);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("hf:// names: repository, revision and file have their defaults") {
  unsetenv("HF_ENDPOINT");
  const RemoteFile plain = remote_file_of("hf://timm/resnet18.tv_in1k");
  CHECK(plain.url == "https://huggingface.co/timm/resnet18.tv_in1k/resolve/main/model.safetensors");
  CHECK(plain.file_name == "model.safetensors");
  CHECK(plain.is_of_hub);
  CHECK_FALSE(plain.is_fixed);
  const std::string commit(40, 'a');
  CHECK(url_at_commit(plain, commit) ==
        "https://huggingface.co/timm/resnet18.tv_in1k/resolve/" + commit + "/model.safetensors");
  CHECK(url_at_commit(plain, "") == plain.url);
  CHECK(url_at_commit(plain, "../../x") == plain.url);
  const RemoteFile file = remote_file_of("hf://a/b@" + commit + "/sub/my+w.pth");
  CHECK(file.url == "https://huggingface.co/a/b/resolve/" + commit + "/sub/my%2Bw.pth");
  CHECK(file.is_fixed);
  setenv("HF_ENDPOINT", "https://mirror:8443/hub/", 1);
  CHECK(remote_file_of("hf://a/b@v1").url ==
        "https://mirror:8443/hub/a/b/resolve/v1/model.safetensors");
  for (const char* endpoint : {"http://mirror", "mirror", "https://"}) {
    setenv("HF_ENDPOINT", endpoint, 1);
    check_contains(error_of_name("hf://a/b"), "HF_ENDPOINT: expected a URL that begins with");
  }
  unsetenv("HF_ENDPOINT");
}

TEST_CASE("hf:// names that are refused") {
  CHECK_THROWS_AS(remote_file_of("hf://../.."), Error);
  CHECK_THROWS_AS(remote_file_of("hf://owner/repo@.."), Error);
  check_contains(error_of_name("hf://a"), "such as hf://timm/resnet18.tv_in1k, found no repo");
  for (const char* name : {"hf:///b", "hf://a/", "hf://a/@main", "hf://a/b@", "hf://a/b//x",
                           "hf://a/b/../x", "hf://a/b/."}) {
    CAPTURE(name);
    check_contains(error_of_name(name), "found an empty part");
  }
  check_contains(error_of_name("hf://a/b?x"), "a character other than letters");
  check_contains(error_of_name("hf://a/b c"), "printable ASCII");
}

TEST_CASE("https:// names: the file's own name, without characters unsuitable in a file name") {
  const RemoteFile file = remote_file_of("https://Host/a/w%20x.pth?token=1#part");
  CHECK(file.url == "https://Host/a/w%20x.pth?token=1");
  CHECK(file.file_name == "w_20x.pth");
  CHECK_FALSE(file.is_of_hub);
  CHECK(url_at_commit(file, std::string(40, 'a')) == file.url);
  CHECK(remote_file_of("https://host/...").file_name == "weights");
  CHECK(remote_file_of("https://host/.hidden").file_name == "hidden");
  for (const char* name : {"https://host", "https://host/", "https:///x", "https://host?x/y"}) {
    CAPTURE(name);
    check_contains(error_of_name(name), "found no file");
  }
  check_contains(error_of_name("ftp://host/x"), "expected https:// or hf://");
  CHECK(origin_of("https://Host:1/x") == "https://host:1");
  CHECK(origin_of("https://host?x") == "https://host");
}
