package lepus.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import lepus.Broker;
import lepus.Operator;
import org.junit.jupiter.api.Test;

/** What clients see of an operator's rights, alarms and orders. */
class OperatorTest extends ClientTest {

    /** A user in a virtual host of its own, gone after the block. */
    private static final class Guarded implements AutoCloseable {
        final String user = Broker.unique("user");
        final String vhost = Broker.unique("vhost");

        Guarded(String configure, String write, String read) throws Exception {
            Operator.ctl("add_user", user, "secret");
            Operator.ctl("add_vhost", vhost);
            permit(configure, write, read);
        }

        void permit(String configure, String write, String read) throws Exception {
            Operator.ctl("set_permissions", "-p", vhost, user, configure, write, read);
        }

        @Override
        public void close() throws Exception {
            Operator.ctl("delete_vhost", vhost);
            Operator.ctl("delete_user", user);
        }
    }

    private Connection enter(Guarded guarded) throws Exception {
        return connect(factory -> {
            factory.setUsername(guarded.user);
            factory.setPassword("secret");
            factory.setVirtualHost(guarded.vhost);
        });
    }

    /** What one may do, on a channel of its own. */
    private interface Operation {
        void run(Channel channel, String name) throws IOException;
    }

    private void tried(Connection connection, boolean isAllowed, String name, Operation operation) throws Exception {
        var trying = connection.createChannel();
        try {
            operation.run(trying, name);
            trying.basicQos(1);
            assertTrue(isAllowed, name);
            trying.close();
        } catch (IOException | AlreadyClosedException refused) {
            assertFalse(isAllowed, name);
            var signal = assertInstanceOf(ShutdownSignalException.class,
                    refused instanceof AlreadyClosedException ? refused : refused.getCause());
            var close = assertInstanceOf(AMQP.Channel.Close.class, signal.getReason());
            assertEquals(403, close.getReplyCode(), close.getReplyText());
        }
    }

    @Test
    void everyOperationTakesTheRightThatItNeeds() throws Exception {
        try (var guarded = new Guarded(".*", ".*", ".*")) {
            var names = List.of("configure", "write", "read", "none");
            var preparing = enter(guarded).createChannel();
            for (var name : names) {
                preparing.exchangeDeclare(name, "direct");
                preparing.queueDeclare(name, false, false, false, null);
            }
            guarded.permit("^configure", "^(write|configure-and-write)", "^(read|configure-and-read)");
            var tight = enter(guarded);
            Map<Operation, String> needs = Map.of(
                    (on, name) -> on.exchangeDeclare(name, "direct"), "configure",
                    (on, name) -> on.queueDeclare(name, false, false, false, null), "configure",
                    (on, name) -> on.queueBind(name, "read", ""), "write",
                    (on, name) -> on.queueBind("write", name, ""), "read",
                    (on, name) -> on.basicPublish(name, "", null, new byte[1]), "write",
                    (on, name) -> on.basicGet(name, true), "read",
                    (on, name) -> on.basicConsume(name, true, Inbox.unused(on)), "read",
                    (on, name) -> on.queuePurge(name), "read");
            for (var need : needs.entrySet()) {
                for (var name : names) {
                    tried(tight, name.equals(need.getValue()), name, need.getKey());
                }
            }
            for (var name : names) {
                // Whether a thing is there is told to who may do anything with it.
                boolean isKnown = !name.equals("none");
                tried(tight, isKnown, name, (on, passive) -> on.exchangeDeclarePassive(passive));
                tried(tight, isKnown, name, (on, passive) -> on.queueDeclarePassive(passive));
            }
            // Who names where messages go on to must be able to write there, and to read here.
            for (var name : List.of("configure-me", "configure-and-write-me", "configure-and-read-me")) {
                for (var target : names) {
                    boolean isAllowed = name.equals("configure-and-read-me") && target.equals("write");
                    tried(tight, isAllowed, name, (on, exchange) -> {
                        on.exchangeDeclare(exchange, "direct", false, false, Map.of("alternate-exchange", target));
                        on.exchangeDelete(exchange);
                    });
                    tried(tight, isAllowed, name, (on, queue) -> {
                        on.queueDeclare(queue, false, false, false, Map.of("x-dead-letter-exchange", target));
                        on.queueDelete(queue);
                    });
                }
            }
            for (var name : names) {
                tried(tight, name.equals("configure"), name, (on, deleted) -> on.queueDelete(deleted));
                tried(tight, name.equals("configure"), name, (on, deleted) -> on.exchangeDelete(deleted));
            }
        }
    }

