#include "engine/config/secrets.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace dpt {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("a name is secret if one of its words is") {
  for (const char* name :
       {"token", "TOKEN", "--token", "hf_token", "S3_SECRET", "AWS_SECRET_ACCESS_KEY", "api-key",
        "data.password", "Key", "x.key.y", "-token", "_KEY_"}) {
    INFO(name);
    CHECK(is_secret_name(name));
  }
  for (const char* name : {"", "tokens", "keys", "monkey", "keyboard", "tokenizer", "secretary",
                           "passwd", "apikey", "--run-dir", "data.root", "...", "pass_word"}) {
    INFO(name);
    CHECK(!is_secret_name(name));
  }
}

TEST_CASE("a command line is shown without the values of secret names") {
  CHECK(
      without_secrets({"dpt", "train", "c.yaml", "--token", "abc", "--api-key=abc=d", "seed=1"}) ==
      Words{"dpt", "train", "c.yaml", "--token", "***", "--api-key=***", "seed=1"});
  CHECK(without_secrets({"S3_SECRET=a b", "data.password=x", "key=", "=x", "key", "next"}) ==
        Words{"S3_SECRET=***", "data.password=***", "key=***", "=x", "key", "next"});
  // An option that needs no value does not hide the next option.
  CHECK(without_secrets({"--token", "--overwrite", "x"}) == Words{"--token", "--overwrite", "x"});
  // Layers and tensors may have these names.
  const Words names = {"model.layers.key.out_channels=32", "model.layers.token_mix.0.bias=false",
                       "model.patch=[{delete: key}]", "weights.map.key.=query."};
  CHECK(without_secrets(names) == names);
  CHECK(without_secrets({"model.layers.a.key=32"}) == Words{"model.layers.a.key=***"});
}

TEST_CASE("user and password of a URL are hidden in any text") {
  CHECK(hide_secrets("https://user:pw@host/x?a=b@c") == "https://***@host/x?a=b@c");
  CHECK(hide_secrets("a s3://me@b:9000/x, ftp://u:p@s@c") == "a s3://***@b:9000/x, ftp://***@c");
  CHECK(hide_secrets("/d/https:/user:pw@host/x: no such file") ==
        "/d/https:/***@host/x: no such file");
  CHECK(without_secrets({"data.root=https://u:p@h/x"}) == Words{"data.root=https://***@h/x"});
  for (const char* text : {"https://host/@x", "host:/export@1/x", "user@host:/x", "://a:b@c",
                           "https://", "https://@host", "a:/b", "tcp://127.0.0.1:80"}) {
    CHECK(hide_secrets(text) == text);
    CHECK(!has_url_login(text));
  }
}

TEST_CASE("values that were remembered are hidden in messages") {
  remember_secrets_of({"dpt", "--token", "canary-of-a-test", "key=q7"});
  remember_secret("canary-of-a-test/longer", "${DIR}");
  remember_secret("tiny");
  CHECK(hide_secrets("found canary-of-a-test, canary-of-a-tests/x") == "found ***, ***s/x");
  CHECK(hide_secrets("/canary-of-a-test/longer/x") == "/${DIR}/x");
  CHECK(hide_secrets("q7 is too short, tinyness and tiny are words, tiny/tiny/x=tiny is not") ==
        "q7 is too short, tinyness and tiny are words, ***/***/x=*** is not");
}

}  // namespace
}  // namespace dpt
