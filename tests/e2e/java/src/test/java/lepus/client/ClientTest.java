package lepus.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.Method;
import com.rabbitmq.client.ShutdownNotifier;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import lepus.Broker;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** One connection with one channel, and what every test does with queues and messages. */
abstract class ClientTest {

    /** Something that talks to the broker. */
    interface Action {
        void run() throws Exception;
    }

    private final List<Connection> connections = new ArrayList<>();
    private final List<Consumer<Channel>> leftovers = new ArrayList<>();
    protected Connection connection;
    protected Channel channel;

    @BeforeEach
    void open() throws Exception {
        connection = connect(factory -> {});
        channel = connection.createChannel();
    }

    @AfterEach
    void close() throws Exception {
        if (!leftovers.isEmpty()) {
            var sweeping = connect(factory -> {}).createChannel();
            leftovers.forEach(leftover -> leftover.accept(sweeping));
        }
        connections.forEach(connection -> connection.abort(5000));
    }

    /** Another connection, with changed settings; it is closed after the test. */
    protected Connection connect(Consumer<ConnectionFactory> change) throws Exception {
        var factory = Broker.factory();
        change.accept(factory);
        var opened = factory.newConnection();
        connections.add(opened);
        return opened;
    }

    /** A fresh exclusive queue, named by the broker. */
    protected String queue() throws IOException {
        return queue(Map.of());
    }

    /** A fresh exclusive queue with arguments. */
    protected String queue(Map<String, Object> arguments) throws IOException {
        return channel.queueDeclare("", false, true, false, arguments).getQueue();
    }

    /** A fresh durable queue, deleted after the test. */
    protected String durable(Map<String, Object> arguments) throws IOException {
        var name = Broker.unique("queue");
        channel.queueDeclare(name, true, false, false, arguments);
        deleteLater(sweeping -> sweeping.queueDelete(name));
        return name;
    }

    /** A fresh exchange that goes with its last binding, or after the test. */
    protected String exchange(String type, Map<String, Object> arguments) throws IOException {
        var name = Broker.unique("exchange");
        channel.exchangeDeclare(name, type, false, true, arguments);
        deleteLater(sweeping -> sweeping.exchangeDelete(name));
        return name;
    }

    protected String exchange(BuiltinExchangeType type) throws IOException {
        return exchange(type.getType(), Map.of());
    }

    /** A fresh queue bound to an exchange. */
    protected String bound(String exchange, String key) throws IOException {
        var queue = queue();
        channel.queueBind(queue, exchange, key);
        return queue;
    }

    /** What is left to be deleted. */
    interface Deletion {
        void run(Channel channel) throws IOException;
    }

    protected void deleteLater(Deletion deletion) {
        leftovers.add(sweeping -> {
            try {
                deletion.run(sweeping);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        });
    }

    /** Publishes and returns once every message is confirmed. */
    protected void publish(String exchange, String key, AMQP.BasicProperties properties, String... bodies)
            throws Exception {
        try (var confirming = connection.createChannel()) {
            confirming.confirmSelect();
            for (String body : bodies) {
                confirming.basicPublish(exchange, key, properties, bytes(body));
            }
            confirming.waitForConfirmsOrDie(Broker.PATIENCE.toMillis());
        }
    }

    /** Publishes to a queue by its name. */
    protected void send(String queue, String... bodies) throws Exception {
        publish("", queue, null, bodies);
    }

    /** The next message by basic.get, acknowledged; it must be there by now. */
    protected GetResponse take(String queue) throws IOException {
        var got = channel.basicGet(queue, true);
        assertNotNull(got, "no message in " + queue);
        return got;
    }

    /** The next message by basic.get, not acknowledged. */
    protected GetResponse hold(String queue) throws IOException {
        var got = channel.basicGet(queue, false);
        assertNotNull(got, "no message in " + queue);
        return got;
    }

    /** The next message, waiting until there is one. */
    protected GetResponse arrived(String queue) throws Exception {
        var found = new GetResponse[1];
        Broker.until("a message in " + queue, () -> (found[0] = channel.basicGet(queue, true)) != null);
        return found[0];
    }

    /** Bodies of everything that is ready in a queue. */
    protected List<String> drain(String queue) throws IOException {
        var bodies = new ArrayList<String>();
        for (var got = channel.basicGet(queue, true); got != null; got = channel.basicGet(queue, true)) {
            bodies.add(text(got.getBody()));
        }
        return bodies;
    }

    /** The names from 0 up to a number, as bodies. */
    protected static String[] numbers(int from, int to) {
        var names = new String[to - from];
        for (int at = from; at < to; at++) {
            names[at - from] = Integer.toString(at);
        }
        return names;
    }

    protected static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    protected static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** The broker must close this channel for that action, with code, method ids and words in the text. */
    protected static void closes(Channel channel, int code, int classId, int methodId, String words, Action action)
            throws Exception {
        var reason = closed(channel, action).getReason();
        var close = assertInstanceOf(AMQP.Channel.Close.class, reason, () -> "closed by " + reason);
        assertEquals(code, close.getReplyCode(), close.getReplyText());
        assertTrue(close.getReplyText().contains(words), close.getReplyText());
        assertEquals(classId + "/" + methodId, close.getClassId() + "/" + close.getMethodId());
    }

    /** The broker must close the whole connection for that action. */
    protected static void closesConnection(Channel channel, int code, int classId, int methodId, Action action)
            throws Exception {
        Method reason = closed(channel.getConnection(), action).getReason();
        var close = assertInstanceOf(AMQP.Connection.Close.class, reason, () -> "closed by " + reason);
        assertEquals(code, close.getReplyCode(), close.getReplyText());
        assertEquals(classId + "/" + methodId, close.getClassId() + "/" + close.getMethodId());
    }

    /** Whether a request failed because what it named is not there. */
    protected static boolean notFound(IOException error) {
        return error.getCause() instanceof ShutdownSignalException signal
            && signal.getReason() instanceof AMQP.Channel.Close close
            && close.getReplyCode() == AMQP.NOT_FOUND;
    }

    private static ShutdownSignalException closed(ShutdownNotifier what, Action action) throws Exception {
        var closed = new CompletableFuture<ShutdownSignalException>();
        what.addShutdownListener(closed::complete);
        try {
            action.run();
        } catch (IOException | AlreadyClosedException expected) {
            // The listener is told the same, also where the answer comes later.
        }
        return closed.get(Broker.PATIENCE.toSeconds(), TimeUnit.SECONDS);
    }
}
