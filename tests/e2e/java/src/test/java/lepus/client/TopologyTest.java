package lepus.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import java.io.IOException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import lepus.Broker;
import lepus.Relay;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Exchanges, queues, and the bindings between them. */
class TopologyTest extends ClientTest {

    @Test
    void aDirectExchangeRoutesByEqualKeys() throws Exception {
        var exchange = exchange(BuiltinExchangeType.DIRECT);
        var one = bound(exchange, "one");
        var both = bound(exchange, "one");
        channel.queueBind(both, exchange, "two");
        for (String key : List.of("one", "two", "three", "on", "")) {
            publish(exchange, key, null, key);
        }
        assertEquals(List.of("one"), drain(one));
        assertEquals(List.of("one", "two"), drain(both));
    }

    @Test
    void aFanoutExchangeIgnoresKeys() throws Exception {
        var exchange = exchange(BuiltinExchangeType.FANOUT);
        var one = bound(exchange, "a");
        var two = bound(exchange, "");
        publish(exchange, "any", null, "x");
        assertEquals(List.of("x"), drain(one));
        assertEquals(List.of("x"), drain(two));
    }

    @ParameterizedTest
    @CsvSource({
        "stock.usd.nyse, stock.usd.nyse, true", "stock.*.nyse, stock.usd.nyse, true", "stock.*, stock.usd.nyse, false",
        "stock.#, stock.usd.nyse, true", "stock.#, stock, true", "#.nyse, nyse, true", "#.nyse, stock.nyse.x, false",
        "#, '', true", "*, '', false", "*.*, one, false", "*.*, ., true", "#.*.#, '', false", "a.#.b, a.b, true",
        "a.#.b, a.x.y.b, true", "a.#.b.#.c, a.1.b.2.3.c, true", "a.#.b, ab, false", "*.#.*, one, false",
    })
    void aTopicPatternMatchesWordsOrNot(String pattern, String key, boolean matches) throws Exception {
        var exchange = exchange(BuiltinExchangeType.TOPIC);
        var queue = bound(exchange, pattern);
        publish(exchange, key, null, "x");
        assertEquals(matches ? List.of("x") : List.of(), drain(queue));
    }

    @Test
    void overlappingBindingsDeliverOneCopy() throws Exception {
        var exchange = exchange(BuiltinExchangeType.TOPIC);
        var queue = bound(exchange, "a.#");
        channel.queueBind(queue, exchange, "#.b");
        channel.queueBind(queue, exchange, "a.b");
        channel.queueBind(queue, exchange, "a.b");
        publish(exchange, "a.b", null, "x");
        assertEquals(List.of("x"), drain(queue));
        channel.queueUnbind(queue, exchange, "a.b");
        channel.queueUnbind(queue, exchange, "a.#");
        publish(exchange, "c.b", null, "y");
        assertEquals(List.of("y"), drain(queue));
    }

    static Stream<Arguments> headerMatches() {
        return Stream.of(
            Arguments.of("all", Map.of("a", 1, "b", "x"), true),
            Arguments.of("all", Map.of("a", 1, "b", "x", "c", true), true),
            Arguments.of("all", Map.of("a", 1), false),
            Arguments.of("all", Map.of("a", 2, "b", "x"), false),
            Arguments.of("any", Map.of("a", 1), true),
            Arguments.of("any", Map.of("b", "x", "a", 9), true),
            Arguments.of("any", Map.of("c", 1), false),
            Arguments.of("any", Map.of(), false),
            Arguments.of("all", Map.of("a", "1", "b", "x"), false));
    }

    @ParameterizedTest(name = "{0} {1} {2}")
    @MethodSource("headerMatches")
    void aHeadersExchangeComparesHeaders(String match, Map<String, Object> headers, boolean matches) throws Exception {
        var exchange = exchange(BuiltinExchangeType.HEADERS);
        var queue = queue();
        channel.queueBind(queue, exchange, "", Map.of("x-match", match, "a", 1, "b", "x"));
        publish(exchange, "ignored", new AMQP.BasicProperties.Builder().headers(headers).build(), "x");
        assertEquals(matches ? 1 : 0, drain(queue).size());
    }