    @Test
    void rightsThatAreTakenAwayAreGoneForOpenConnections() throws Exception {
        try (var guarded = new Guarded(".*", ".*", ".*")) {
            var open = enter(guarded);
            open.createChannel().queueDeclare("q", false, false, false, null);
            guarded.permit("", "", "");
            tried(open, false, "", (on, name) -> on.queueDeclare());
            tried(open, false, "q", (on, name) -> on.queueDeclare(name, false, false, false, null));
            tried(open, false, "q", (on, name) -> on.queueDelete(name));
            tried(open, false, "q", (on, name) -> on.queueBind(name, "amq.direct", "k"));
            tried(open, false, "q", (on, name) -> on.basicGet(name, true));
            tried(open, false, "amq.direct", (on, name) -> on.basicPublish(name, "k", null, new byte[1]));
        }
    }

    @Test
    void aPasswordIsChangedWhileItsUserStays() throws Exception {
        try (var guarded = new Guarded(".*", ".*", ".*")) {
            enter(guarded);
            Operator.ctl("change_password", guarded.user, "another");
            assertThrows(AuthenticationFailureException.class, () -> enter(guarded));
        }
    }

    @Test
    void topicPermissionsHoldAtPublishing() throws Exception {
        try (var guarded = new Guarded(".*", ".*", ".*")) {
            Operator.ctl("set_topic_permissions", "-p", guarded.vhost, guarded.user, "amq.topic", "^a", "^b");
            var tight = enter(guarded);
            tried(tight, true, "amq.topic", (on, name) -> on.basicPublish(name, "a.x", null, new byte[1]));
            tried(tight, false, "amq.topic", (on, name) -> on.basicPublish(name, "c.x", null, new byte[1]));
            tried(tight, true, "amq.topic", (on, name) -> on.queueBind(on.queueDeclare().getQueue(), name, "b.#"));
            tried(tight, false, "amq.topic", (on, name) -> on.queueBind(on.queueDeclare().getQueue(), name, "a.#"));
            Operator.ctl("clear_topic_permissions", "-p", guarded.vhost, guarded.user);
            tried(tight, true, "amq.topic", (on, name) -> on.basicPublish(name, "c.x", null, new byte[1]));
        }
    }

    @Test
    void publishersWaitUntilTheLastAlarmIsOver() throws Exception {
        var queue = queue();
        var inbox = Inbox.of(channel, queue, true);
        var publisher = connect(factory -> factory.setRequestedHeartbeat(1));
        var blocked = new CompletableFuture<String>();
        var unblocked = new CompletableFuture<Void>();
        publisher.addBlockedListener(blocked::complete, () -> unblocked.complete(null));
        var publishing = publisher.createChannel();
        try {
            Operator.raise("memory");
            publishing.basicPublish("", queue, null, "held back".getBytes());
            blocked.get(Broker.PATIENCE.toSeconds(), TimeUnit.SECONDS);
            inbox.assertQuiet();
            // Who does not publish goes on.
            channel.queueDeclarePassive(queue);
            Operator.raise("disk");
            Operator.clear("memory");
            inbox.assertQuiet();
            assertFalse(unblocked.isDone());
        } finally {
            Operator.clear("memory");
            Operator.clear("disk");
        }
        assertEquals(List.of("held back"), inbox.next(1));
        unblocked.get(Broker.PATIENCE.toSeconds(), TimeUnit.SECONDS);
        publishing.basicPublish("", queue, null, "free".getBytes());
        assertEquals(List.of("free"), inbox.next(1));
    }

    /** The operator's name of a connection, found by the name that its client has given it. */
    private static String pid(String name) throws Exception {
        var wanted = "\"connection_name\",\"" + name + "\"";
        for (var line : Operator.ctl("list_connections", "-q", "pid", "peer_port", "client_properties").split("\n")) {
            if (line.contains(wanted)) {
                return line.split("\t")[0];
            }
        }
        throw new AssertionError("no connection has the name " + name);
    }

