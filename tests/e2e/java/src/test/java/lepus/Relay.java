package lepus;

import java.io.Closeable;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;

/** A TCP relay in front of the broker whose connections can be cut as a bad network does. */
public final class Relay implements Closeable {

    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
    private final List<Socket> sockets = new ArrayList<>();

    public Relay() throws IOException {
        start(this::accept);
    }

    /** The port to connect to, on 127.0.0.1. */
    public int port() {
        return listener.getLocalPort();
    }

    /** Ends every connection that runs through the relay, without a word of AMQP. */
    public synchronized void cut() throws IOException {
        for (Socket socket : sockets) {
            socket.close();
        }
        sockets.clear();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        cut();
    }

    private void accept() {
        var broker = Broker.factory();
        while (true) {
            try {
                Socket client = listener.accept();
                Socket upstream = new Socket(broker.getHost(), broker.getPort());
                synchronized (this) {
                    sockets.add(client);
                    sockets.add(upstream);
                }
                start(() -> copy(client, upstream));
                start(() -> copy(upstream, client));
            } catch (IOException closed) {
                return;
            }
        }
    }

    private static void copy(Socket from, Socket to) {
        try (from; to) {
            from.getInputStream().transferTo(to.getOutputStream());
        } catch (IOException cut) {
            // Both ends are closed now: that is what a relay passes on of an error.
        }
    }

    private static void start(Runnable body) {
        var thread = new Thread(body, "relay");
        thread.setDaemon(true);
        thread.start();
    }
}