    @Test
    void aHeadersBindingWithoutValueAsksForPresence() throws Exception {
        var exchange = exchange(BuiltinExchangeType.HEADERS);
        var queue = queue();
        var arguments = new HashMap<String, Object>();
        arguments.put("present", null);
        channel.queueBind(queue, exchange, "", arguments);
        publish(exchange, "", new AMQP.BasicProperties.Builder().headers(Map.of("present", 7)).build(), "yes");
        publish(exchange, "", new AMQP.BasicProperties.Builder().headers(Map.of("absent", 7)).build(), "no");
        assertEquals(List.of("yes"), drain(queue));
    }

    @Test
    void anUnknownHeadersMatchIsRefused() throws Exception {
        var queue = queue();
        closes(channel, 406, 50, 20, "x-match",
            () -> channel.queueBind(queue, "amq.headers", "", Map.of("x-match", "some")));
    }

    @Test
    void theDefaultExchangeRoutesByQueueName() throws Exception {
        var queue = queue();
        send(queue, "x");
        var got = take(queue);
        assertEquals("", got.getEnvelope().getExchange());
        assertEquals(queue, got.getEnvelope().getRoutingKey());
    }

    @Test
    void exchangesBindToExchangesInLoopsAndQueuesGetOneCopy() throws Exception {
        var one = exchange(BuiltinExchangeType.FANOUT);
        var two = exchange(BuiltinExchangeType.TOPIC);
        var three = exchange(BuiltinExchangeType.DIRECT);
        channel.exchangeBind(two, one, "");
        channel.exchangeBind(three, two, "#");
        channel.exchangeBind(one, three, "k");
        var queue = bound(three, "k");
        channel.queueBind(queue, one, "");
        publish(one, "k", null, "x");
        assertEquals(List.of("x"), drain(queue));
        channel.exchangeUnbind(one, three, "k");
        channel.exchangeUnbind(one, three, "never bound");
        publish(three, "k", null, "y");
        assertEquals(List.of("y"), drain(queue));
    }

    @Test
    void anAlternateExchangeTakesWhatFoundNoQueue() throws Exception {
        var alternate = exchange(BuiltinExchangeType.FANOUT);
        var spill = bound(alternate, "");
        var main = exchange("direct", Map.of("alternate-exchange", alternate));
        var queue = bound(main, "known");
        publish(main, "known", null, "a");
        publish(main, "unknown", null, "b");
        assertEquals(List.of("a"), drain(queue));
        var got = take(spill);
        assertEquals("b", text(got.getBody()));
        assertEquals(main, got.getEnvelope().getExchange());
        assertEquals("unknown", got.getEnvelope().getRoutingKey());
    }

    @Test
    void autoDeleteExchangesGoWithTheirLastBinding() throws Exception {
        var source = exchange(BuiltinExchangeType.FANOUT);
        var target = exchange(BuiltinExchangeType.FANOUT);
        channel.exchangeBind(target, source, "");
        var queue = bound(target, "");
        channel.exchangeDeclarePassive(source);
        channel.queueDelete(queue);
        for (String name : List.of(target, source)) {
            var asking = connection.createChannel();
            closes(asking, 404, 40, 10, name, () -> asking.exchangeDeclarePassive(name));
        }
    }

    @Test
    void anExchangeInUseIsNotDeletedIfUnusedWasAsked() throws Exception {
        var exchange = exchange(BuiltinExchangeType.DIRECT);
        bound(exchange, "k");
        closes(channel, 406, 40, 20, "in use", () -> channel.exchangeDelete(exchange, true));
    }

    @Test
    void deletingTwiceIsFine() throws Exception {
        var exchange = exchange(BuiltinExchangeType.DIRECT);
        channel.exchangeDelete(exchange);
        channel.exchangeDelete(exchange);
        var queue = queue();
        channel.queueDelete(queue);
        assertEquals(0, channel.queueDelete(queue).getMessageCount());
    }

