"""An HTTPS server on this machine that behaves like the Hugging Face hub, or misbehaves."""

import hashlib
import http.server
import pathlib
import re
import select
import socket
import socketserver
import ssl
import threading

# Key and certificate of "localhost", only for these tests.
CERTIFICATE = pathlib.Path(__file__).resolve().parent / "localhost.pem"
COMMIT = "c0ffee" + "0" * 34


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.owner.answer(self)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass

    def send(self, status, headers=(), body=b"", length=None):
        """Sends an answer. `length` replaces the true Content-Length."""
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
            self.wfile.flush()

    def cut(self):
        """Ends the connection without the rest of the answer."""
        self.close_connection = True
        self.connection.close()


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # clients that leave are a part of the tests


class Server:
    """Answers each path with a function of the handler; records the requests."""

    def __init__(self):
        self.server = QuietServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.server.owner = self
        self.routes = {}
        self.asked = []
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"https://127.0.0.1:{self.server.server_port}"

    def answer(self, handler):
        self.asked.append((handler.command, handler.path, dict(handler.headers)))
        route = self.routes.get(handler.path)
        if route is None:
            handler.send(404, {"X-Error-Message": "Entry not found"}, b"not here")
        else:
            route(handler)

    def count(self, method, part=""):
        return sum(1 for each in self.asked if each[0] == method and part in each[1])

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Storage:
    """Sends a file, from the requested byte; `cuts` are the numbers of bytes after which the
    first answers break off."""

    def __init__(self, data, cuts=(), takes_ranges=True, headers=()):
        self.data = data
        self.cuts = list(cuts)
        self.takes_ranges = takes_ranges
        self.headers = dict(headers)
        self.starts = []  # first byte of each answer to GET
        self.hold = None  # called with the handler after half of the data

    def __call__(self, handler):
        begin = 0
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        fits = handler.headers.get("If-Range") in (None, self.headers.get("ETag"))
        headers = dict(self.headers)
        if asked and self.takes_ranges and fits:
            begin = int(asked[1])
            headers["Content-Range"] = f"bytes {begin}-{len(self.data) - 1}/{len(self.data)}"
        body = self.data[begin:]
        if handler.command == "HEAD":
            handler.send(200, headers, b"", len(self.data))
            return
        self.starts.append(begin)
        cut = self.cuts.pop(0) if self.cuts else None
        if cut is not None:
            handler.send(206 if begin else 200, headers, body[:cut], len(body))
            handler.cut()
        elif self.hold:
            hold, self.hold = self.hold, None
            handler.send(206 if begin else 200, headers, body[: len(body) // 2], len(body))
            hold(handler)
            handler.wfile.write(body[len(body) // 2 :])
        else:
            handler.send(206 if begin else 200, headers, body)


class Hub:
    """The hub, which redirects to a storage on another server."""

    def __init__(self):
        self.server = Server()
        self.storage = Server()

    def add(self, repo, data, name="model.safetensors", revision="main", said=None, **options):
        """Adds a file; `said` are the bytes that the hub announces. Returns its Storage."""
        claimed = data if said is None else said
        digest = hashlib.sha256(claimed).hexdigest()
        storage = Storage(data, **options)
        place = f"/blobs/{repo}/{digest}"
        self.storage.routes[place] = storage
        headers = {
            "X-Repo-Commit": COMMIT,
            "X-Linked-Etag": f'"{digest}"',
            "X-Linked-Size": str(len(claimed)),
            "ETag": '"of the pointer"',
            "Location": self.storage.url + place,
        }
        for each in (revision, COMMIT):
            self.server.routes[f"/{repo}/resolve/{each}/{name}"] = lambda handler: handler.send(
                302, headers, b"see there"
            )
        return storage

    def close(self):
        self.server.close()
        self.storage.close()


class Tunnels(socketserver.BaseRequestHandler):
    def handle(self):
        words = b""
        while b"\r\n\r\n" not in words and (more := self.request.recv(65536)):
            words += more
        request = words.decode("latin-1").split("\r\n")
        self.server.asked.append(request)
        host, port = request[0].split()[1].rsplit(":", 1)
        with socket.create_connection((host, int(port))) as other:
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            while True:
                for ready in select.select([self.request, other], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    (other if ready is self.request else self.request).sendall(data)


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy for HTTPS: it connects both sides and reads none of what they say."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Tunnels)
        self.asked = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass  # clients that leave are a part of the tests

    @property
    def address(self):
        return "127.0.0.1:{}".format(self.server_address[1])

    def close(self):
        self.shutdown()
        self.server_close()
