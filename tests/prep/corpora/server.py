"""A web server for downloads: understands ranges, and breaks off or refuses where a test wants it to."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    """What is served, and what was asked for.

    Attributes:
        files: path → content.
        breaks_after: how many bytes an answer sends, one answer after the other; whole ones when it is used up.
        ranges: whether it can go on in the middle of a file.
        asked: (path, value of the header Range) of every request.
    """

    files: dict[str, bytes]
    breaks_after: list[int] = field(default_factory=list)
    ranges: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve on a port of this machine while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            server.asked.append((self.path, wanted))
            content = server.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and server.ranges else 0
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
        threading.Thread(target=http.serve_forever, daemon=True).start()
        server.address = f"http://127.0.0.1:{http.server_port}"
        yield server
        http.shutdown()