    @Test
    void aConsistentHashSpreadsKeysAndKeepsThem() throws Exception {
        var name = Broker.unique("exchange");
        var erlang = connection.getServerProperties().getOrDefault("platform", "").toString().startsWith("Erlang");
        var declaring = connect(factory -> {}).createChannel();
        try {
            declaring.exchangeDeclare(name, "x-consistent-hash", false, true, null);
        } catch (IOException unknown) {
            Assumptions.assumeFalse(erlang, "the plugin is not enabled");
            throw unknown;
        }
        var queues = List.of(bound(name, "1"), bound(name, "1"), bound(name, "1"));
        var keys = numbers(0, 300);
        for (int round = 0; round < 2; round++) {
            for (String key : keys) {
                channel.basicPublish(name, key, null, bytes(key));
            }
        }
        var seen = new HashSet<String>();
        int count = 0;
        Broker.until("600 messages", () -> queues.stream().mapToLong(this::ready).sum() == 600);
        for (String queue : queues) {
            var share = drain(queue);
            count += share.size();
            assertTrue(share.size() > 60, "a share of " + share.size());
            for (String key : new HashSet<>(share)) {
                assertTrue(seen.add(key), key + " went to two queues");
            }
        }
        assertEquals(600, count);
    }

    private long ready(String queue) {
        try {
            return channel.messageCount(queue);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    @Test
    void declareTellsNameMessagesAndConsumers() throws Exception {
        var name = Broker.unique("queue");
        var declared = channel.queueDeclare(name, false, true, false, null);
        assertEquals(List.of(name, 0, 0),
            List.of(declared.getQueue(), declared.getMessageCount(), declared.getConsumerCount()));
        send(name, "a", "b");
        assertEquals(2, channel.messageCount(name));
        var inbox = Inbox.of(channel, name, false);
        inbox.next(2);
        assertEquals(0, channel.messageCount(name));
        assertEquals(1, channel.consumerCount(name));
    }

    @Test
    void namesGivenByTheBrokerAreItsOwnAndUnique() throws Exception {
        var one = channel.queueDeclare().getQueue();
        var two = channel.queueDeclare().getQueue();
        assertTrue(one.startsWith("amq.gen-"), one);
        assertNotEquals(one, two);
    }

    @Test
    void anEmptyNameMeansTheLastQueueOfTheChannel() throws Exception {
        var queue = queue();
        channel.queueBind("", "amq.direct", "");
        publish("amq.direct", queue, null, "the key became the name");
        assertEquals("the key became the name", text(take("").getBody()));
    }

    @Test
    void unknownArgumentsAreIgnored() throws Exception {
        var name = Broker.unique("queue");
        channel.queueDeclare(name, false, true, false, Map.of("x-colour", "red", "deep", Map.of("list", List.of(1, "a"))));
        channel.queueDeclare(name, false, true, false, Map.of("x-shape", 1));
    }

    @Test
    void integersOfAnyWidthAreTheSameArgument() throws Exception {
        var name = Broker.unique("queue");
        for (Object ttl : List.of(100, 100L, (short) 100, (byte) 100)) {
            channel.queueDeclare(name, false, true, false, Map.of("x-message-ttl", ttl));
        }
    }

    @Test
    void anExclusiveQueueIsGoneAfterItsConnection() throws Exception {
        var name = Broker.unique("queue");
        var owner = connect(factory -> {});
        owner.createChannel().queueDeclare(name, false, true, false, null);
        owner.close();
        closes(channel, 404, 50, 10, name, () -> channel.queueDeclarePassive(name));
    }

    @Test
    void anExclusiveQueueIsGoneAfterItsConnectionBroke() throws Exception {
        var name = Broker.unique("queue");
        try (var relay = new Relay()) {
            var owner = connect(factory -> {
                factory.setHost("127.0.0.1");
                factory.setPort(relay.port());
            });
            owner.createChannel().queueDeclare(name, false, true, false, null);
            relay.cut();
        }
        Broker.until("queue is gone", () -> {
            var asking = connection.createChannel();
            try {
                asking.queueDeclarePassive(name);
                asking.close();
                return false;
            } catch (IOException error) {
                return notFound(error);
            }
        });
    }

    @Test
    void anAutoDeleteQueueIsGoneOnceItsLastConsumerIsCancelled() throws Exception {
        var name = Broker.unique("queue");
        channel.queueDeclare(name, false, false, true, null);
        var one = Inbox.of(channel, name, true);
        var two = Inbox.of(channel, name, true);
        channel.basicCancel(one.tag);
        channel.queueDeclarePassive(name);
        channel.basicCancel(two.tag);
        closes(channel, 404, 50, 10, name, () -> channel.queueDeclarePassive(name));
    }

    @Test
    void purgeDropsReadyMessagesOnly() throws Exception {
        var queue = queue();
        send(queue, numbers(0, 5));
        var held = hold(queue);
        assertEquals(4, channel.queuePurge(queue).getMessageCount());
        channel.basicNack(held.getEnvelope().getDeliveryTag(), false, true);
        assertEquals("0", text(arrived(queue).getBody()));
    }

    @Test
    void deleteTellsWhatIsLostAndMayBeConditional() throws Exception {
        var queue = queue();
        send(queue, "a", "b");
        var one = connection.createChannel();
        closes(one, 406, 50, 40, "not empty", () -> one.queueDelete(queue, false, true));
        Inbox.of(channel, queue, true).next(2);
        var two = connection.createChannel();
        closes(two, 406, 50, 40, "in use", () -> two.queueDelete(queue, true, false));
        send(queue(), "other");
        assertEquals(0, channel.queueDelete(queue).getMessageCount());
    }

    @Test
    void requestsWithoutAnswerTakeEffectInOrder() throws Exception {
        var queue = Broker.unique("queue");
        var exchange = Broker.unique("exchange");
        var target = Broker.unique("exchange");
        channel.queueDeclareNoWait(queue, false, true, false, null);
        channel.exchangeDeclareNoWait(exchange, "direct", false, true, false, null);
        channel.exchangeDeclareNoWait(target, "fanout", false, true, false, null);
        channel.exchangeBindNoWait(target, exchange, "via", null);
        channel.queueBindNoWait(queue, exchange, "k", null);
        channel.queueBindNoWait(queue, target, "", null);
        channel.queueDeclarePassive(queue);
        publish(exchange, "k", null, "direct");
        publish(exchange, "via", null, "through");
        assertEquals(List.of("direct", "through"), drain(queue));
        channel.queueDeleteNoWait(queue, false, false);
        channel.exchangeDeleteNoWait(exchange, false);
        closes(channel, 404, 50, 10, queue, () -> channel.queueDeclarePassive(queue));
    }

    @Test
    void anErrorWithoutAnswerStillClosesTheChannel() throws Exception {
        closes(channel, 404, 50, 20, "no exchange",
            () -> channel.queueBindNoWait(queue(), Broker.unique("exchange"), "k", null));
    }

    @Test
    void whatWasAnsweredIsSeenByOtherConnections() throws Exception {
        Channel one = channel;
        Channel two = connect(factory -> {}).createChannel();
        for (int round = 0; round < 50; round++) {
            var queue = Broker.unique("queue");
            one.queueDeclare(queue, false, false, false, null);
            two.queueDeclarePassive(queue);
            two.queueBind(queue, "amq.direct", queue);
            publish("amq.direct", queue, null, "bound");
            assertEquals("bound", text(two.basicGet(queue, true).getBody()));
            two.queueDelete(queue);
            var asking = connection.createChannel();
            closes(asking, 404, 50, 10, queue, () -> asking.queueDeclarePassive(queue));
        }
    }

    @Test
    void anUnusedLeasedQueueGoes() throws Exception {
        var name = Broker.unique("queue");
        channel.queueDeclare(name, false, false, false, Map.of("x-expires", 2000));
        Broker.until("lease is over", () -> {
            var asking = connection.createChannel();
            try {
                // Unlike a declare or a get, a bind does not renew the lease.
                asking.queueBind(name, "amq.direct", name);
                asking.close();
                return false;
            } catch (IOException error) {
                return notFound(error);
            }
        });
    }

    @Test
    void anAutoDeleteQueueThatNeverHadAConsumerStays() throws Exception {
        var name = Broker.unique("queue");
        var owner = connect(factory -> {});
        owner.createChannel().queueDeclare(name, false, false, true, null);
        owner.close();
        deleteLater(sweeping -> sweeping.queueDelete(name));
        assertEquals(0, channel.queueDeclarePassive(name).getMessageCount());
    }
}
