package lepus.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.BuiltinExchangeType;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Content filters on bindings and on consumers. */
class FilterTest extends ClientTest {

    /** A filter that names a field of the body; the same text stands on bindings and on consumers. */
    private static final String DEAR = "b.total > 50 AND land = 'UK'";
    private static final String REFUSAL = "invalid x-filter at character 10: expected a value after '>'";

    private static Map<String, Object> filter(String text) {
        return Map.of("x-filter", text);
    }

    /** Publishes JSON bodies with the header {@code land}. */
    private void order(String exchange, String key, String land, String... bodies) throws Exception {
        var properties = new AMQP.BasicProperties.Builder().contentType("application/json").headers(Map.of("land", land));
        publish(exchange, key, properties.build(), bodies);
    }

    @Test
    void aQueueGetsWhatTheFilterOfItsBindingMatches() throws Exception {
        var exchange = exchange(BuiltinExchangeType.TOPIC);
        var matching = queue();
        var rest = queue();
        channel.queueBind(matching, exchange, "order.#", filter(DEAR));
        channel.queueBind(rest, exchange, "order.#", filter("NOT (" + DEAR + ")"));
        order(exchange, "order.1", "UK", "{\"total\":51}", "{\"total\":50}");
        order(exchange, "order.1", "FR", "{\"total\":52}");
        order(exchange, "offer.1", "UK", "{\"total\":53}");
        assertEquals(List.of("{\"total\":51}"), drain(matching));
        assertEquals(List.of("{\"total\":50}", "{\"total\":52}"), drain(rest));
    }

    @Test
    void aConsumerGetsWhatItsFilterMatchesAndTheRestGoesToAnother() throws Exception {
        var queue = queue();
        var matching = Inbox.of(channel, queue, true, false, filter(DEAR));
        order("", queue, "UK", "{\"total\":50}", "{\"total\":51}");
        order("", queue, "FR", "{\"total\":52}");
        order("", queue, "UK", "{\"total\":53}");
        assertEquals(List.of("{\"total\":51}", "{\"total\":53}"), matching.next(2));
        matching.assertQuiet();
        assertEquals(2, channel.messageCount(queue));
        var rest = Inbox.of(connection.createChannel(), queue, true);
        assertEquals(List.of("{\"total\":50}", "{\"total\":52}"), rest.next(2));
    }

    @Test
    void aFilterThatIsNoneSaysWhere() throws Exception {
        var queue = queue();
        var broken = filter("b.total >");
        var binding = connection.createChannel();
        closes(binding, 406, 50, 20, REFUSAL, () -> binding.queueBind(queue, "amq.fanout", "", broken));
        var consuming = connection.createChannel();
        closes(consuming, 406, 60, 20, REFUSAL, () -> consuming.basicConsume(queue, true, broken, Inbox.unused(consuming)));
    }
}
