package lepus.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.GetResponse;
import java.util.Date;
import java.util.List;
import java.util.Map;
import lepus.Broker;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Time to live, limits of length, dead lettering and priorities. */
class ExpiryTest extends ClientTest {

    private static AMQP.BasicProperties expiring(String milliseconds) {
        return new AMQP.BasicProperties.Builder().expiration(milliseconds).build();
    }

    private static AMQP.BasicProperties priority(int priority) {
        return new AMQP.BasicProperties.Builder().priority(priority).build();
    }

    @SuppressWarnings("unchecked")
    private static List<Map<String, Object>> deaths(GetResponse message) {
        return (List<Map<String, Object>>) message.getProps().getHeaders().get("x-death");
    }

    private static void assertDeath(Map<String, Object> death, String reason, String queue, String exchange, String key,
            long count) {
        assertEquals(reason, death.get("reason").toString());
        assertEquals(queue, death.get("queue").toString());
        assertEquals(exchange, death.get("exchange").toString());
        assertEquals(key, ((List<?>) death.get("routing-keys")).get(0).toString());
        assertEquals(count, assertInstanceOf(Long.class, death.get("count")));
        assertInstanceOf(Date.class, death.get("time"));
    }

    @Test
    void messagesExpireByTheQueuesTime() throws Exception {
        var queue = queue(Map.of("x-message-ttl", 150));
        send(queue, "a", "b");
        Broker.until("both expired", () -> channel.messageCount(queue) == 0);
        assertNull(channel.basicGet(queue, true));
    }

    @Test
    void messagesExpireByTheirOwnTime() throws Exception {
        var queue = queue(Map.of("x-message-ttl", 60_000));
        publish("", queue, expiring("100"), "short");
        send(queue, "long");
        Broker.until("one expired", () -> channel.messageCount(queue) == 1);
        var got = take(queue);
        assertEquals("long", text(got.getBody()));
        assertNull(got.getProps().getExpiration());
    }

    @Test
    void timeZeroExpiresUnlessAConsumerWaits() throws Exception {
        var queue = queue(Map.of("x-message-ttl", 0));
        send(queue, "lost");
        assertNull(channel.basicGet(queue, true));
        var inbox = Inbox.of(channel, queue, true);
        send(queue, "at once");
        assertEquals(List.of("at once"), inbox.next(1));
    }

