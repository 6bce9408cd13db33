package lepus.client;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Envelope;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import lepus.Broker;

/** A consumer that keeps what it gets until somebody asks. */
final class Inbox extends DefaultConsumer {

    private final BlockingQueue<Delivery> deliveries = new LinkedBlockingQueue<>();
    /** Completed once the broker cancelled this consumer. */
    final CompletableFuture<String> cancelled = new CompletableFuture<>();

    /** The tag of this consumer. */
    String tag;

    private Inbox(Channel channel) {
        super(channel);
    }

    /** One that is not registered yet. */
    static Inbox unused(Channel channel) {
        return new Inbox(channel);
    }

    static Inbox of(Channel channel, String queue, boolean autoAck) throws IOException {
        return of(channel, queue, autoAck, false, Map.of());
    }

    static Inbox of(Channel channel, String queue, boolean autoAck, boolean exclusive, Map<String, Object> arguments)
            throws IOException {
        var inbox = new Inbox(channel);
        inbox.tag = channel.basicConsume(queue, autoAck, "", false, exclusive, arguments, inbox);
        return inbox;
    }

    @Override
    public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
        deliveries.add(new Delivery(envelope, properties, body));
    }

    @Override
    public void handleCancel(String tag) {
        cancelled.complete(tag);
    }

    /** The next delivery, waiting for it. */
    Delivery next() throws InterruptedException {
        var delivery = deliveries.poll(Broker.PATIENCE.toMillis(), TimeUnit.MILLISECONDS);
        assertNotNull(delivery, "no delivery came");
        return delivery;
    }

    /** Bodies of the next deliveries as text. */
    List<String> next(int count) throws InterruptedException {
        var bodies = new ArrayList<String>();
        for (int taken = 0; taken < count; taken++) {
            bodies.add(new String(next().getBody(), StandardCharsets.UTF_8));
        }
        return bodies;
    }

    /** Nothing more was delivered before the broker answered a request on the same channel. */
    void assertQuiet() throws Exception {
        getChannel().exchangeDeclarePassive("amq.direct");
        // Deliveries are handed over by another thread than the one that reads answers.
        assertNull(deliveries.poll(100, TimeUnit.MILLISECONDS), "a delivery too many");
    }

    /** How many deliveries wait to be taken. */
    int waiting() {
        return deliveries.size();
    }
}
