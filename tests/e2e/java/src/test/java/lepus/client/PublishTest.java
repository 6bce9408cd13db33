package lepus.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.ConfirmListener;
import com.rabbitmq.client.LongString;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Return;
import java.io.IOException;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import lepus.Broker;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Publishing: confirms, returns, properties, bodies. */
class PublishTest extends ClientTest {

    private static AMQP.BasicProperties headers(Map<String, Object> headers) {
        return new AMQP.BasicProperties.Builder().headers(headers).build();
    }

    @Test
    void everyMessageIsConfirmedOnce() throws Exception {
        var queue = durable(Map.of());
        var outstanding = new ConcurrentSkipListSet<Long>();
        var unknown = Collections.synchronizedList(new ArrayList<Long>());
        channel.confirmSelect();
        channel.addConfirmListener(new ConfirmListener() {
            @Override
            public void handleAck(long tag, boolean multiple) {
                if (multiple) {
                    outstanding.headSet(tag, true).clear();
                } else if (!outstanding.remove(tag)) {
                    unknown.add(tag);
                }
            }

            @Override
            public void handleNack(long tag, boolean multiple) {
                unknown.add(-tag);
            }
        });
        assertEquals(1, channel.getNextPublishSeqNo());
        for (String body : numbers(0, 2000)) {
            outstanding.add(channel.getNextPublishSeqNo());
            channel.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, bytes(body));
        }
        Broker.until("all confirmed", outstanding::isEmpty);
        assertEquals(List.of(), unknown);
        assertEquals(List.of(numbers(0, 2000)), drain(queue));
    }

    @Test
    void messagesNobodyKeepsAreConfirmedToo() throws Exception {
        var doomed = List.of(queue(Map.of("x-message-ttl", 0)), queue(Map.of("x-max-length", 0)), queue(Map.of("x-max-length", 1)));
        channel.confirmSelect();
        for (String queue : doomed) {
            for (int count = 0; count < 10; count++) {
                channel.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, bytes("x"));
            }
        }
        channel.basicPublish("amq.direct", Broker.unique("nowhere"), null, bytes("x"));
        assertTrue(channel.waitForConfirms(Broker.PATIENCE.toMillis()));
    }

    @Test
    void aFullQueueThatRejectsSaysSo() throws Exception {
        var queue = queue(Map.of("x-max-length", 2, "x-overflow", "reject-publish"));
        channel.confirmSelect();
        for (String body : numbers(0, 5)) {
            channel.basicPublish("", queue, null, bytes(body));
        }
        assertFalse(channel.waitForConfirms(Broker.PATIENCE.toMillis()));
        assertEquals(List.of("0", "1"), drain(queue));
        channel.basicPublish("", queue, null, bytes("again"));
        assertTrue(channel.waitForConfirms(Broker.PATIENCE.toMillis()));
    }

    @Test
    void anUnroutableMandatoryMessageComesBackBeforeItsConfirm() throws Exception {
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        channel.confirmSelect();
        channel.addConfirmListener((tag, multiple) -> told.add("ack " + tag), (tag, multiple) -> told.add("nack " + tag));
        channel.addReturnListener(returned -> told.add("return " + new String(returned.getBody())));
        for (String body : numbers(1, 4)) {
            channel.basicPublish("", Broker.unique("nowhere"), true, null, bytes(body));
            assertEquals("return " + body, told.poll(15, TimeUnit.SECONDS));
            assertEquals("ack " + body, told.poll(15, TimeUnit.SECONDS));
        }
        var queue = queue();
        channel.basicPublish("", queue, true, null, bytes("4"));
        assertEquals("ack 4", told.poll(15, TimeUnit.SECONDS));
    }

    @Test
    void aReturnCarriesTheWholeMessage() throws Exception {
        BlockingQueue<Return> returns = new LinkedBlockingQueue<>();
        channel.addReturnListener(returns::add);
        var key = Broker.unique("nowhere");
        var body = new byte[300_000];
        new Random(2).nextBytes(body);
        var properties = new AMQP.BasicProperties.Builder()
            .contentType("a/b").messageId("m").priority(4).deliveryMode(2).headers(Map.of("n", 1)).build();
        channel.basicPublish("amq.topic", key, true, properties, body);
        var returned = returns.poll(15, TimeUnit.SECONDS);
        assertEquals(List.of(312, "NO_ROUTE", "amq.topic", key),
            List.of(returned.getReplyCode(), returned.getReplyText(), returned.getExchange(), returned.getRoutingKey()));
        assertEquals(properties, returned.getProperties());
        assertArrayEquals(body, returned.getBody());
    }

    @Test
    void aMissingExchangeClosesTheChannelOnce() throws Exception {
        var name = Broker.unique("exchange");
        closes(channel, 404, 60, 40, "no exchange '" + name + "' in vhost '/'", () -> {
            for (int count = 0; count < 20; count++) {
                channel.basicPublish(name, "k", null, bytes("x"));
            }
        });
        assertTrue(connection.isOpen());
    }

    @Test
    void allPropertiesRoundTrip() throws Exception {
        var queue = queue();
        var properties = new AMQP.BasicProperties.Builder()
            .contentType("application/json").contentEncoding("gzip").deliveryMode(2).priority(9).correlationId("c")
            .replyTo("r").expiration("60000").messageId("m").timestamp(new Date(1_700_000_000_000L)).type("t")
            .userId(Broker.factory().getUsername()).appId("a").clusterId("z").headers(Map.of("one", 1)).build();
        publish("", queue, properties, "x");
        assertEquals(properties, take(queue).getProps());
        publish("", queue, new AMQP.BasicProperties(), "x");
        assertEquals(new AMQP.BasicProperties(), take(queue).getProps());
    }

    @Test
    void headersOfAllTypesRoundTrip() throws Exception {
        var nested = new LinkedHashMap<String, Object>();
        nested.put("deep", Map.of("deeper", List.of(1, 2L, (short) 3)));
        nested.put("void", null);
        var sent = new LinkedHashMap<String, Object>();
        sent.put("boolean", true);
        sent.put("byte", (byte) -7);
        sent.put("short", Short.MIN_VALUE);
        sent.put("int", Integer.MIN_VALUE);
        sent.put("long", Long.MIN_VALUE);
        sent.put("float", 1.25f);
        sent.put("double", Math.PI);
        sent.put("decimal", new BigDecimal("3.1415"));
        sent.put("time", new Date(1_700_000_000_000L));
        sent.put("void", null);
        sent.put("bytes", new byte[] {0, -1, 127});
        sent.put("list", Arrays.asList(1, null, false, List.of(2.5)));
        sent.put("table", nested);
        sent.put("ünïcode ☃", "grüße");
        sent.put("long text", "x".repeat(50_000));
        var queue = queue();
        publish("", queue, headers(sent), "x");
        var got = plain(take(queue).getProps().getHeaders());
        assertEquals(sent.keySet(), got.keySet());
        assertArrayEquals((byte[]) sent.remove("bytes"), (byte[]) got.remove("bytes"));
        assertEquals(sent, got);
    }

    private static Map<String, Object> plain(Map<String, Object> table) {
        var result = new LinkedHashMap<String, Object>();
        table.forEach((name, value) -> result.put(name, plain(value)));
        return result;
    }

    @SuppressWarnings("unchecked")
    private static Object plain(Object value) {
        if (value instanceof LongString) {
            return value.toString();
        } else if (value instanceof List<?> list) {
            return list.stream().map(item -> plain(item)).collect(ArrayList::new, ArrayList::add, ArrayList::addAll);
        } else if (value instanceof Map<?, ?> map) {
            return plain((Map<String, Object>) map);
        }
        return value;
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 4095, 131_063, 131_064, 131_065, 262_129, 5_000_000})
    void bodiesOfAnySizeRoundTrip(int size) throws Exception {
        var body = new byte[size];
        new Random(size).nextBytes(body);
        var queue = queue();
        channel.basicPublish("", queue, null, body);
        assertArrayEquals(body, arrived(queue).getBody());
    }

    @Test
    void aBodyOfSeventeenMegabytesRoundTrips() throws Exception {
        var body = new byte[17 * 1024 * 1024];
        new Random(17).nextBytes(body);
        var queue = durable(Map.of());
        var inbox = Inbox.of(channel, queue, true);
        channel.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, body);
        assertArrayEquals(body, inbox.next().getBody());
    }

    @Test
    void extraRoutesInHeaders() throws Exception {
        var one = queue();
        var two = queue();
        var three = queue();
        publish("", one, headers(Map.of("CC", List.of(two, one), "BCC", List.of(three))), "x");
        for (String queue : List.of(one, two, three)) {
            var got = take(queue);
            assertFalse(got.getProps().getHeaders().containsKey("BCC"));
            assertTrue(got.getProps().getHeaders().containsKey("CC"));
            assertEquals(List.of(), drain(queue));
        }
    }

    @Test
    void aMessageForManyQueuesReachesAll() throws Exception {
        var exchange = exchange(BuiltinExchangeType.FANOUT);
        var queues = new ArrayList<String>();
        for (int count = 0; count < 50; count++) {
            queues.add(bound(exchange, ""));
        }
        publish(exchange, "", null, numbers(0, 20));
        for (String queue : queues) {
            assertEquals(List.of(numbers(0, 20)), drain(queue));
        }
    }

    @Test
    void publishingFromSeveralConnectionsLosesNothing() throws Exception {
        var queue = queue();
        var inbox = Inbox.of(channel, queue, true);
        var threads = new ArrayList<Thread>();
        for (int at = 0; at < 4; at++) {
            var own = connect(factory -> {}).createChannel();
            var name = Integer.toString(at);
            threads.add(new Thread(() -> {
                try {
                    for (int count = 0; count < 1000; count++) {
                        own.basicPublish("", queue, null, bytes(name + ":" + count));
                    }
                } catch (IOException error) {
                    throw new IllegalStateException(error);
                }
            }));
        }
        threads.forEach(Thread::start);
        var next = new int[4];
        for (String body : inbox.next(4000)) {
            var parts = body.split(":");
            assertEquals(next[Integer.parseInt(parts[0])]++, Integer.parseInt(parts[1]), "order of one publisher");
        }
    }

    @Test
    void anEmptyQueueGivesNothing() throws Exception {
        var queue = queue();
        assertNull(channel.basicGet(queue, true));
        assertThrows(IOException.class, () -> connection.createChannel().basicGet(Broker.unique("queue"), true));
    }
}
