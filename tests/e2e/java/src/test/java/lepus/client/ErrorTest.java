package lepus.client;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import java.util.Map;
import java.util.stream.Stream;
import lepus.Broker;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** What the broker refuses: code, class and method id, and wording. */
class ErrorTest extends ClientTest {

    interface Use {
        void run(Channel channel, String queue) throws Exception;
    }

    private static Arguments refused(int code, int classId, int methodId, String words, Use use) {
        return Arguments.of(code, classId, methodId, words, use);
    }

    private static AMQP.BasicProperties.Builder properties() {
        return new AMQP.BasicProperties.Builder();
    }

    private static Map<String, Object> arguments(String name, Object value) {
        return Map.of(name, value);
    }

    static Stream<Arguments> softErrors() {
        var missing = Broker.unique("missing");
        var body = new byte[0];
        return Stream.of(
            refused(404, 50, 10, "no queue '" + missing + "' in vhost '/'", (ch, q) -> ch.queueDeclarePassive(missing)),
            refused(403, 50, 10, "amq.", (ch, q) -> ch.queueDeclare("amq." + missing, false, true, false, null)),
            refused(405, 50, 10, "cannot obtain exclusive access to locked queue",
                (ch, q) -> ch.queueDeclare(q, false, false, false, null)),
            refused(406, 50, 10, "inequivalent arg 'x-message-ttl'",
                (ch, q) -> ch.queueDeclare(q, false, true, false, arguments("x-message-ttl", 5))),
            refused(406, 50, 10, "x-expires", (ch, q) -> ch.queueDeclare("", false, true, false, arguments("x-expires", 0))),
            refused(406, 50, 10, "x-max-length",
                (ch, q) -> ch.queueDeclare("", false, true, false, arguments("x-max-length", "many"))),
            refused(404, 50, 20, "no exchange '" + missing + "'", (ch, q) -> ch.queueBind(q, missing, "k")),
            refused(404, 50, 20, "no queue '" + missing + "'", (ch, q) -> ch.queueBind(missing, "amq.direct", "k")),
            refused(403, 50, 20, "default exchange", (ch, q) -> ch.queueBind(q, "", "k")),
            refused(404, 50, 30, "no queue", (ch, q) -> ch.queuePurge(missing)),
            refused(403, 50, 50, "default exchange", (ch, q) -> ch.queueUnbind(q, "", "k")),
            refused(404, 40, 10, "no exchange '" + missing + "' in vhost '/'", (ch, q) -> ch.exchangeDeclarePassive(missing)),
            refused(403, 40, 10, "amq.", (ch, q) -> ch.exchangeDeclare("amq." + missing, "direct")),
            refused(406, 40, 10, "inequivalent arg 'type'", (ch, q) -> ch.exchangeDeclare("amq.direct", "fanout", true)),
            refused(406, 40, 10, "inequivalent arg 'durable'", (ch, q) -> ch.exchangeDeclare("amq.direct", "direct", false)),
            refused(403, 40, 20, "default exchange", (ch, q) -> ch.exchangeDelete("")),
            refused(403, 40, 20, "amq.topic", (ch, q) -> ch.exchangeDelete("amq.topic")),
            refused(404, 40, 30, "no exchange", (ch, q) -> ch.exchangeBind(missing, "amq.direct", "k")),
            refused(404, 60, 20, "no queue", (ch, q) -> ch.basicConsume(missing, new Silent(ch))),
            refused(403, 60, 20, "exclusive", (ch, q) -> {
                ch.basicConsume(q, new Silent(ch));
                ch.basicConsume(q, false, "", false, true, null, new Silent(ch));
            }),
            refused(406, 60, 20, "x-priority",
                (ch, q) -> ch.basicConsume(q, false, arguments("x-priority", "high"), new Silent(ch))),
            refused(404, 60, 70, "no queue", (ch, q) -> ch.basicGet(missing, true)),
            refused(406, 60, 80, "unknown delivery tag 7", (ch, q) -> ch.basicAck(7, false)),
            refused(406, 60, 90, "unknown delivery tag 7", (ch, q) -> ch.basicReject(7, true)),
            refused(406, 60, 120, "unknown delivery tag 7", (ch, q) -> ch.basicNack(7, false, true)),
            refused(404, 60, 40, "no exchange '" + missing + "'", (ch, q) -> ch.basicPublish(missing, "k", null, body)),
            refused(406, 60, 40, "expiration",
                (ch, q) -> ch.basicPublish("", q, properties().expiration("soon").build(), body)),
            refused(406, 60, 40, "user_id", (ch, q) -> ch.basicPublish("", q, properties().userId("other").build(), body)),
            refused(406, 60, 40, "CC",
                (ch, q) -> ch.basicPublish("", q, properties().headers(arguments("CC", "text")).build(), body)),
            refused(406, 90, 20, "not transactional", (ch, q) -> ch.txCommit()),
            refused(406, 90, 30, "not transactional", (ch, q) -> ch.txRollback()),
            refused(406, 90, 10, "confirm", (ch, q) -> {
                ch.confirmSelect();
                ch.txSelect();
            }),
            refused(406, 85, 10, "tx", (ch, q) -> {
                ch.txSelect();
                ch.confirmSelect();
            }));
    }

