"""A proxy that loses messages: it closes the connection instead of passing on a request or an answer."""

import socket
import threading

# The time that the server may take for an answer, even on a busy machine: meanwhile no other message is passed on.
SECONDS_MAX = 180


class Cutter:
    """Passes messages on between clients, at `port`, and the server, at `target` (host, port).

    `lose(request)` is asked with each request: "request" loses it, "reply" lets the server carry it out and loses the answer, None
    loses nothing. `after()` is called when something was lost, before any client can connect again.
    """

    def __init__(self, target, lose, after=lambda: None):
        self.target = target
        self.lose = lose
        self.after = after
        self.cut = 0
        self.turn = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def uri(self):
        """For a client whose watch over the server does not get in between."""
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true&serverMonitoringMode=poll"

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client:
            with self.turn:
                server = socket.create_connection(self.target, timeout=SECONDS_MAX)
            with server:
                while (request := message(client)) is not None:
                    with self.turn:
                        lost = self.lose(request)
                        if lost != "request":
                            server.sendall(request)
                            reply = message(server)
                        if lost is not None:
                            self.cut += 1
                            self.after()
                            return
                    if reply is None:
                        return
                    client.sendall(reply)

    def close(self):
        self.listener.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def message(stream):
    """Returns the next message of the wire protocol, or None at the end."""
    data = b""
    while len(data) < 4 or len(data) < int.from_bytes(data[:4], "little"):
        try:
            more = stream.recv(65536)
        except OSError:
            return None
        if not more:
            return None
        data += more
    return data
