package lepus.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.MessageProperties;
import java.util.List;
import java.util.Map;
import lepus.Broker;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The tx class: publishes and settlements take effect together. */
class TransactionTest extends ClientTest {

    private Channel tx;

    @BeforeEach
    void select() throws Exception {
        tx = connection.createChannel();
        tx.txSelect();
    }

    private void publishInTx(String queue, String... bodies) throws Exception {
        for (String body : bodies) {
            tx.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, bytes(body));
        }
    }

    @Test
    void nothingIsSeenBeforeTheCommit() throws Exception {
        var queue = durable(Map.of());
        publishInTx(queue, numbers(0, 10));
        tx.exchangeDeclarePassive("amq.direct");
        assertNull(channel.basicGet(queue, true));
        tx.txCommit();
        assertEquals(List.of(numbers(0, 10)), drain(queue));
    }

    @Test
    void aRollbackForgetsPublishes() throws Exception {
        var queue = queue();
        publishInTx(queue, "forgotten");
        tx.txRollback();
        publishInTx(queue, "kept");
        tx.txCommit();
        assertEquals(List.of("kept"), drain(queue));
    }

    @Test
    void acknowledgementsWaitForTheCommit() throws Exception {
        var queue = queue();
        send(queue, numbers(0, 3));
        tx.basicAck(tx.basicGet(queue, false).getEnvelope().getDeliveryTag(), false);
        tx.txCommit();
        tx.basicAck(tx.basicGet(queue, false).getEnvelope().getDeliveryTag(), false);
        tx.close();
        assertEquals(List.of("1", "2"), drain(queue));
    }

    @Test
    void afterARollbackDeliveriesMayBeSettledAgain() throws Exception {
        var queue = queue();
        send(queue, "x");
        long tag = tx.basicGet(queue, false).getEnvelope().getDeliveryTag();
        tx.basicAck(tag, false);
        tx.txRollback();
        assertEquals(0, channel.messageCount(queue));
        tx.basicReject(tag, true);
        tx.txCommit();
        assertNotNull(arrived(queue));
    }

    @Test
    void closingTheChannelRollsBack() throws Exception {
        var queue = queue();
        publishInTx(queue, "lost");
        tx.close();
        assertNull(channel.basicGet(queue, true));
    }

    @Test
    void anUnknownTagIsRefusedAtOnce() throws Exception {
        closes(tx, 406, 60, 80, "unknown delivery tag", () -> tx.basicAck(42, false));
    }

    @Test
    void rejectsWorkInsideATransaction() throws Exception {
        var graves = exchange("fanout", Map.of());
        var grave = bound(graves, "");
        var queue = queue(Map.of("x-dead-letter-exchange", graves));
        send(queue, "x");
        tx.basicReject(tx.basicGet(queue, false).getEnvelope().getDeliveryTag(), false);
        tx.exchangeDeclarePassive("amq.direct");
        assertNull(channel.basicGet(grave, true));
        tx.txCommit();
        assertEquals("x", text(arrived(grave).getBody()));
    }

    @Test
    void expiryCountsInTransactionsToo() throws Exception {
        var queue = queue();
        tx.basicPublish("", queue, new AMQP.BasicProperties.Builder().expiration("50").build(), bytes("x"));
        tx.txCommit();
        Broker.until("message expired", () -> channel.messageCount(queue) == 0);
    }
}
