import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientConsumer;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientProducer;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;

/**
 * The load of {@code lepus perf filters} for Apache Artemis, which does not speak AMQP 0-9-1: the same filters and messages, from a
 * file that lepus-bench writes, by the client of Artemis. What comes is held against what must come; then speed is measured.
 *
 * <pre>java -cp 'classes:jars/*' ArtemisLoad PORT PID FILE QUEUES RATE WARM_UP SECONDS CHECKED</pre>
 *
 * The file has lines {@code filter TEXT} and {@code message SYMBOL HUNDREDTHS QUANTITY NUMBER …}, where the numbers are of the filters
 * that match. QUEUES 0: each filter is that of a queue of its own, and all queues get what is sent to one address. Otherwise
 * filters stand at consumers of so many queues, in turn, and each queue has another consumer of a lower priority without a
 * filter; messages go to the queues in turn. RATE is messages a second, 0 for as fast as confirms come, of which 1,000 are
 * outstanding at most. PID is the broker's process. Two lines of JSON say what it came to, as those of {@code lepus perf} do.
 */
public final class ArtemisLoad {
    private static final int WINDOW = 1_000;
    private static final int BODY_BYTES = 250;
    private static final long PATIENCE_SECONDS = 120;
    private static final int CONSUMERS_OF_A_SESSION = 1_000;
    /** Of the system's clock in /proc. */
    private static final double TICKS = 100;

    private record Message(String symbol, double price, long quantity, int[] matching) {}

    private final List<String> filters = new ArrayList<>();
    private final List<Message> messages = new ArrayList<>();
    private final int port;
    private final int pid;
    private final int queues;
    private final AtomicLong good = new AtomicLong();
    private final AtomicLong unexpected = new AtomicLong();
    private final AtomicLong confirmed = new AtomicLong();
    private volatile String first;
    private final Semaphore window = new Semaphore(WINDOW);
    private final byte[] body = new byte[BODY_BYTES];
    private long sent;
    private long expected;

    private ArtemisLoad(String[] words) throws Exception {
        port = Integer.parseUnsignedInt(words[0]);
        pid = Integer.parseUnsignedInt(words[1]);
        queues = Integer.parseUnsignedInt(words[3]);
        for (String line : Files.readAllLines(Path.of(words[2]))) {
            if (line.startsWith("filter ")) {
                filters.add(line.substring(7));
                continue;
            }
            String[] fields = line.split(" ");
            int[] matching = new int[fields.length - 4];
            for (int at = 0; at < matching.length; at++) {
                matching[at] = Integer.parseInt(fields[at + 4]);
            }
            messages.add(new Message(fields[1], Integer.parseInt(fields[2]) / 100.0, Long.parseLong(fields[3]), matching));
        }
    }

    public static void main(String[] words) throws Exception {
        if (words.length != 8) {
            System.err.println("artemis-load: PORT PID FILE QUEUES RATE WARM_UP SECONDS CHECKED are needed, and nothing else");
            System.exit(1);
        }
        boolean good = new ArtemisLoad(words).run(
            Double.parseDouble(words[4]), Double.parseDouble(words[5]), Double.parseDouble(words[6]), Integer.parseInt(words[7]));
        System.exit(good ? 0 : 1);
    }

    private boolean atConsumers() {
        return queues > 0;
    }

    private static String queue(int number) {
        return "filters-" + number;
    }

    private boolean run(double rate, double warmUp, double seconds, int checked) throws Exception {
        ServerLocator locator = ActiveMQClient.createServerLocator("tcp://127.0.0.1:" + port);
        // With a window for confirms the broker answers each message, and nobody waits for one.
        locator.setConfirmationWindowSize(1 << 20).setBlockOnNonDurableSend(false).setBlockOnAcknowledge(false);
        locator.setProducerWindowSize(-1);
        ClientSessionFactory factory = locator.createSessionFactory();
        ClientSession own = factory.createSession(true, true);
        int made = atConsumers() ? queues : filters.size();
        for (int number = 0; atConsumers() && number < queues; number++) {
            own.createQueue(QueueConfiguration.of(queue(number)).setRoutingType(RoutingType.ANYCAST).setDurable(false));
        }
        long begun = System.nanoTime();
        List<ClientSession> sessions = new ArrayList<>();
        // Deliveries need no acknowledgement, as in the load of other brokers.
        int consumers = filters.size() + (atConsumers() ? queues : 0);
        for (int number = 0; number < consumers; number++) {
            if (number % CONSUMERS_OF_A_SESSION == 0) {
                sessions.add(locator.createSessionFactory().createSession(false, true, true, true));
            }
            consume(sessions.get(sessions.size() - 1), number);
        }
        for (ClientSession session : sessions) {
            session.start();
        }
        double setSeconds = since(begun);

        ClientProducer producer = own.createProducer();
        for (int number = 0; number < checked; number++) {
            send(own, producer, number % messages.size());
        }
        settle();
        System.out.printf(Locale.ROOT,
            "{\"kind\":\"checked\",\"messages\":%d,\"good\":%d,\"missing\":%d,\"unexpected\":%d,\"repeated\":0,\"first\":%s}%n",
            checked, good.get(), expected - good.get(), unexpected.get(), first == null ? "null" : '"' + first + '"');
        if (first != null || good.get() != expected) {
            return false;
        }

        load(own, producer, rate, warmUp);
        double cpu = cpuSeconds();
        long[] before = {confirmed.get(), good.get()};
        long measured = System.nanoTime();
        load(own, producer, rate, seconds);
        double took = since(measured);
        double cpuMicros = (cpuSeconds() - cpu) * 1e6 / Math.max(1, confirmed.get() - before[0]);
        double sentPerSecond = (confirmed.get() - before[0]) / took;
        double receivedPerSecond = (good.get() - before[1]) / took;
        settle();
        long resident = residentBytes();

        begun = System.nanoTime();
        for (ClientSession session : sessions) {
            session.close();
        }
        for (int number = 0; !atConsumers() && number < made; number++) {
            own.deleteQueue(queue(number));
        }
        double removeSeconds = since(begun);
        for (int number = 0; atConsumers() && number < made; number++) {
            own.deleteQueue(queue(number));
        }
        System.out.printf(Locale.ROOT,
            "{\"kind\":\"filters\",\"set_per_s\":%.3f,\"removed_per_s\":%.3f,\"sent_per_s\":%.3f,\"received_per_s\":%.3f,"
                + "\"broker_cpu_us_per_message\":%.3f,\"broker_resident_bytes\":%d,\"outstanding\":%d,\"unexpected\":%d}%n",
            filters.size() / setSeconds, filters.size() / removeSeconds, sentPerSecond, receivedPerSecond, cpuMicros, resident,
            expected - good.get(), unexpected.get());
        own.close();
        locator.close();
        return expected == good.get() && unexpected.get() == 0;
    }

