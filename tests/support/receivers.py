"""Real receivers for what the gateway forwards: a web server, a broker of MQTT, and a wall."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import paho.mqtt.client as mqtt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from paho.mqtt.enums import CallbackAPIVersion
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

PATIENCE_S = 20.0
# Only the broker's own servers know which ports were free.
_BROKER = """
import asyncio, json, sys
from amqtt.broker import Broker

async def serve():
    broker = Broker(json.loads(sys.argv[1]))
    await broker.start()
    sockets = {name: server.instance.sockets[0] for name, server in broker._servers.items()}
    print(json.dumps({name: s.getsockname()[1] for name, s in sockets.items()}), flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the test has ended, however it did

asyncio.run(serve())
"""


def wait_until(done: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
    """Return as soon as something is so; fail if it never is."""
    end_s = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < end_s, "it never came to that"
        time.sleep(0.005)


@dataclass
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    method: str = "POST"

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query, keep_blank_values=True, strict_parsing=True)


@dataclass
class WebReceiver:
    """Takes what is posted and remembers it, also where it then answers something else.

    `script` says what to do with the next requests: a status, or "hang" until the end, "drop" the
    connection without an answer, "redirect" to /elsewhere, "endless" for an answer that never
    ends, "trickle" for headers that never do. `judge` says what to answer to a request, if it is
    a receiver that does not take everything.
    """

    script: list[int | str] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)
    url: str = ""
    status: int = 200
    judge: Callable[[Received], int] | None = None
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in list(self.requests)]

    def take(self, received: Received) -> int | str:
        with self.lock:
            self.requests.append(received)
            if self.script:
                return self.script.pop(0)
            return self.status if self.judge is None else self.judge(received)


@contextmanager
def web_receiver(certificate: Path | None = None) -> Iterator[WebReceiver]:
    receiver = WebReceiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._take(Received(self.path, headers, json.loads(body)))

        def do_GET(self) -> None:
            assert "Content-Length" not in self.headers
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._take(Received(self.path, headers, {}, "GET"))

        def _take(self, received: Received) -> None:
            what = receiver.take(received)
            with suppress(OSError):  # the other side may hang up meanwhile
                self._answer(what)

        def _answer(self, what: int | str) -> None:
            if isinstance(what, int):
                self._say(what, b"[]")
            elif what == "redirect":
                self._say(302, b"", Location=f"{receiver.url}/elsewhere")
            elif what == "endless":
                self.send_response(200)
                self.send_header("Content-Length", str(10**12))
                self.end_headers()
                while not receiver.over.is_set():
                    self.wfile.write(bytes(65536))
            elif what == "trickle":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
                while not receiver.over.wait(0.02):
                    self.wfile.write(b"a")
            else:
                if what == "hang":
                    receiver.over.wait(PATIENCE_S)
                self.close_connection = True

        def _say(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name there
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a sender that does not trust us hangs up

    server = Server(("127.0.0.1", 0), Handler)
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        scheme = "https"
    receiver.url = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def wall() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "receiver.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@dataclass
class BrokerReceiver:
    """A broker, and what came to somebody who listens to all of its topics."""

    port: int
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    user: str = "alice"
    password: str = "of-the-broker-3"  # noqa: S105  # it opens nothing but this broker

    def look(self) -> dict[str, dict[str, Any]]:
        """What the broker tells somebody who comes now: the retained messages."""
        kept: dict[str, dict[str, Any]] = {}
        with _subscriber(self, lambda topic, body: kept.update({topic: body})):
            wait_until(lambda: kept)
        return kept


@contextmanager
def broker_receiver(folder: Path, certificate: Path | None = None) -> Iterator[BrokerReceiver]:
    receiver = BrokerReceiver(0)
    passwords = folder / "passwords"
    hasher = PasswordHash((Argon2Hasher(time_cost=1, memory_cost=64, parallelism=1),))
    passwords.write_text(f"{receiver.user}:{hasher.hash(receiver.password)}\n")
    listeners: dict[str, Any] = {"default": {"type": "tcp", "bind": "127.0.0.1:0"}}
    if certificate is not None:
        # Beside the plain one, which whoever listens in this test goes on using.
        listeners["sure"] = {
            "type": "tcp",
            "bind": "127.0.0.1:0",
            "ssl": True,
            "certfile": str(certificate),
            "keyfile": str(certificate),
        }
    config = {
        "listeners": listeners,
        "plugins": {
            "amqtt.plugins.authentication.FileAuthPlugin": {"password_file": str(passwords)}
        },
    }
    # In a process of its own, where what it leaves open at its end disturbs nobody.
    process = subprocess.Popen(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", _BROKER, json.dumps(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        ports = json.loads(process.stdout.readline())
        try:
            receiver.port = ports["default"]
            with _subscriber(receiver, lambda topic, body: receiver.messages.append((topic, body))):
                receiver.port = ports["sure" if certificate else "default"]
                yield receiver
        finally:
            process.kill()


@dataclass
class Mosquitto(BrokerReceiver):
    """A broker that speaks MQTT 5 and has an access list."""

    rules: Path = Path()
    process: subprocess.Popen[bytes] | None = None

    def allow(self, *rules: str) -> None:
        """From the next moment on, the only user may do this. Takes effect after a moment."""
        self.rules.write_text("\n".join([f"user {self.user}", *rules, ""]))
        if self.process is not None:
            self.process.send_signal(signal.SIGHUP)


@contextmanager
def mosquitto(folder: Path, *rules: str) -> Iterator[Mosquitto]:
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("mosquitto is not installed")
    broker = Mosquitto(free_port(), rules=folder / "rules")
    broker.allow("topic read #", *rules)
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {broker.port} 127.0.0.1\nallow_anonymous true\nacl_file {broker.rules}\n"
        f"persistence false\nuser {getpass.getuser()}\n"
    )
    with subprocess.Popen(  # noqa: S603  # what was found above
        [program, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as broker.process:
        try:
            wait_until(lambda: _listens(broker.port))
            with _subscriber(broker, lambda topic, body: broker.messages.append((topic, body))):
                yield broker
        finally:
            broker.process.kill()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextmanager
def old_broker(says: bytes | None, after_s: float = 0.0) -> Iterator[tuple[int, list[int]]]:
    """A broker of MQTT 3.1.1, and which versions it was greeted in.

    It says so to another one; or hangs up, with None.
    """
    versions: list[int] = []

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):  # until the listener is closed
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=talk, args=(connection,), daemon=True).start()

    def talk(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while packet := connection.recv(4096):  # each comes alone, and is short
                kind = packet[0] >> 4
                if kind == 1:
                    versions.append(packet[8])
                    answer = b"\x20\x02\x00\x00" if packet[8] == 4 else says
                    if answer is None:
                        return
                    time.sleep(after_s)
                    connection.sendall(answer)
                elif kind == 3:
                    start = 3 if packet[1] & 0x80 else 2
                    end = start + 2 + int.from_bytes(packet[start : start + 2])
                    connection.sendall(b"\x40\x02" + packet[end : end + 2])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        try:
            yield listener.getsockname()[1], versions
        finally:
            listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def _subscriber(
    receiver: BrokerReceiver, heard: Callable[[str, dict[str, Any]], None]
) -> Iterator[None]:
    listening = threading.Event()
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.username_pw_set(receiver.user, receiver.password)
    client.on_connect = lambda *_: client.subscribe("owntracks/#", qos=1) and None
    client.on_subscribe = lambda *_: listening.set()
    client.on_message = lambda _, __, message: heard(message.topic, json.loads(message.payload))
    client.connect("127.0.0.1", receiver.port)
    client.loop_start()
    try:
        assert listening.wait(PATIENCE_S), "the broker does not let anybody listen"
        yield
    finally:
        client.disconnect()
        client.loop_stop()
