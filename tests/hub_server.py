"""A small Hugging Face Hub on this machine: one repository, and the ways in which a Hub can fail."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import unquote, urlsplit

REPO = "org/tiny"
COMMIT = "c" * 40
ASIDE = {"README.md": b"# hello", "original/params.json": b"{}", "run.py": b"raise SystemExit"}


def model_files(weights: bytes = b"w" * 3_000_000) -> dict[str, bytes]:
    """The files of a whole model, and some that no model needs."""
    return {
        "config.json": b'{"model_type": "llama"}',
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b'{"chat_template": ""}',
        "model.safetensors": weights,
        **ASIDE,
    }


def sharded_files() -> dict[str, bytes]:
    """The same in two weight files with an index."""
    files = model_files()
    weights = files.pop("model.safetensors")
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"weight_map": {"a": shards[0], "b": shards[1]}}
    return {
        **files,
        shards[0]: weights,
        shards[1]: weights[::-1] + b"2",
        "model.safetensors.index.json": json.dumps(index).encode(),
    }


class HubServer:
    """Serves `files` as the repository REPO.

    Attributes:
        failures: for a path's beginning, statuses to answer first, one a request.
        error_code: the Hub's own name of what is wrong, sent with every failure.
        pause_s: seconds between two pieces of a file.
        cut_at: bytes of weights after which the connection breaks, once for each of `cuts`.
        hang_s: seconds before any answer.
        gets: how often each file was asked for.
    """

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = model_files() if files is None else files
        self.failures: dict[str, list[int]] = {}
        self.error_code: str | None = None
        self.pause_s = 0.0
        self.cuts = 0
        self.cut_at = 100_000
        self.hang_s = 0.0
        self.requests = 0
        self.gets: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> HubServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(hub) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args: object) -> None:
                return

            def do_HEAD(self) -> None:
                self._answer(body=False)

            def do_GET(self) -> None:
                self._answer(body=True)

            def _answer(self, *, body: bool) -> None:
                hub.requests += 1
                path = unquote(urlsplit(self.path).path)
                time.sleep(hub.hang_s)
                for beginning, statuses in hub.failures.items():
                    if path.startswith(beginning) and statuses:
                        self._fail(statuses.pop(0))
                        return
                files = f"/{REPO}/resolve/{COMMIT}/"
                if path in (f"/api/models/{REPO}", f"/api/models/{REPO}/revision/main"):
                    self._send_json(hub._info())
                elif path == f"/api/models/{REPO}/tree/{COMMIT}":
                    self._send_json(hub._tree())
                elif path.startswith(files) and path.removeprefix(files) in hub.files:
                    self._send_file(path.removeprefix(files), body=body)
                else:
                    self._fail(404)

            def _send_json(self, content: object) -> None:
                data = json.dumps(content).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _send_file(self, name: str, *, body: bool) -> None:
                data = hub.files[name]
                start = 0
                if asked := self.headers.get("Range"):
                    start = int(asked.removeprefix("bytes=").split("-")[0])
                self.send_response(206 if start else 200)
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
                self.send_header("Content-Length", str(len(data) - start))
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
                self.end_headers()
                if not body:
                    return
                hub.gets[name] += 1
                piece = 50_000 if hub.pause_s or hub.cuts else 1 << 20
                for at in range(start, len(data), piece):
                    if name.endswith(".safetensors") and hub.cuts and at >= hub.cut_at:
                        hub.cuts -= 1
                        self.close_connection = True
                        return
                    try:
                        self.wfile.write(data[at : at + piece])
                    except OSError:
                        return
                    hub.sent_bytes[name] += len(data[at : at + piece])
                    time.sleep(hub.pause_s)

            def _fail(self, status: int) -> None:
                self.send_response(status)
                code = hub.error_code or ("RepoNotFound" if status == 404 else None)
                if code:
                    self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()

        return Handler

    def _info(self) -> dict[str, object]:
        siblings = [{"rfilename": name, "size": len(data)} for name, data in self.files.items()]
        return {"id": REPO, "sha": COMMIT, "private": False, "gated": False, "siblings": siblings}

    def _tree(self) -> list[dict[str, object]]:
        return [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for name, data in self.files.items()
        ]
