"""A web server for downloads, which can serve ranges, lose connections and refuse requests."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    """A web server.

    Attributes:
        files: content by path.
        breaks_after: number of bytes to send before losing the connection, for the first requests.
        ranges: whether to honor the header Range.
        requests: path and header Range of every request so far.
        address: its URL.
    """

    files: dict[str, bytes]
    breaks_after: list[int] = field(default_factory=list)
    ranges: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve on a local port while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested = self.headers["Range"]
            server.requests.append((self.path, requested))
            content = server.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = int(re.fullmatch(r"bytes=(\d+)-", requested)[1]) if requested and server.ranges else 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            sent = server.breaks_after.pop(0) if server.breaks_after else len(content)
            self.wfile.write(content[start : start + sent])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=[0.01], daemon=True).start()
        server.address = f"http://127.0.0.1:{http.server_port}"
        yield server
        http.shutdown()