    @Test
    void anExpiredMessageDiesIntoItsExchange() throws Exception {
        var graves = exchange(BuiltinExchangeType.DIRECT);
        var grave = bound(graves, "dead");
        var queue = queue(Map.of("x-message-ttl", 60_000, "x-dead-letter-exchange", graves, "x-dead-letter-routing-key", "dead"));
        publish("", queue, new AMQP.BasicProperties.Builder().expiration("50").headers(Map.of("own", 1)).build(), "x");
        var dead = arrived(grave);
        assertEquals("x", text(dead.getBody()));
        assertEquals(graves, dead.getEnvelope().getExchange());
        assertEquals("dead", dead.getEnvelope().getRoutingKey());
        assertFalse(dead.getEnvelope().isRedeliver());
        assertNull(dead.getProps().getExpiration());
        var headers = dead.getProps().getHeaders();
        assertEquals(1, headers.get("own"));
        assertEquals("expired", headers.get("x-first-death-reason").toString());
        assertEquals(queue, headers.get("x-first-death-queue").toString());
        assertEquals("", headers.get("x-first-death-exchange").toString());
        assertDeath(deaths(dead).get(0), "expired", queue, "", queue, 1);
        assertEquals("50", deaths(dead).get(0).get("original-expiration").toString());
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aRejectedMessageDiesUnderItsOwnKey(boolean byNack) throws Exception {
        var source = exchange(BuiltinExchangeType.TOPIC);
        var graves = exchange(BuiltinExchangeType.TOPIC);
        var grave = bound(graves, "orders.#");
        var queue = queue(Map.of("x-dead-letter-exchange", graves));
        channel.queueBind(queue, source, "orders.*");
        publish(source, "orders.new", null, "x");
        long tag = hold(queue).getEnvelope().getDeliveryTag();
        if (byNack) {
            channel.basicNack(tag, false, false);
        } else {
            channel.basicReject(tag, false);
        }
        var dead = arrived(grave);
        assertEquals("orders.new", dead.getEnvelope().getRoutingKey());
        assertDeath(deaths(dead).get(0), "rejected", queue, source, "orders.new", 1);
    }

    @Test
    void theOldestDieWhenAQueueIsFull() throws Exception {
        var graves = exchange(BuiltinExchangeType.FANOUT);
        var grave = bound(graves, "");
        var queue = queue(Map.of("x-max-length", 2, "x-dead-letter-exchange", graves));
        send(queue, numbers(0, 5));
        assertEquals(List.of("3", "4"), drain(queue));
        Broker.until("three are dead", () -> channel.messageCount(grave) == 3);
        var dead = take(grave);
        assertEquals("0", text(dead.getBody()));
        assertDeath(deaths(dead).get(0), "maxlen", queue, "", queue, 1);
        assertEquals(List.of("1", "2"), drain(grave));
    }

    @Test
    void onlyReadyMessagesCountAgainstTheLength() throws Exception {
        var queue = queue(Map.of("x-max-length", 1));
        send(queue, "held");
        var held = hold(queue);
        send(queue, "second", "third");
        assertEquals(List.of("third"), drain(queue));
        channel.basicAck(held.getEnvelope().getDeliveryTag(), false);
    }

    @Test
    void bytesMayBeLimited() throws Exception {
        var queue = queue(Map.of("x-max-length-bytes", 10));
        send(queue, "12345", "67890", "abcde");
        assertEquals(List.of("67890", "abcde"), drain(queue));
    }

    @Test
    void deathsAreCountedPerQueueAndReasonNewestFirst() throws Exception {
        var parking = Broker.unique("queue");
        var work = queue(Map.of("x-dead-letter-exchange", "", "x-dead-letter-routing-key", parking));
        channel.queueDeclare(parking, false, true, false,
            Map.of("x-message-ttl", 30, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", work));
        send(work, "retry");
        for (long round = 1; round <= 3; round++) {
            var got = new GetResponse[1];
            Broker.until("message is back", () -> (got[0] = channel.basicGet(work, false)) != null);
            if (round > 1) {
                var deaths = deaths(got[0]);
                assertEquals(2, deaths.size());
                assertDeath(deaths.get(0), "expired", parking, "", parking, round - 1);
                assertDeath(deaths.get(1), "rejected", work, "", work, round - 1);
            }
            channel.basicReject(got[0].getEnvelope().getDeliveryTag(), false);
        }
    }

    @Test
    void aCycleWithoutARejectEnds() throws Exception {
        var queue = Broker.unique("queue");
        channel.queueDeclare(queue, false, true, false,
            Map.of("x-message-ttl", 20, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", queue));
        send(queue, "turns once");
        Broker.until("message is dropped", () -> channel.messageCount(queue) == 0);
        Thread.sleep(100);
        assertEquals(0, channel.messageCount(queue));
    }

    @Test
    void aMissingDeadLetterExchangeDropsSilently() throws Exception {
        var queue = queue(Map.of("x-dead-letter-exchange", Broker.unique("exchange")));
        send(queue, "x");
        channel.basicReject(hold(queue).getEnvelope().getDeliveryTag(), false);
        assertEquals(0, channel.messageCount(queue));
    }

    @Test
    void aDeliveryLimitEndsRetries() throws Exception {
        var graves = exchange(BuiltinExchangeType.FANOUT);
        var grave = bound(graves, "");
        var queue = durable(Map.of("x-queue-type", "quorum", "x-delivery-limit", 2, "x-dead-letter-exchange", graves));
        send(queue, "poison");
        var inbox = Inbox.of(channel, queue, false);
        for (long count = 0; count < 3; count++) {
            var delivery = inbox.next();
            if (count > 0) {
                assertEquals(count, ((Number) delivery.getProperties().getHeaders().get("x-delivery-count")).longValue());
            }
            channel.basicNack(delivery.getEnvelope().getDeliveryTag(), false, true);
        }
        assertDeath(deaths(arrived(grave)).get(0), "delivery_limit", queue, "", queue, 1);
    }

    @Test
    void higherPrioritiesComeFirst() throws Exception {
        var queue = queue(Map.of("x-max-priority", 5));
        int[] priorities = {1, 5, 0, 3, 9, 3};
        for (int at = 0; at < priorities.length; at++) {
            publish("", queue, priority(priorities[at]), at + ":" + priorities[at]);
        }
        send(queue, "6:none");
        assertEquals(List.of("1:5", "4:9", "3:3", "5:3", "0:1", "2:0", "6:none"), drain(queue));
    }

    @Test
    void aDelayedMessageComesLater() throws Exception {
        var name = Broker.unique("exchange");
        var erlang = connection.getServerProperties().getOrDefault("platform", "").toString().startsWith("Erlang");
        Assumptions.assumeFalse(erlang, "the plugin is not enabled");
        channel.exchangeDeclare(name, "x-delayed-message", false, true, Map.of("x-delayed-type", "direct"));
        var queue = bound(name, "k");
        publish(name, "k", new AMQP.BasicProperties.Builder().headers(Map.of("x-delay", 400)).build(), "late");
        publish(name, "k", new AMQP.BasicProperties.Builder().headers(Map.of("x-delay", 100)).build(), "soon");
        publish(name, "k", null, "now");
        for (String body : List.of("now", "soon", "late")) {
            assertEquals(body, text(arrived(queue).getBody()));
        }
        assertTrue(channel.isOpen());
    }
}
