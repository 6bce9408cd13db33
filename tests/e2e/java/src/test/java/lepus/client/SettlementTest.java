package lepus.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.Channel;
import java.util.List;
import java.util.Map;
import lepus.Broker;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Ack, nack, reject, recover, and what happens to messages nobody settled. */
class SettlementTest extends ClientTest {

    private String kind(String type) throws Exception {
        return durable(Map.of("x-queue-type", type));
    }

    private long holdAll(Channel holder, String queue, int count) throws Exception {
        long last = 0;
        for (int taken = 0; taken < count; taken++) {
            last = holder.basicGet(queue, false).getEnvelope().getDeliveryTag();
        }
        return last;
    }

    @Test
    void multipleAcknowledgesEverythingSoFar() throws Exception {
        var queue = queue();
        send(queue, numbers(0, 5));
        var own = connection.createChannel();
        long last = holdAll(own, queue, 5);
        own.basicAck(last - 2, true);
        own.close();
        assertEquals(List.of("3", "4"), drain(queue));
    }

    @Test
    void multipleWithTagZeroSettlesAll() throws Exception {
        var queue = queue();
        send(queue, numbers(0, 5));
        holdAll(channel, queue, 5);
        channel.basicAck(0, true);
        channel.basicRecover(true);
        assertEquals(List.of(), drain(queue));
        send(queue, numbers(0, 5));
        holdAll(channel, queue, 5);
        channel.basicNack(0, true, true);
        Broker.until("all are back", () -> channel.messageCount(queue) == 5);
        assertEquals(List.of(numbers(0, 5)), drain(queue));
    }

    @Test
    void requeuedMessagesComeBackInPlaceAndAreMarked() throws Exception {
        var queue = queue();
        send(queue, numbers(0, 5));
        var first = hold(queue);
        var second = hold(queue);
        channel.basicReject(second.getEnvelope().getDeliveryTag(), true);
        channel.basicReject(first.getEnvelope().getDeliveryTag(), true);
        Broker.until("both are back", () -> channel.messageCount(queue) == 5);
        for (String body : numbers(0, 5)) {
            var got = take(queue);
            assertEquals(body, text(got.getBody()));
            assertEquals(Integer.parseInt(body) < 2, got.getEnvelope().isRedeliver());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"classic", "quorum"})
    void rejectWithoutRequeueDrops(String type) throws Exception {
        var queue = kind(type);
        send(queue, "dropped", "nacked", "kept");
        channel.basicReject(hold(queue).getEnvelope().getDeliveryTag(), false);
        channel.basicNack(hold(queue).getEnvelope().getDeliveryTag(), false, false);
        assertEquals(List.of("kept"), drain(queue));
    }

    @ParameterizedTest
    @ValueSource(strings = {"classic", "quorum"})
    void aSecondNackOfTheSameDeliveryIsRefused(String type) throws Exception {
        var queue = kind(type);
        send(queue, "x");
        long tag = hold(queue).getEnvelope().getDeliveryTag();
        channel.basicNack(tag, false, true);
        closes(channel, 406, 60, 120, "unknown delivery tag", () -> channel.basicNack(tag, false, true));
    }

    @Test
    void recoverGivesEverythingBack() throws Exception {
        var queue = queue();
        send(queue, numbers(0, 3));
        holdAll(channel, queue, 3);
        channel.basicRecover(true);
        Broker.until("all are back", () -> channel.messageCount(queue) == 3);
        for (String body : numbers(0, 3)) {
            var got = take(queue);
            assertEquals(body, text(got.getBody()));
            assertTrue(got.getEnvelope().isRedeliver());
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void twoThousandUnsettledMessagesComeBackInOrder(boolean closeWholeConnection) throws Exception {
        var queue = durable(Map.of());
        send(queue, numbers(0, 2001));
        var own = connect(factory -> {});
        var holder = own.createChannel();
        Inbox.of(holder, queue, false).next(2000);
        if (closeWholeConnection) {
            own.close();
        } else {
            holder.close();
        }
        Broker.until("all are back", () -> channel.messageCount(queue) == 2001);
        var first = take(queue);
        assertEquals("0", text(first.getBody()));
        assertTrue(first.getEnvelope().isRedeliver());
        assertEquals(List.of(numbers(1, 2001)), drain(queue));
    }

    @Test
    void aNackedDeliveryGivesItsCreditBack() throws Exception {
        var queue = queue();
        channel.basicQos(1);
        var inbox = Inbox.of(channel, queue, false);
        send(queue, "a", "b");
        var first = inbox.next();
        inbox.assertQuiet();
        channel.basicNack(first.getEnvelope().getDeliveryTag(), false, true);
        var again = inbox.next();
        assertEquals("a", text(again.getBody()));
        assertTrue(again.getEnvelope().isRedeliver());
        channel.basicReject(again.getEnvelope().getDeliveryTag(), false);
        var last = inbox.next();
        assertEquals("b", text(last.getBody()));
        assertFalse(last.getEnvelope().isRedeliver());
    }

    @Test
    void tagsBelongToTheirChannel() throws Exception {
        var queue = queue();
        send(queue, "x");
        long tag = hold(queue).getEnvelope().getDeliveryTag();
        var other = connection.createChannel();
        closes(other, 406, 60, 80, "unknown delivery tag " + tag, () -> other.basicAck(tag, false));
        channel.basicAck(tag, false);
    }
}
