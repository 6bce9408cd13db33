package lepus.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.RpcClientParams;
import com.rabbitmq.client.StringRpcServer;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import lepus.Broker;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Requests and answers, over queues and over the broker's own reply address. */
class RpcTest extends ClientTest {

    private static final String REPLY_TO = "amq.rabbitmq.reply-to";

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void theClientsRpcClassesTalk(boolean direct) throws Exception {
        var queue = durable(Map.of());
        var server = new StringRpcServer(connect(factory -> {}).createChannel(), queue) {
            @Override
            public String handleStringCall(String request, AMQP.BasicProperties properties) {
                return request.toUpperCase();
            }
        };
        var serving = CompletableFuture.supplyAsync(() -> {
            try {
                return server.mainloop();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        });
        var reply = direct ? REPLY_TO : queue();
        var client = new RpcClient(new RpcClientParams().channel(channel).exchange("").routingKey(queue)
            .replyTo(reply).timeout((int) Broker.PATIENCE.toMillis()));
        for (String word : List.of("one", "two", "three")) {
            assertEquals(word.toUpperCase(), client.stringCall(word));
        }
        client.close();
        assertFalse(serving.isDone());
    }

    @Test
    void aReplyAddressNamesItsRequesterAndAnswersAPassiveDeclare() throws Exception {
        var inbox = Inbox.of(channel, REPLY_TO, true);
        var queue = queue();
        channel.basicPublish("", queue, new AMQP.BasicProperties.Builder().replyTo(REPLY_TO).build(), bytes("ask"));
        var address = arrived(queue).getProps().getReplyTo();
        assertTrue(address.startsWith(REPLY_TO + "."), address);
        var other = connect(factory -> {}).createChannel();
        var declared = other.queueDeclarePassive(address);
        assertEquals(List.of(0, 1), List.of(declared.getMessageCount(), declared.getConsumerCount()));
        other.basicPublish("", address, null, bytes("answer"));
        var answer = inbox.next();
        assertEquals("answer", text(answer.getBody()));
        assertEquals("", answer.getEnvelope().getExchange());
        assertEquals(address, answer.getEnvelope().getRoutingKey());
        channel.close();
        closes(other, 404, 50, 10, "no queue", () -> other.queueDeclarePassive(address));
    }

    @Test
    void aReplyAddressNeedsAConsumerThatDoesNotAcknowledge() throws Exception {
        var own = connection.createChannel();
        closes(own, 406, 60, 20, "reply consumer", () -> Inbox.of(own, REPLY_TO, false));
        var queue = queue();
        closes(channel, 406, 60, 40, "", () ->
            channel.basicPublish("", queue, new AMQP.BasicProperties.Builder().replyTo(REPLY_TO).build(), bytes("x")));
    }
}