    private Connection recovering(String vhost, String name, CountDownLatch recovered) throws Exception {
        var factory = Broker.factory();
        factory.setVirtualHost(vhost);
        factory.setAutomaticRecoveryEnabled(true);
        factory.setNetworkRecoveryInterval(50);
        var opened = factory.newConnection(name);
        ((Recoverable) opened).addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable recoverable) {
                recovered.countDown();
            }

            @Override
            public void handleRecoveryStarted(Recoverable recoverable) {}
        });
        return opened;
    }

    @Test
    void aConnectionThatTheOperatorClosesRecovers() throws Exception {
        var name = Broker.unique("connection");
        var recovered = new CountDownLatch(1);
        var opened = recovering("/", name, recovered);
        try {
            var why = new CompletableFuture<ShutdownSignalException>();
            opened.addShutdownListener(why::complete);
            var work = opened.createChannel();
            var queue = work.queueDeclare().getQueue();
            work.queueBind(queue, "amq.topic", name);
            var inbox = Inbox.of(work, queue, true);
            Operator.ctl("close_connection", pid(name), "Closed via rabbitmqctl");
            var close = assertInstanceOf(AMQP.Connection.Close.class,
                    why.get(Broker.PATIENCE.toSeconds(), TimeUnit.SECONDS).getReason());
            assertEquals(320, close.getReplyCode());
            assertEquals("CONNECTION_FORCED - Closed via rabbitmqctl", close.getReplyText());
            assertTrue(recovered.await(Broker.PATIENCE.toSeconds(), TimeUnit.SECONDS));
            publish("amq.topic", name, null, "after");
            assertEquals(List.of("after"), inbox.next(1));
        } finally {
            opened.abort(5000);
        }
    }

    @Test
    void allConnectionsOfAVirtualHostAreClosed() throws Exception {
        try (var guarded = new Guarded(".*", ".*", ".*")) {
            Operator.ctl("set_permissions", "-p", guarded.vhost, Broker.factory().getUsername(), ".*", ".*", ".*");
            var recovered = new CountDownLatch(2);
            var closes = new AtomicInteger();
            var opened = List.of(recovering(guarded.vhost, "one", recovered), recovering(guarded.vhost, "two", recovered));
            opened.forEach(each -> each.addShutdownListener(cause -> closes.incrementAndGet()));
            Operator.ctl("close_all_connections", "-p", guarded.vhost, "maintenance");
            assertTrue(recovered.await(Broker.PATIENCE.toSeconds(), TimeUnit.SECONDS));
            assertEquals(2, closes.get());
            assertTrue(connection.isOpen());
            opened.forEach(each -> each.abort(5000));
        }
    }

    @Test
    void aVirtualHostThatIsDeletedClosesItsConnections() throws Exception {
        var guarded = new Guarded(".*", ".*", ".*");
        var opened = enter(guarded);
        guarded.close();
        Broker.until("the connection is closed", () -> !opened.isOpen());
        var close = assertInstanceOf(AMQP.Connection.Close.class, opened.getCloseReason().getReason());
        assertEquals(320, close.getReplyCode());
    }

    @Test
    void clientsComeBackAfterTheApplicationWasStopped() throws Exception {
        var recovered = new CountDownLatch(1);
        var opened = recovering("/", Broker.unique("connection"), recovered);
        try {
            var work = opened.createChannel();
            var queue = durable(Map.of());
            publish("", queue, com.rabbitmq.client.MessageProperties.PERSISTENT_BASIC, "kept");
            Operator.ctl("stop_app");
            try {
                Broker.until("the connection is closed", () -> !connection.isOpen());
                assertThrows(IOException.class, () -> connect(factory -> {}));
            } finally {
                Operator.ctl("start_app");
            }
            assertTrue(recovered.await(Broker.PATIENCE.toSeconds(), TimeUnit.SECONDS));
            assertEquals(1, work.messageCount(queue));
        } finally {
            opened.abort(5000);
        }
    }
}
