package lepus.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import lepus.Broker;
import org.junit.jupiter.api.Test;

/** Consumers: delivery, credit, cancellation, priority. */
class ConsumeTest extends ClientTest {

    @Test
    void aConsumerGetsEverythingInOrder() throws Exception {
        var queue = queue();
        send(queue, numbers(0, 100));
        var inbox = Inbox.of(channel, queue, false);
        assertTrue(inbox.tag.startsWith("amq.ctag-"), inbox.tag);
        send(queue, numbers(100, 200));
        long expected = 1;
        for (String body : numbers(0, 200)) {
            var delivery = inbox.next();
            assertEquals(body, text(delivery.getBody()));
            assertEquals(expected++, delivery.getEnvelope().getDeliveryTag());
            assertFalse(delivery.getEnvelope().isRedeliver());
        }
        channel.basicAck(200, true);
        channel.basicCancel(inbox.tag);
        assertEquals(0, channel.queueDelete(queue).getMessageCount());
    }

    @Test
    void callbacksOfTheClientWork() throws Exception {
        var queue = queue();
        var delivered = new CountDownLatch(3);
        var cancelled = new CountDownLatch(1);
        channel.basicConsume(queue, true, "own tag", (tag, delivery) -> {
            assertEquals("own tag", tag);
            delivered.countDown();
        }, tag -> cancelled.countDown());
        send(queue, "a", "b", "c");
        assertTrue(delivered.await(15, TimeUnit.SECONDS));
        channel.queueDelete(queue);
        assertTrue(cancelled.await(15, TimeUnit.SECONDS));
    }

    @Test
    void deletingAQueueCancelsItsConsumers() throws Exception {
        var queue = queue();
        var one = Inbox.of(channel, queue, false);
        var two = Inbox.of(connection.createChannel(), queue, false);
        channel.queueDelete(queue);
        assertEquals(one.tag, one.cancelled.get(15, TimeUnit.SECONDS));
        assertEquals(two.tag, two.cancelled.get(15, TimeUnit.SECONDS));
        assertTrue(channel.isOpen());
    }

    @Test
    void aCancelledConsumerGetsNothingMoreAndKeepsWhatItHas() throws Exception {
        var queue = queue();
        var inbox = Inbox.of(channel, queue, false);
        send(queue, "before");
        var held = inbox.next();
        channel.basicCancel(inbox.tag);
        send(queue, "after");
        assertEquals(List.of("after"), drain(queue));
        channel.basicNack(held.getEnvelope().getDeliveryTag(), false, true);
        var again = arrived(queue);
        assertEquals("before", text(again.getBody()));
        assertTrue(again.getEnvelope().isRedeliver());
    }

    @Test
    void prefetchCountsPerConsumer() throws Exception {
        var queue = queue();
        send(queue, numbers(0, 10));
        channel.basicQos(2);
        var one = Inbox.of(channel, queue, false);
        var tag = one.next();
        one.next();
        one.assertQuiet();
        channel.basicQos(3);
        var two = Inbox.of(channel, queue, false);
        two.next(3);
        two.assertQuiet();
        one.assertQuiet();
        channel.basicAck(tag.getEnvelope().getDeliveryTag(), false);
        assertEquals(List.of("5"), one.next(1));
        one.assertQuiet();
    }

    @Test
    void globalPrefetchCountsPerChannel() throws Exception {
        var queue = queue();
        send(queue, numbers(0, 10));
        channel.basicQos(3, true);
        var one = Inbox.of(channel, queue, false);
        var two = Inbox.of(channel, queue, false);
        Broker.until("three deliveries", () -> one.waiting() + two.waiting() == 3);
        channel.exchangeDeclarePassive("amq.direct");
        Thread.sleep(100);
        assertEquals(3, one.waiting() + two.waiting());
        channel.basicAck(3, true);
        Broker.until("three more", () -> one.waiting() + two.waiting() == 6);
        channel.basicQos(0, true);
        Broker.until("all", () -> one.waiting() + two.waiting() == 10);
    }