    /** Sets a filter, or starts a queue's consumer without one. */
    private void consume(ClientSession session, int number) throws Exception {
        ClientConsumer consumer;
        if (!atConsumers()) {
            session.createQueue(QueueConfiguration.of(queue(number)).setAddress("filters").setRoutingType(RoutingType.MULTICAST)
                .setDurable(false).setFilterString(filters.get(number)));
            consumer = session.createConsumer(queue(number));
        } else if (number < filters.size()) {
            consumer = session.createConsumer(SimpleString.of(queue(number % queues)), SimpleString.of(filters.get(number)), 0, false);
        } else {
            consumer = session.createConsumer(SimpleString.of(queue(number - filters.size())), null, -1, false);
        }
        consumer.setMessageHandler(message -> {
            int came = message.getIntProperty("n");
            if (mayGet(number, came)) {
                good.incrementAndGet();
            } else {
                unexpected.incrementAndGet();
                first = "message " + came + " came to consumer " + number;
            }
        });
    }

    /** Whether a message may come to a consumer. */
    private boolean mayGet(int consumer, int number) {
        for (int filter : messages.get(number).matching) {
            if (filter == consumer) {
                return !atConsumers() || filter % queues == number % queues;
            }
            // What a filter of the queue wants does not come to the consumer without one.
            if (atConsumers() && consumer >= filters.size() && filter % queues == number % queues) {
                return false;
            }
        }
        return consumer >= filters.size() && consumer - filters.size() == number % queues;
    }

    private void send(ClientSession session, ClientProducer producer, int number) throws Exception {
        Message message = messages.get(number);
        ClientMessage out = session.createMessage(false);
        out.putStringProperty("sym", message.symbol);
        out.putDoubleProperty("price", message.price);
        out.putLongProperty("qty", message.quantity);
        out.putIntProperty("n", number);
        out.getBodyBuffer().writeBytes(body);
        if (!window.tryAcquire(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no confirm comes");
        }
        sent++;
        expected += atConsumers() ? 1 : message.matching.length;
        producer.send(SimpleString.of(atConsumers() ? queue(number % queues) : "filters"), out, done -> {
            confirmed.incrementAndGet();
            window.release();
        });
    }

    /** Sends messages in turn for so long. */
    private void load(ClientSession session, ClientProducer producer, double rate, double seconds) throws Exception {
        long begun = System.nanoTime();
        long end = begun + (long) (seconds * 1e9);
        for (long count = 0; ; count++) {
            long now = System.nanoTime();
            if (rate > 0) {
                long due = begun + (long) (count / rate * 1e9);
                while (due > now && now < end) {
                    LockSupport.parkNanos(due - now);
                    now = System.nanoTime();
                }
            }
            if (now >= end) {
                return;
            }
            send(session, producer, (int) (sent % messages.size()));
        }
    }

    /** Waits until everything is confirmed and delivered. */
    private void settle() throws Exception {
        long begun = System.nanoTime();
        while ((confirmed.get() < sent || good.get() < expected) && since(begun) < PATIENCE_SECONDS) {
            Thread.sleep(5);
        }
    }

    private static double since(long begun) {
        return (System.nanoTime() - begun) / 1e9;
    }

    private double cpuSeconds() throws Exception {
        String stat = Files.readString(Path.of("/proc/" + pid + "/stat"));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / TICKS;
    }

    private long residentBytes() throws Exception {
        return Long.parseLong(Files.readString(Path.of("/proc/" + pid + "/statm")).split(" ")[1]) * 4096;
    }
}
