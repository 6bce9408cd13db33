package lepus;

import static org.junit.jupiter.api.Assertions.fail;

import com.rabbitmq.client.ConnectionFactory;
import java.time.Duration;
import java.util.UUID;
import java.util.concurrent.Callable;

/** The broker under test: its address, patience with it, and names nobody else uses. */
public final class Broker {

    /** Address of the broker, from LEPUS_URI. */
    public static final String URI =
            System.getenv().getOrDefault("LEPUS_URI", "amqp://guest:guest@127.0.0.1:5672/");

    /** After this time something that should have happened counts as missing. */
    public static final Duration PATIENCE = Duration.ofSeconds(60);

    private Broker() {}

    /** A factory for connections to the broker, without automatic recovery. */
    public static ConnectionFactory factory() {
        var factory = new ConnectionFactory();
        try {
            // A path of one slash is an empty vhost to this client; to everybody else it is the default one.
            factory.setUri(URI.endsWith("/") ? URI.substring(0, URI.length() - 1) : URI);
        } catch (Exception error) {
            throw new IllegalArgumentException("LEPUS_URI: " + URI, error);
        }
        factory.setAutomaticRecoveryEnabled(false);
        factory.setChannelRpcTimeout((int) PATIENCE.toMillis());
        return factory;
    }

    /** A name that no other test, run or suite uses. */
    public static String unique(String kind) {
        return "e2e." + kind + "." + UUID.randomUUID();
    }

    /** Asks until the answer is true; fails once patience is over. */
    public static void until(String what, Callable<Boolean> question) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!question.call()) {
            if (System.nanoTime() > deadline) {
                fail("still not so after " + PATIENCE.toSeconds() + " s: " + what);
            }
            Thread.sleep(10);
        }
    }
}