    @Test
    void unacknowledgedDeliveryKnowsNoPrefetch() throws Exception {
        var queue = queue();
        send(queue, numbers(0, 50));
        channel.basicQos(1);
        assertEquals(List.of(numbers(0, 50)), Inbox.of(channel, queue, true).next(50));
    }

    @Test
    void consumersTakeTurns() throws Exception {
        var queue = queue();
        var inboxes = new ArrayList<Inbox>();
        for (int count = 0; count < 4; count++) {
            var own = connection.createChannel();
            own.basicQos(1);
            inboxes.add(Inbox.of(own, queue, false));
        }
        send(queue, numbers(0, 4));
        for (Inbox inbox : inboxes) {
            inbox.next();
        }
        send(queue, "waits");
        assertEquals(1, channel.messageCount(queue));
        inboxes.get(2).getChannel().basicAck(1, false);
        assertEquals(List.of("waits"), inboxes.get(2).next(1));
    }

    @Test
    void theHigherConsumerPriorityIsServedFirst() throws Exception {
        var queue = queue();
        channel.basicQos(2);
        var low = Inbox.of(channel, queue, false, false, Map.of("x-priority", -5));
        var high = Inbox.of(channel, queue, false, false, Map.of("x-priority", 10));
        var middle = Inbox.of(channel, queue, false);
        send(queue, numbers(0, 6));
        assertEquals(List.of("0", "1"), high.next(2));
        assertEquals(List.of("2", "3"), middle.next(2));
        assertEquals(List.of("4", "5"), low.next(2));
    }

    @Test
    void onlyOneOfSingleActiveConsumersIsServedUntilItGoes() throws Exception {
        var queue = queue(Map.of("x-single-active-consumer", true));
        var first = Inbox.of(connection.createChannel(), queue, false);
        var second = Inbox.of(channel, queue, true);
        send(queue, numbers(0, 4));
        assertEquals(List.of(numbers(0, 4)), first.next(4));
        second.assertQuiet();
        first.getChannel().basicAck(2, true);
        first.getChannel().close();
        assertEquals(List.of("2", "3"), second.next(2));
    }

    @Test
    void anExclusiveConsumerIsAlone() throws Exception {
        var queue = queue();
        var own = connection.createChannel();
        Inbox.of(own, queue, true, true, Map.of());
        var other = connection.createChannel();
        closes(other, 403, 60, 20, "exclusive", () -> Inbox.of(other, queue, true));
        own.close();
        Inbox.of(channel, queue, true);
    }

    @Test
    void aSlowConsumerOfLargeMessagesGetsThemAll() throws Exception {
        var queue = queue();
        var inbox = Inbox.of(channel, queue, true);
        var sender = connect(factory -> {}).createChannel();
        var body = new byte[400_000];
        for (int count = 0; count < 60; count++) {
            body[0] = (byte) count;
            sender.basicPublish("", queue, null, body.clone());
        }
        for (int count = 0; count < 60; count++) {
            var got = inbox.next().getBody();
            assertEquals(body.length, got.length);
            assertEquals((byte) count, got[0]);
        }
    }

    @Test
    void manyMessagesThroughOneQueueWithManualAcks() throws Exception {
        var queue = queue();
        channel.basicQos(100);
        var inbox = Inbox.of(channel, queue, false);
        var sender = connect(factory -> {}).createChannel();
        var sending = new Thread(() -> {
            try {
                for (String body : numbers(0, 20_000)) {
                    sender.basicPublish("", queue, null, bytes(body));
                }
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        });
        sending.start();
        for (int at = 0; at < 20_000; at++) {
            var delivery = inbox.next();
            assertEquals(Integer.toString(at), text(delivery.getBody()));
            channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
        }
        sending.join();
        channel.basicCancel(inbox.tag);
        assertEquals(0, channel.messageCount(queue));
    }
}
