"""A sandbox on another machine: code that a model wrote runs there, and nothing of it here.

The service below runs each program in the isolated sandbox of its own machine. The client is a sandbox for handrail:
under an entry point of the group `handrail.sandboxes`, or handed to a tool, as here.

    python examples/remote_sandbox.py
"""

import hmac
import http.client
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event

import msgspec

import handrail as hr
from handrail.ports import JobEnded, SandboxJob
from handrail.sandboxes.levels import choose_sandbox
from handrail_toolbox.run_python import RunPython

MOST_BYTES = 32 * 1024 * 1024
GRACE_S = 10.0


class RemoteSandbox:
    """The client: sends a job, waits for its end, and hangs up when the call is cancelled or its time is over."""

    level = "isolated"  # what the service gives; it says NOT_ISOLATED rather than less
    lacks = ""
    python = "python3"

    def __init__(self, host: str, port: int, token: str) -> None:
        self._address = (host, port)
        self._token = token

    def run(self, job: SandboxJob, cancelled: Event) -> JobEnded:
        if job.mounts:
            raise OSError("no files of this machine can be mounted on another one")
        connection = http.client.HTTPConnection(*self._address, timeout=job.timeout_s + GRACE_S)
        over = Event()
        watch = threading.Thread(target=self._hang_up, args=(connection, cancelled, over), daemon=True)
        connection.connect()
        watch.start()
        try:
            connection.request("POST", "/jobs", msgspec.json.encode(job), {"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            body = answer.read(MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            if cancelled.is_set():
                return JobEnded(end="cancelled", exit_code=None, stdout=b"", stderr=b"")
            raise OSError(f"the remote sandbox does not answer: {error}") from error
        finally:
            over.set()
            watch.join()
            connection.close()
        if answer.status != 200:
            raise OSError(f"the remote sandbox refused the job: {answer.status}")
        try:
            return msgspec.json.decode(body, type=JobEnded)
        except msgspec.DecodeError as error:
            raise OSError("the remote sandbox answered nonsense") from error

    def _hang_up(self, connection: http.client.HTTPConnection, cancelled: Event, over: Event) -> None:
        while not over.wait(0.05):
            if cancelled.is_set() and connection.sock is not None:
                connection.sock.shutdown(2)  # the service ends the program when its caller is gone
                return


class Service(BaseHTTPRequestHandler):
    """The service: one program for each request."""

    token = ""

    def do_POST(self) -> None:
        given = self.headers.get("Authorization", "")
        length = int(self.headers.get("Content-Length", 0))
        if not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()) or length > MOST_BYTES:
            self.send_error(403)
            return
        job = msgspec.json.decode(self.rfile.read(length), type=SandboxJob)
        if job.mounts:
            self.send_error(400)
            return
        sandbox = choose_sandbox("a remote caller")  # NOT_ISOLATED where this machine has no such level
        gone = Event()
        threading.Thread(target=self._notice_end, args=(gone,), daemon=True).start()
        job = msgspec.structs.replace(job, argv=[sandbox.python, *job.argv[1:]])
        body = msgspec.json.encode(sandbox.run(job, gone))
        if gone.is_set():
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _notice_end(self, gone: Event) -> None:
        try:
            self.connection.recv(1)  # a caller says nothing more: this is its end
        except OSError:
            pass
        gone.set()

    def log_message(self, *_: object) -> None:
        """Log nothing: a request names no program."""


def start_service(token: str) -> ThreadingHTTPServer:
    """Serve on a free port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OurService", (Service,), {"token": token}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    token = secrets.token_urlsafe()
    server = start_service(token)
    remote = RemoteSandbox("127.0.0.1", server.server_port, token)
    tool = RunPython(sandboxes=[remote])
    with hr.SyncRuntime([tool]) as runtime:
        print(runtime.call("run_python", {"code": "print(sum(range(10)))"}).text)
    server.shutdown()
    server.server_close()
