package lepus.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.impl.recovery.AutorecoveringConnection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import lepus.Broker;
import lepus.Relay;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The client's automatic recovery after the network broke. */
class RecoveryTest extends ClientTest {

    private final BlockingQueue<String> recovered = new LinkedBlockingQueue<>();
    private Relay relay;
    private AutorecoveringConnection fragile;

    @BeforeEach
    void connectThroughTheRelay() throws Exception {
        relay = new Relay();
        fragile = (AutorecoveringConnection) connect(factory -> {
            factory.setHost("127.0.0.1");
            factory.setPort(relay.port());
            factory.setAutomaticRecoveryEnabled(true);
            factory.setNetworkRecoveryInterval(100);
        });
        fragile.addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable recoverable) {
                recovered.add("recovered");
            }

            @Override
            public void handleRecoveryStarted(Recoverable recoverable) {
                // Only the end of a recovery matters here.
            }
        });
    }

    @AfterEach
    void closeTheRelay() throws Exception {
        relay.close();
    }

    private void breakAndRecover() throws Exception {
        relay.cut();
        assertEquals("recovered", recovered.poll(15, TimeUnit.SECONDS));
    }

    @Test
    void topologyAndConsumersComeBack() throws Exception {
        var own = fragile.createChannel();
        var queue = Broker.unique("queue");
        var exchange = Broker.unique("exchange");
        own.exchangeDeclare(exchange, "topic", false, true, null);
        own.queueDeclare(queue, false, true, false, Map.of("x-max-length", 100));
        own.queueBind(queue, exchange, "a.#");
        var inbox = Inbox.of(own, queue, false);
        for (int round = 0; round < 3; round++) {
            publish(exchange, "a.b", null, "round " + round);
            var delivery = inbox.next();
            assertEquals("round " + round, text(delivery.getBody()));
            own.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
            breakAndRecover();
        }
    }

    @Test
    void aQueueTheBrokerNamedGetsANewNameAndItsBindings() throws Exception {
        var own = fragile.createChannel();
        var queue = own.queueDeclare().getQueue();
        own.queueBind(queue, "amq.direct", queue);
        var renamed = new LinkedBlockingQueue<String>();
        fragile.addQueueRecoveryListener((before, after) -> renamed.add(after));
        var inbox = Inbox.of(own, queue, true);
        breakAndRecover();
        assertNotEquals(queue, renamed.poll(15, TimeUnit.SECONDS));
        publish("amq.direct", queue, null, "bound again");
        assertEquals(List.of("bound again"), inbox.next(1));
    }

    @Test
    void unsettledMessagesComeAgain() throws Exception {
        var queue = durable(Map.of());
        publish("", queue, MessageProperties.PERSISTENT_BASIC, "a", "b");
        var own = fragile.createChannel();
        own.basicQos(1);
        var inbox = Inbox.of(own, queue, false);
        assertEquals("a", text(inbox.next().getBody()));
        breakAndRecover();
        for (String body : List.of("a", "b")) {
            var delivery = inbox.next();
            assertEquals(body, text(delivery.getBody()));
            assertEquals(body.equals("a"), delivery.getEnvelope().isRedeliver());
            own.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
        }
    }

    @Test
    void confirmsAndTransactionsComeBack() throws Exception {
        var confirming = fragile.createChannel();
        confirming.confirmSelect();
        var tx = fragile.createChannel();
        tx.txSelect();
        breakAndRecover();
        var queue = queue();
        confirming.basicPublish("", queue, null, bytes("confirmed"));
        assertTrue(confirming.waitForConfirms(15_000));
        tx.basicPublish("", queue, null, bytes("committed"));
        tx.txCommit();
        assertEquals(List.of("confirmed", "committed"), drain(queue));
    }
}