    /** A fresh exclusive queue whose name may be declared again. */
    private String named() throws Exception {
        return channel.queueDeclare(Broker.unique("queue"), false, true, false, null).getQueue();
    }

    @ParameterizedTest(name = "{index}: {0} {1}/{2} {3}")
    @MethodSource("softErrors")
    void aSoftErrorClosesOnlyTheChannel(int code, int classId, int methodId, String words, Use use) throws Exception {
        var queue = named();
        var used = connection.createChannel();
        closes(used, code, classId, methodId, words, () -> use.run(used, queue));
        channel.queueDeclarePassive(queue);
    }

    static Stream<Arguments> hardErrors() {
        return Stream.of(
            refused(540, 60, 10, "", (ch, q) -> ch.basicQos(1, 0, false)),
            refused(540, 60, 110, "", (ch, q) -> ch.basicRecover(false)),
            refused(540, 60, 40, "", (ch, q) -> ch.basicPublish("", q, false, true, null, new byte[1])),
            refused(530, 60, 20, "", (ch, q) -> {
                ch.basicConsume(q, false, "twice", new Silent(ch));
                ch.basicConsume(q, false, "twice", new Silent(ch));
            }));
    }

    @ParameterizedTest(name = "{index}: {0} {1}/{2}")
    @MethodSource("hardErrors")
    void aHardErrorClosesTheConnection(int code, int classId, int methodId, String words, Use use) throws Exception {
        var own = connect(factory -> {}).createChannel();
        var queue = own.queueDeclare().getQueue();
        closesConnection(own, code, classId, methodId, () -> use.run(own, queue));
        channel.exchangeDeclarePassive("amq.direct");
    }

    static Stream<Arguments> lockedUses() {
        return Stream.of(
            refused(405, 50, 10, "declare", (ch, q) -> ch.queueDeclare(q, false, true, false, null)),
            refused(405, 50, 10, "passive", (ch, q) -> ch.queueDeclarePassive(q)),
            refused(405, 50, 20, "bind", (ch, q) -> ch.queueBind(q, "amq.direct", "k")),
            refused(405, 50, 50, "unbind", (ch, q) -> ch.queueUnbind(q, "amq.direct", "k")),
            refused(405, 50, 30, "purge", (ch, q) -> ch.queuePurge(q)),
            refused(405, 50, 40, "delete", (ch, q) -> ch.queueDelete(q)),
            refused(405, 60, 20, "consume", (ch, q) -> ch.basicConsume(q, new Silent(ch))),
            refused(405, 60, 70, "get", (ch, q) -> ch.basicGet(q, true)));
    }

    @ParameterizedTest(name = "{3}")
    @MethodSource("lockedUses")
    void anExclusiveQueueIsLockedToItsConnection(int code, int classId, int methodId, String name, Use use)
            throws Exception {
        var queue = named();
        channel.queueBind(queue, "amq.direct", "k");
        var stranger = connect(factory -> {}).createChannel();
        closes(stranger, code, classId, methodId, "RESOURCE_LOCKED", () -> use.run(stranger, queue));
    }

    @Test
    void aPublishToAnInternalExchangeIsRefused() throws Exception {
        var name = Broker.unique("exchange");
        channel.exchangeDeclare(name, "fanout", false, true, true, null);
        deleteLater(sweeping -> sweeping.exchangeDelete(name));
        closes(channel, 403, 60, 40, "internal", () -> channel.basicPublish(name, "", null, new byte[0]));
    }

    @Test
    void anAcknowledgementCountsOnce() throws Exception {
        var queue = queue();
        send(queue, "once");
        long tag = hold(queue).getEnvelope().getDeliveryTag();
        channel.basicAck(tag, false);
        closes(channel, 406, 60, 80, "unknown delivery tag " + tag, () -> channel.basicAck(tag, false));
    }

    /** A consumer that ignores what it gets. */
    private static final class Silent extends com.rabbitmq.client.DefaultConsumer {
        Silent(Channel channel) {
            super(channel);
        }
    }
}
