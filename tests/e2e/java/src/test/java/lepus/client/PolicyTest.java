package lepus.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.GetResponse;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import lepus.Broker;
import lepus.Operator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Policies that an operator sets while clients work. They have taken effect when the operator's command is over. */
class PolicyTest extends ClientTest {

    private final List<String> policies = new ArrayList<>();

    @AfterEach
    void clearPolicies() throws Exception {
        for (var policy : policies) {
            Operator.ctl("clear_policy", policy);
        }
        policies.clear();
    }

    /** A policy for what begins with this name. */
    private void policy(String name, String definition) throws Exception {
        var policy = Broker.unique("policy");
        Operator.ctl("set_policy", "--priority", "1", policy, "^" + name.replace(".", "\\."), definition);
        policies.add(policy);
    }

    /** A queue with a name that a policy can be made for. */
    private String named(Map<String, Object> arguments) throws IOException {
        return channel.queueDeclare(Broker.unique("policed"), false, true, false, arguments).getQueue();
    }

    private GetResponse soon(String queue) throws Exception {
        var found = new GetResponse[1];
        Broker.until("a message in " + queue, () -> (found[0] = channel.basicGet(queue, true)) != null);
        return found[0];
    }

    private long ready(String queue) throws IOException {
        return channel.messageCount(queue);
    }

    @Test
    void anAlternateExchangeComesAndGoes() throws Exception {
        var first = exchange(BuiltinExchangeType.FANOUT);
        var alternate = exchange(BuiltinExchangeType.FANOUT);
        var queue = bound(alternate, "");
        policy(first, "{\"alternate-exchange\":\"" + alternate + "\"}");
        publish(first, "", null, "caught");
        assertEquals(1, ready(queue));
        clearPolicies();
        publish(first, "", null, "lost");
        assertEquals(1, ready(queue));
    }

    @Test
    void theArgumentOfAnExchangeWins() throws Exception {
        var mine = exchange(BuiltinExchangeType.FANOUT);
        var theirs = exchange(BuiltinExchangeType.FANOUT);
        var queue = bound(mine, "");
        var other = bound(theirs, "");
        var first = exchange("fanout", Map.of("alternate-exchange", mine));
        policy(first, "{\"alternate-exchange\":\"" + theirs + "\"}");
        publish(first, "", null, "caught");
        assertEquals(1, ready(queue));
        assertEquals(0, ready(other));
    }

    @Test
    void deadLettersGoWhereThePolicySays() throws Exception {
        var source = named(Map.of("x-message-ttl", 0));
        var letters = exchange(BuiltinExchangeType.FANOUT);
        var queue = bound(letters, "");
        policy(source, "{\"dead-letter-exchange\":\"" + letters + "\",\"dead-letter-routing-key\":\"rk\"}");
        publish("", source, null, "dead");
        assertEquals("rk", soon(queue).getEnvelope().getRoutingKey());
        clearPolicies();
        publish("", source, null, "gone");
        Broker.until("the message expires", () -> ready(source) == 0);
        assertEquals(0, ready(queue));
    }

    @Test
    void theArgumentsOfAQueueSayWhereDeadLettersGo() throws Exception {
        var letters = exchange(BuiltinExchangeType.FANOUT);
        var queue = bound(letters, "");
        var source = named(Map.of("x-message-ttl", 0, "x-dead-letter-exchange", letters, "x-dead-letter-routing-key", "mine"));
        policy(source, "{\"dead-letter-exchange\":\"amq.fanout\",\"dead-letter-routing-key\":\"theirs\"}");
        publish("", source, null, "dead");
        assertEquals("mine", soon(queue).getEnvelope().getRoutingKey());
    }

    @Test
    void aTimeToLiveIsForMessagesThatComeLater() throws Exception {
        var queue = named(Map.of());
        policy(queue, "{\"message-ttl\":1}");
        publish("", queue, null, "short");
        Broker.until("the message expires", () -> ready(queue) == 0);
        clearPolicies();
        publish("", queue, null, "long");
        Thread.sleep(50);
        assertEquals(1, ready(queue));
    }

    @Test
    void theLowerTimeToLiveCounts() throws Exception {
        var queue = named(Map.of("x-message-ttl", 1));
        policy(queue, "{\"message-ttl\":3600000}");
        publish("", queue, null, "short");
        Broker.until("the argument counts", () -> ready(queue) == 0);
        var other = named(Map.of("x-message-ttl", 3_600_000));
        policy(other, "{\"message-ttl\":1}");
        publish("", other, null, "short");
        Broker.until("the policy counts", () -> ready(other) == 0);
    }

    @Test
    void anUnusedQueueExpires() throws Exception {
        var name = Broker.unique("policed");
        policy(name, "{\"expires\":50}");
        channel.queueDeclare(name, false, false, false, Map.of());
        Broker.until("the queue expires", () -> {
            // To ask for a queue is to use it: it expires between two questions only if they are further apart.
            Thread.sleep(200);
            var asking = connection.createChannel();
            try {
                asking.queueDeclarePassive(name);
                asking.close();
                return false;
            } catch (IOException gone) {
                return true;
            }
        });
        clearPolicies();
        channel.queueDeclare(name, false, true, false, Map.of());
        Thread.sleep(150);
        assertNotNull(channel.queueDeclarePassive(name));
    }

    @Test
    void theLowerLengthCountsAndCutsWhatIsThere() throws Exception {
        var queue = named(Map.of("x-max-length", 2));
        publish("", queue, null, "1", "2", "3");
        assertEquals(2, ready(queue));
        policy(queue, "{\"max-length\":1}");
        assertEquals(1, ready(queue));
        assertEquals("3", new String(channel.basicGet(queue, true).getBody()));
        publish("", queue, null, "4", "5");
        assertEquals(1, ready(queue));
        clearPolicies();
        publish("", queue, null, "6", "7");
        assertEquals(2, ready(queue));
        channel.basicGet(queue, true);
        channel.basicGet(queue, true);
        assertNull(channel.basicGet(queue, true));
    }
}
