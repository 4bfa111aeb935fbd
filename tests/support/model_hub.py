"""A server that plays the hub of Hugging Face for one repository."""

import contextlib
import hashlib
import http.server
import json
import threading

OWNER_AND_NAME, COMMIT, BRANCH = "somebody/small-gpt2", "7" * 40, "main"


@contextlib.contextmanager
def serving(folder):
    """Serves a folder as a repository, and yields its address and the list of the paths asked for."""
    asked = []
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    class Hub(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            path = self.path.partition("?")[0]
            asked.append(path)
            api, resolved = f"/api/models/{OWNER_AND_NAME}", f"/{OWNER_AND_NAME}/resolve/{COMMIT}/"
            if path in (api, f"{api}/revision/{BRANCH}", f"{api}/revision/{COMMIT}"):
                self.answer(json.dumps({"id": OWNER_AND_NAME, "sha": COMMIT, "siblings": []}).encode())
            elif path == f"{api}/tree/{COMMIT}":
                rows = [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in files.items()
                ]
                self.answer(json.dumps(rows).encode())
            elif path.startswith(resolved) and path.removeprefix(resolved) in files:
                self.answer(files[path.removeprefix(resolved)])
            else:
                kind = "Revision" if path.startswith(f"{api}/revision/") else "Repo"
                self.answer(b"{}", 404, {"X-Error-Code": f"{kind}NotFound", "X-Error-Message": "not here"})

        def answer(self, data, status=200, headers=()):
            self.send_response(status)
            etag = hashlib.sha1(data).hexdigest()
            fields = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Content-Length": str(len(data))}
            for name, value in {**fields, **dict(headers)}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
