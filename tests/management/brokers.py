"""Two brokers to compare: each with ports, data and settings of its own, ended with all that it started."""
import base64
import http.client
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

# Where Debian puts RabbitMQ's scripts. The wrappers on the path insist on a user of their own.
SCRIPTS = "/usr/lib/rabbitmq/bin"
# Seconds for a broker to start or stop, and for an answer.
START_SECONDS = 90
ANSWER_SECONDS = 20


def free_ports(count):
    """Ports that nobody listens on at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Answer:
    """What came back: the code, the headers, the body."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body


class Broker:
    """A broker that is started here. `with` ends it."""

    name = ""

    def __init__(self):
        self.scratch = tempfile.mkdtemp(prefix=f"compare-{self.name}-")
        self.log = open(self.scratch + "/output", "w+")
        self.processes = []
        self.amqp_port = self.port = 0

    def __enter__(self):
        try:
            self.start()
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Starts the processes."""
        raise NotImplementedError

    def spawn(self, words, **more):
        """A process in a group of its own."""
        process = subprocess.Popen(words, stderr=self.log, stdin=subprocess.DEVNULL, start_new_session=True, **more)
        self.processes.append(process)
        return process

    def wait_until_ready(self):
        """Waits until the API answers."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self.processes[-1].poll() is not None:
                self.log.seek(0)
                raise RuntimeError(f"{self.name} has ended: {self.log.read()[-2000:]}")
            try:
                if self.ask("GET", "/overview").status == 200:
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not answer after {START_SECONDS} s")
            time.sleep(0.2)

    def stop(self):
        """Ends the groups of what was started, the last one first, and removes what they have left."""
        for process in reversed(self.processes):
            for order in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, order)
                    process.wait(timeout=30)
                    break
                except ProcessLookupError:
                    break
                except subprocess.TimeoutExpired:
                    continue
        self.log.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def ask(self, method, path, body=None, login="guest:guest", headers=None):
        """One request over a connection of its own."""
        all_headers = {"Content-Type": "application/json", **(headers or {})}
        if login:
            all_headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, "/api" + path, body, all_headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()


class RabbitMq(Broker):
    """What Debian has installed."""

    name = "rabbitmq"

    def start(self):
        self.amqp_port, self.port, dist, mapper = free_ports(4)
        scratch = self.scratch
        with open(scratch + "/enabled_plugins", "w") as file:
            file.write("[rabbitmq_management].\n")
        with open(scratch + "/rabbitmq.conf", "w") as file:
            file.write(f"listeners.tcp.1 = 127.0.0.1:{self.amqp_port}\n"
                       f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.port}\n"
                       "collect_statistics_interval = 1000\n")
        environment = dict(os.environ, RABBITMQ_NODENAME=f"compare{self.port}@localhost",
                           RABBITMQ_NODE_PORT=str(self.amqp_port), RABBITMQ_DIST_PORT=str(dist),
                           ERL_EPMD_PORT=str(mapper), RABBITMQ_CONF_ENV_FILE="/dev/null", HOME=scratch,
                           RABBITMQ_MNESIA_BASE=scratch + "/mnesia", RABBITMQ_LOG_BASE=scratch + "/log",
                           RABBITMQ_PID_FILE=scratch + "/pid", RABBITMQ_CONFIG_FILE=scratch + "/rabbitmq.conf",
                           RABBITMQ_ENABLED_PLUGINS_FILE=scratch + "/enabled_plugins")
        # The node would start a port mapper that outlives it.
        self.spawn(["epmd", "-port", str(mapper)], stdout=self.log)
        self.spawn([SCRIPTS + "/rabbitmq-server"], stdout=self.log, env=environment)


class Lepus(Broker):
    """The broker of this tree."""

    name = "lepus"

    def __init__(self, binary):
        self.binary = binary
        super().__init__()

    def start(self):
        self.amqp_port, self.port = free_ports(2)
        words = ["serve", "--listen", f"127.0.0.1:{self.amqp_port}", "--metrics-listen", "127.0.0.1:0",
                 "--management-listen", f"127.0.0.1:{self.port}", "--data-dir", self.scratch + "/data", "--shards", "2"]
        self.spawn([self.binary, *words], stdout=open(self.scratch + "/banner", "w"))

    def metrics_port(self):
        """The port that the banner names."""
        with open(self.scratch + "/banner") as file:
            return int(re.search(r"metrics +\S*:(\d+)", file.read())[1])


class Client:
    """As much of AMQP 0-9-1 as it takes to have a connection with a channel and a consumer."""

    def __init__(self, port, queue):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.receive(10, 10)
        login = b"\0guest\0guest"
        properties = self.short("connection_name") + b"S" + self.long(b"compared")
        self.send(0, 10, 11, self.long(properties) + self.short("PLAIN") + self.long(login) + self.short("en_US"))
        tune = self.receive(10, 30)
        self.send(0, 10, 31, tune[:8])
        self.send(0, 10, 40, self.short("/") + b"\0\0")
        self.receive(10, 41)
        self.send(1, 20, 10, b"\0")
        self.receive(20, 11)
        self.send(1, 60, 20, b"\0\0" + self.short(queue) + self.short("reader") + b"\0" + self.long(b""))
        self.receive(60, 21)

    @staticmethod
    def short(text):
        return bytes([len(text)]) + text.encode()

    @staticmethod
    def long(data):
        return struct.pack(">I", len(data)) + data

    def send(self, channel, class_id, method, arguments):
        """Sends a method."""
        payload = struct.pack(">HH", class_id, method) + arguments
        self.socket.sendall(struct.pack(">BHI", 1, channel, len(payload)) + payload + b"\xce")

    def receive(self, class_id, method):
        """The arguments of the next method, which is to be this one; heartbeats and contents are passed over."""
        while True:
            kind, _, size = struct.unpack(">BHI", self.exactly(7))
            payload = self.exactly(size + 1)[:-1]
            if kind == 1:
                found = struct.unpack(">HH", payload[:4])
                if found != (class_id, method):
                    raise RuntimeError(f"method {found} instead of {(class_id, method)}")
                return payload[4:]

    def exactly(self, size):
        """So many bytes."""
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise RuntimeError("the broker has closed the connection")
            data += more
        return data

    def close(self):
        """Goes without a word."""
        self.socket.close()
