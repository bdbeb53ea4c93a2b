#!/usr/bin/env python3
"""Tests downloads of weights from servers on this machine. DPT names the program."""

import hashlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import threading
import unittest

from weights_server import CERTIFICATE, COMMIT, Hub, Proxy, Server, Storage

DPT = os.environ.get("DPT", "build/dev/dpt")
PATIENCE = 120  # seconds; longer than anything here takes on a busy machine
CONFIG = """\
version: 1
name: tune
data: {dataset: synthetic, size: 48, test_size: 6, classes: 3, val_split: 8, batch_size: 8}
model:
  input: [1, 16, 16]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 3}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 1}
devices: [cpu]
"""
REPO = "someone/tiny"
NAME = f"hf://{REPO}"
SHAPES = {"fc.weight": [3, 256], "fc.bias": [3]}


def safetensors(shapes, value=0.0):
    """Returns a file of fp32 tensors that all have one value."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 4
        for side in shape:
            size *= side
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + struct.pack("<f", value) * (offset // 4)


def read_tensors(path):
    """Returns type, shape and bytes of each tensor."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: (each["dtype"], each["shape"], data[8 + size :][slice(*each["data_offsets"])])
        for name, each in header.items()
    }


def write_tensors(tensors):
    header, values = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        places = [len(values), len(values) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": places}
        values += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


DATA = safetensors(SHAPES)
HASH = hashlib.sha256(DATA).hexdigest()


class HubCase(unittest.TestCase):
    """A folder with a config, and a hub."""

    def setUp(self):
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "tune.yaml").write_text(CONFIG)
        self.cache = self.folder / "cache" / "dpt" / "weights"
        unwanted = ("HF_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        self.environment = {
            name: value for name, value in os.environ.items() if not name.upper().startswith(unwanted)
        }
        self.environment.update(
            HF_ENDPOINT=self.hub.server.url,
            SSL_CERT_FILE=str(CERTIFICATE),
            XDG_CACHE_HOME=str(self.folder / "cache"),
        )

    def start(self, *words, **more):
        return subprocess.Popen(
            [os.path.abspath(DPT), *words], cwd=self.folder, env=dict(self.environment, **more),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finish(self, process):
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def run_dpt(self, *words, code=0, **more):
        """Returns stdout and stderr together."""
        found, out, err = self.finish(self.start(*words, **more))
        self.assertEqual(found, code, out + err)
        return out + err

    def check(self, name=NAME, code=0, more=(), **environment):
        return self.run_dpt("config", "check", "tune.yaml", f"weights.file={name}", *more, code=code,
                            **environment)  # fmt: skip

    def files(self, ending):
        return [path for path in self.cache.rglob("*") if path.name.endswith(ending)]


class Downloads(HubCase):
    def test_the_hub_is_asked_once_and_then_only_whether_it_has_changed(self):
        storage = self.hub.add(REPO, DATA)
        text = self.check(HF_TOKEN="hf_example")
        url = f"{self.hub.server.url}/{REPO}/resolve/{COMMIT}/model.safetensors"
        self.assertIn(f"weights from {url} (SHA-256 {HASH}): 2 loaded, 0 missing", text)
        self.assertIn(f"downloading {url}", text)
        self.assertEqual((self.cache / HASH / "model.safetensors").read_bytes(), DATA)
        self.assertEqual(self.files(".part"), [])
        for method, path, headers in self.hub.server.asked:
            self.assertEqual(headers.get("Authorization"), "Bearer hf_example", (method, path))
        for method, path, headers in self.hub.storage.asked:
            self.assertNotIn("Authorization", headers, (method, path))
        self.assertNotIn("hf_example", text)

        again = self.check()
        self.assertIn("2 loaded", again)
        self.assertNotIn("downloading", again)
        self.assertEqual(len(storage.starts), 1)
        self.assertEqual(self.hub.server.asked[-1][0], "HEAD")
        # Another name for the same content needs no second copy; a commit needs no request.
        self.check(f"{NAME}@{COMMIT}/model.safetensors")
        questions = len(self.hub.server.asked)
        self.check(f"{NAME}@{COMMIT}/model.safetensors")
        self.assertEqual(len(self.hub.server.asked), questions)
        self.assertEqual(len(storage.starts), 1)
        # A damaged copy is replaced.
        (self.cache / HASH / "model.safetensors").write_bytes(DATA[:-1] + b"x")
        self.assertIn("is damaged: downloading it again", self.check())
        self.assertEqual((self.cache / HASH / "model.safetensors").read_bytes(), DATA)

    def test_a_proxy_is_used_if_the_environment_names_one(self):
        self.hub.add(REPO, DATA)
        proxy = Proxy()
        self.addCleanup(proxy.close)
        self.assertIn("2 loaded", self.check(https_proxy=f"http://user:pass@{proxy.address}"))
        self.assertTrue(proxy.asked)
        for request in proxy.asked:
            self.assertTrue(request[0].startswith("CONNECT 127.0.0.1:"), request[0])
            self.assertIn("Proxy-Authorization: Basic dXNlcjpwYXNz", request)
        # The hub is not reached without the proxy.
        self.assertEqual(len({tuple(request[:1]) for request in proxy.asked}),
                         len({self.hub.server.url, self.hub.storage.url}))  # fmt: skip
        asked = len(proxy.asked)
        excluded = {"https_proxy": f"http://{proxy.address}", "no_proxy": "127.0.0.1"}
        self.assertIn("2 loaded", self.check(**excluded))
        self.assertEqual(len(proxy.asked), asked)
        proxy.close()
        text = self.check(code=3, https_proxy=f"http://user:pass@{proxy.address}",
                          XDG_CACHE_HOME=str(self.folder / "other"))  # fmt: skip
        self.assertIn("behind a proxy, the variable https_proxy", text)
        self.assertNotIn("pass@", text)

    def test_a_run_stores_where_its_weights_came_from(self):
        self.hub.add(REPO, DATA)
        self.run_dpt("train", "tune.yaml", f"weights.file={NAME}", "--max-steps", "1")
        config = (self.folder / "runs/tune/config.yaml").read_text()
        self.assertIn(f'  file: "{NAME}"\n', config)
        self.assertIn(f"  sha256: {HASH}\n", config)
        lines = (self.folder / "runs/tune/metrics.jsonl").read_text().splitlines()
        start = next(each for each in map(json.loads, lines) if each["event"] == "run_start")
        url = f"{self.hub.server.url}/{REPO}/resolve/{COMMIT}/model.safetensors"
        self.assertEqual(start["weights"], {"file": NAME, "url": url, "sha256": HASH})
        # A resumed run needs no server, and keeps the hash.
        self.hub.server.routes.clear()
        text = self.run_dpt("train", "tune.yaml", f"weights.file={NAME}")
        self.assertIn("resuming", text)
        self.assertNotIn("weights.file", text)
        self.assertEqual((self.folder / "runs/tune/config.yaml").read_text(), config)
        # A new run with that config takes the same file, even without the server.
        new = ("train", "runs/tune/config.yaml", "--run-dir", "new", "--max-steps", "1")
        self.run_dpt(*new)
        # If the copy is gone and the server has another file, the run reports it.
        self.hub.add(REPO, safetensors(SHAPES, 1.0))
        text = self.run_dpt(*new, "--overwrite", code=3, XDG_CACHE_HOME=str(self.folder / "other"))
        self.assertIn(f"expected the SHA-256 {HASH} (weights.sha256), found ", text)
        self.assertIn("the file on the server has changed", text)
        # --weights names another file, whose hash the config cannot know.
        self.run_dpt(*new, "--overwrite", "--weights", NAME)

    def test_a_connection_that_breaks_is_continued(self):
        storage = self.hub.add(REPO, DATA, cuts=[1000, 500])
        self.assertIn("2 loaded", self.check())
        self.assertEqual(storage.starts, [0, 1000, 1500])

    def test_a_download_that_cannot_be_finished_is_continued_by_the_next_start(self):
        storage = self.hub.add(REPO, DATA, cuts=[1000, 0])
        text = self.check(code=3)
        self.assertIn(f"{NAME}: cannot download it: the connection to ", text)
        self.assertIn(f" after 1000 of {len(DATA)} bytes; they are kept, and the same command", text)
        self.assertIn("https_proxy", text)
        self.assertEqual([path.stat().st_size for path in self.files(".part")], [1000])
        self.assertIn("at byte 1000\n", self.check())
        self.assertEqual(storage.starts, [0, 1000, 1000])
        self.assertEqual((self.cache / HASH / "model.safetensors").read_bytes(), DATA)

    def test_an_unfinished_download_of_another_version_is_not_continued(self):
        self.hub.add(REPO, safetensors(SHAPES, 2.0), cuts=[1000, 0])
        self.check(code=3)
        storage = self.hub.add(REPO, DATA)
        self.assertIn("2 loaded", self.check())
        self.assertEqual(storage.starts, [0])

    def test_a_server_without_ranges_begins_again(self):
        storage = self.hub.add(REPO, DATA, cuts=[1000], takes_ranges=False)
        self.assertIn("the server restarts the download at the first byte", self.check())
        self.assertEqual(storage.starts, [0, 0])

    def test_lies_about_length_and_hash_are_found(self):
        other = safetensors(SHAPES, 3.0)
        self.hub.add(REPO, other, said=DATA)
        text = self.check(code=3)
        self.assertIn(f"expected the SHA-256 {HASH}, as the server announced, found ", text)
        self.assertEqual(self.files(".part") + self.files(".safetensors"), [])
        self.hub.add(REPO, DATA + b"more", said=DATA)
        self.assertIn(f"expected {len(DATA)} bytes, as the server announced, found more",
                      self.check(code=3))  # fmt: skip
        self.hub.add(REPO, DATA[:-8], said=DATA)
        self.assertIn(f"the server announced {len(DATA)} bytes, but its response ended normally "
                      f"after {len(DATA) - 8}", self.check(code=3))  # fmt: skip
        # Nothing of it is kept: the next start does not fail at the same byte.
        self.assertEqual(self.files(".safetensors") + self.files(".part"), [])

    def test_a_part_of_the_wrong_place_is_refused(self):
        storage = self.hub.add(REPO, DATA, cuts=[1000, 0])
        self.check(code=3)
        place = next(iter(self.hub.storage.routes))
        self.hub.storage.routes[place] = lambda handler: handler.send(416)
        self.assertIn("its file has changed. Start again", self.check(code=3))
        self.assertEqual(self.files(".part"), [])
        storage.cuts = [1000, 0]
        self.hub.storage.routes[place] = storage
        self.check(code=3)
        self.hub.storage.routes[place] = lambda handler: handler.send(
            206, {"Content-Range": f"bytes 0-{len(DATA) - 1}/{len(DATA)}"}, DATA)  # fmt: skip
        self.assertIn("expected a response that begins at byte 1000 of ", self.check(code=3))
        self.hub.storage.routes[place] = storage
        self.assertIn("2 loaded", self.check())

    def test_answers_that_are_errors_say_what_to_do(self):
        self.hub.add(REPO, DATA)
        text = self.check("hf://someone/nothing", code=3)
        self.assertIn('answered 404 ("Entry not found") for https://', text)
        self.assertIn("no such repository, revision or file, or it is private", text)
        self.assertIn("set HF_TOKEN to a token that may read it", text)
        place = f"/{REPO}/resolve/main/model.safetensors"
        for status, words in [(401, "set HF_TOKEN"), (403, "is private"), (500, "server is at fault"),
                              (429, "too many requests"), (204, "server did not send a file")]:  # fmt: skip
            with self.subTest(status=status):
                self.hub.server.routes[place] = lambda handler, it=status: handler.send(it)
                text = self.check(code=3)
                self.assertIn(f"answered {status} for ", text)
                self.assertIn(words, text)
        text = self.check(code=3, HF_TOKEN="hf_example")
        self.assertNotIn("hf_example", text)
        self.hub.server.routes[place] = lambda handler: handler.send(401)
        self.assertIn("HF_TOKEN is set and was sent", self.check(code=3, HF_TOKEN="hf_example"))

    def test_without_a_server_the_copy_is_taken(self):
        self.assertIn("HF_HUB_OFFLINE is set", self.check(code=3, HF_HUB_OFFLINE="1"))
        self.assertEqual(self.hub.server.asked, [])
        self.hub.add(REPO, DATA)
        self.check()
        questions = len(self.hub.server.asked)
        self.assertIn("2 loaded", self.check(HF_HUB_OFFLINE="1"))
        self.assertEqual(len(self.hub.server.asked), questions)
        place = f"/{REPO}/resolve/main/model.safetensors"
        self.hub.server.routes[place] = lambda handler: handler.send(503)
        self.assertIn("answered 503; using the copy of hf://", self.check())
        self.hub.server.close()
        self.assertIn("the copy of hf://", self.check())

    def test_of_two_processes_one_downloads(self):
        storage = self.hub.add(REPO, DATA)
        goes_on, has_begun = threading.Event(), threading.Event()

        def hold(_):
            has_begun.set()
            goes_on.wait(PATIENCE)

        storage.hold = hold
        words = ("config", "check", "tune.yaml", f"weights.file={NAME}")
        first = self.start(*words)
        self.assertTrue(has_begun.wait(PATIENCE))
        second = self.start(*words)
        line = second.stderr.readline()
        goes_on.set()
        self.assertIn(f"waiting for another process to download {NAME}", line)
        for process in (first, second):
            code, out, err = self.finish(process)
            self.assertEqual(code, 0, out + err)
            self.assertIn("2 loaded", out)
        self.assertEqual(storage.starts, [0])

    def test_ctrl_c_ends_a_download_and_keeps_what_it_has(self):
        storage = self.hub.add(REPO, DATA)
        process, has_begun, ends = None, threading.Event(), threading.Event()

        def hold(_):
            has_begun.set()
            ends.wait(PATIENCE)

        storage.hold = hold
        process = self.start("train", "tune.yaml", f"weights.file={NAME}")
        self.assertTrue(has_begun.wait(PATIENCE))
        process.send_signal(signal.SIGINT)
        code, _, err = self.finish(process)
        ends.set()
        self.assertEqual(code, 130, err)
        self.assertIn("stopped", err)
        self.assertIn("2 loaded", self.check())
        self.assertEqual(self.files(".part"), [])

    def test_a_server_that_sends_nothing_more_is_an_error(self):
        storage = self.hub.add(REPO, DATA)
        ends = threading.Event()
        storage.hold = lambda _: ends.wait(PATIENCE)
        text = self.check(code=3, HF_HUB_DOWNLOAD_TIMEOUT="1")
        ends.set()
        self.assertIn("does not answer (Operation too slow", text)
        self.assertIn("they are kept, and the same command continues the download", text)
        self.assertIn("2 loaded", self.check())
        self.assertEqual(storage.starts, [0, len(DATA) // 2])
        self.assertIn("HF_HUB_DOWNLOAD_TIMEOUT: expected a number of seconds",
                      self.check(code=2, HF_HUB_DOWNLOAD_TIMEOUT="soon"))  # fmt: skip

    def test_connections_that_could_be_listened_to_are_refused(self):
        self.assertIn("found http://", self.check("http://127.0.0.1/w.safetensors", code=2))
        self.assertIn("expected a path, https:// or hf://, found ftp://",
                      self.check("ftp://host/w", code=2))  # fmt: skip
        self.assertIn("HF_ENDPOINT: expected a URL that begins with https://",
                      self.check(code=2, HF_ENDPOINT="http://hub"))  # fmt: skip
        self.assertIn("without user and password",
                      self.check("https://user:pass@host/w.safetensors", code=2))  # fmt: skip
        self.hub.server.routes[f"/{REPO}/resolve/main/model.safetensors"] = lambda handler: (
            handler.send(302, {"Location": "http://127.0.0.1:9/w"}))  # fmt: skip
        self.assertIn("expected a redirect to https://, found one to http://127.0.0.1:9/w",
                      self.check(code=3))  # fmt: skip
        self.environment.pop("SSL_CERT_FILE")
        text = self.check(code=3)
        self.assertIn("the server's certificate is not trusted", text)
        self.assertIn("SSL_CERT_FILE", text)

    def test_a_url_of_any_server_is_asked_whether_it_has_changed(self):
        server = Server()
        self.addCleanup(server.close)
        storage = server.routes["/w%20x.safetensors?v=1"] = Storage(DATA, headers={"ETag": '"one"'})
        url = f"{server.url}/w%20x.safetensors?v=1"
        for _ in range(2):
            text = self.check(url, HF_TOKEN="hf_example")
            self.assertIn(f"weights from {url} (SHA-256 {HASH}): 2 loaded", text)
        self.assertEqual(storage.starts, [0])
        self.assertTrue(all("Authorization" not in headers for _, _, headers in server.asked))
        # Another version breaks off and changes before the download continues.
        changed = Storage(safetensors(SHAPES, 4.0), headers={"ETag": '"two"'}, cuts=[1000, 0])
        server.routes["/w%20x.safetensors?v=1"] = changed
        self.check(url, code=3)
        server.routes["/w%20x.safetensors?v=1"] = storage
        storage.headers["ETag"] = '"three"'
        self.assertIn("2 loaded", self.check(url))
        # An ETag that looks like a SHA-256 is none: only the hub's is.
        server.routes["/like"] = Storage(DATA, headers={"ETag": '"' + 64 * "a" + '"'})
        self.assertIn("2 loaded", self.check(f"{server.url}/like"))
        # A server without ETags allows no comparison: the file is downloaded again.
        plain = server.routes["/plain"] = Storage(DATA, cuts=[1000])
        for _ in range(2):
            self.assertIn("2 loaded", self.check(f"{server.url}/plain"))
        self.assertEqual(plain.starts, [0, 0, 0])

    def test_other_commands(self):
        self.hub.add(REPO, DATA)
        self.assertIn("fc.weight", self.run_dpt("inspect", NAME))
        self.assertIn("found a URL", self.run_dpt("eval", NAME, code=2))
        self.run_dpt("train", "tune.yaml", "--weights", NAME, "--max-steps", "1")
        self.assertIn("such as hf://timm/resnet18.tv_in1k, found no repository",
                      self.check("hf://someone", code=2))  # fmt: skip
        file = self.folder / "w.safetensors"
        file.write_bytes(DATA)
        self.check(file, more=[f"weights.sha256={HASH}"])
        self.assertIn("this is another file", self.check(file, 3, [f"weights.sha256={'a' * 64}"]))


class Pretrained(HubCase):
    """`weights: pretrained`: the table of the zoo's networks."""

    def test_a_network_finds_its_file_and_its_names(self):
        golden = pathlib.Path(__file__).resolve().parent.parent / "golden" / "pretrained_names.json"
        pairs = json.loads(golden.read_text())["mobilenet_v2"]["tensors"]
        small = "model: {zoo: mobilenet_v2, input: [3, 32, 32], width: 0.1, classes: 3}\n"
        config = CONFIG.replace(CONFIG[CONFIG.index("model:") : CONFIG.index("optimizer:")], small)
        (self.folder / "tune.yaml").write_text(config)
        self.run_dpt("train", "tune.yaml", "--run-dir", "first", "--max-steps", "1")
        tensors = read_tensors(self.folder / "first/checkpoints/step-00000001.safetensors")
        theirs = {name: tensors[ours] for name, _, ours in pairs}
        self.hub.add("timm/mobilenetv2_100.ra_in1k", write_tensors(theirs))
        text = self.check("pretrained")
        self.assertIn(f"(SHA-256 {hashlib.sha256(write_tensors(theirs)).hexdigest()}): 312 loaded, "
                      "0 missing, 0 left over", text)  # fmt: skip
        (self.folder / "tune.yaml").write_text(config + "weights: pretrained\n")
        words = ("train", "tune.yaml", "optimizer.lr=1e-30", "--max-steps")
        text = self.run_dpt(*words, "1")
        self.assertIn("head 'classifier.1': new, with initial values; classifier.weight, ", text)
        found = read_tensors(self.folder / "runs/tune/checkpoints/step-00000001.safetensors")
        self.assertEqual(found["features.0.0.weight"], tensors["features.0.0.weight"])
        self.assertNotEqual(found["classifier.1.weight"], tensors["classifier.1.weight"])
        # The run has the network's file and names in its config, which lacks the network's name.
        self.assertIn("resuming", self.run_dpt(*words, "2"))
        self.run_dpt("train", "runs/tune/config.yaml", "--run-dir", "new", "--max-steps", "1")
        found = read_tensors(self.folder / "new/checkpoints/step-00000001.safetensors")
        self.assertEqual(found["features.0.0.weight"], tensors["features.0.0.weight"])

    def test_a_network_without_weights_is_refused(self):
        text = self.check("pretrained", code=2)
        self.assertIn("found a model of layers. Networks with pretrained weights: resnet18, ", text)
        self.assertIn("model: {zoo: NAME}", text)
        words = ("model={zoo: lenet, input: [1, 16, 16], classes: 3}",)
        self.assertIn("found 'lenet'", self.check("pretrained", code=2, more=words))
        self.assertIn("remove map and key", self.check("pretrained", 2, ["weights.key=x"]))


if __name__ == "__main__":
    unittest.main()
