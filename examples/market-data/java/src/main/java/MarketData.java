import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * Market data for thousands of subscribers, each of whom says by a filter what to get.
 *
 * <p>A publisher sends trades as JSON. Each subscriber has a queue of its own, bound to one exchange of the type {@code x-filter} with an
 * expression over the fields of a trade. The program works out by itself who wants which trade, and says at the end whether everybody
 * got that and nothing else. The broker must allow as many filters: {@code lepus serve --limits-exchange-filters-max 10000}.
 */
public final class MarketData {
    private static final int PRICES = 10_000;
    private static final int QUANTITIES = 10_000;
    /** The type of the last message of every subscriber. */
    private static final String BELL = "closing bell";

    /** One message. */
    private record Trade(int id, String symbol, int price, int quantity) {
        String json() {
            return String.format(
                    "{\"id\":%d,\"sym\":\"%s\",\"price\":%d,\"qty\":%d,\"venue\":\"XLON\"}", id, symbol, price, quantity);
        }
    }

    /** Somebody who wants some of the trades. Bounds that are not asked for are negative. */
    private static final class Subscriber {
        /** Empty: any. */
        private final List<String> symbols;
        private final int price;
        private final int quantity;
        private final int worth;
        /** What has come: ids of trades, in order. */
        private final List<Integer> got = Collections.synchronizedList(new ArrayList<>());

        Subscriber(Random chance, int symbols) {
            double kind = chance.nextDouble();
            if (kind < 0.80) {
                this.symbols = List.of(name(chance.nextInt(symbols)));
                price = chance.nextInt(PRICES);
                quantity = -1;
                worth = -1;
            } else if (kind < 0.99) {
                TreeSet<String> names = new TreeSet<>();
                while (names.size() < Math.min(5, symbols)) {
                    names.add(name(chance.nextInt(symbols)));
                }
                this.symbols = List.copyOf(names);
                price = -1;
                quantity = chance.nextInt(QUANTITIES);
                worth = -1;
            } else {
                this.symbols = List.of();
                price = -1;
                quantity = -1;
                worth = PRICES * QUANTITIES / 10 * 8 + chance.nextInt(PRICES * QUANTITIES / 5);
            }
        }

        /** What to get, as the broker is told. */
        String filter() {
            if (worth >= 0) {
                return "b.price * b.qty > " + worth;
            }
            if (price >= 0) {
                return "b.sym = '" + symbols.get(0) + "' AND b.price > " + price;
            }
            String names = symbols.stream().map(name -> "'" + name + "'").collect(Collectors.joining(", "));
            return "b.sym IN (" + names + ") AND b.qty >= " + quantity;
        }

        /** The same, as this program knows it, but for the symbol. */
        boolean wants(Trade trade) {
            if (worth >= 0) {
                return trade.price() * trade.quantity() > worth;
            }
            return price >= 0 ? trade.price() > price : trade.quantity() >= quantity;
        }
    }

    private static String name(int symbol) {
        return String.format("S%04d", symbol);
    }

    /** What each subscriber should get. */
    private static Map<Subscriber, List<Integer>> expected(List<Subscriber> subscribers, List<Trade> trades) {
        Map<String, List<Subscriber>> bySymbol = new HashMap<>();
        Map<Subscriber, List<Integer>> wanted = new HashMap<>();
        for (Subscriber subscriber : subscribers) {
            wanted.put(subscriber, new ArrayList<>());
            // Who names no symbol stands under "any".
            for (String symbol : subscriber.symbols.isEmpty() ? List.of("any") : subscriber.symbols) {
                bySymbol.computeIfAbsent(symbol, key -> new ArrayList<>()).add(subscriber);
            }
        }
        for (Trade trade : trades) {
            for (String symbol : List.of(trade.symbol(), "any")) {
                for (Subscriber subscriber : bySymbol.getOrDefault(symbol, List.of())) {
                    if (subscriber.wants(trade)) {
                        wanted.get(subscriber).add(trade.id());
                    }
                }
            }
        }
        return wanted;
    }

    /** A queue that goes with the connection, a filter, and a consumer; the queue's name. */
    private static String subscribe(Channel channel, String exchange, Subscriber subscriber, CountDownLatch closed)
            throws IOException {
        String queue = channel.queueDeclare("", false, true, false, null).getQueue();
        channel.queueBind(queue, exchange, "", Map.of("x-filter", subscriber.filter()));
        channel.basicConsume(queue, true, (tag, message) -> {
            if (BELL.equals(message.getProperties().getType())) {
                closed.countDown();
            } else {
                subscriber.got.add(Integer.valueOf(message.getProperties().getMessageId()));
            }
        }, tag -> { });
        return queue;
    }

    private static boolean run(String uri, int count, int symbols, int tradesCount) throws Exception {
        Random chance = new Random(1);
        List<Subscriber> subscribers = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            subscribers.add(new Subscriber(chance, symbols));
        }
        List<Trade> trades = new ArrayList<>();
        for (int number = 0; number < tradesCount; number++) {
            String symbol = name(chance.nextInt(symbols));
            trades.add(new Trade(number, symbol, chance.nextInt(PRICES), chance.nextInt(QUANTITIES)));
        }
        ConnectionFactory factory = new ConnectionFactory();
        // An empty virtual host is '/' for some clients; this one takes it by its word.
        factory.setUri(uri.endsWith("/") ? uri + "%2f" : uri);
        factory.setAutomaticRecoveryEnabled(false);
        try (Connection connection = factory.newConnection()) {
            String exchange = "market-data-" + UUID.randomUUID();
            Channel channel = connection.createChannel();
            channel.exchangeDeclare(exchange, "x-filter", false, true, null);
            long begun = System.nanoTime();
            CountDownLatch closed = new CountDownLatch(count);
            List<String> queues = new ArrayList<>();
            for (Subscriber subscriber : subscribers) {
                queues.add(subscribe(channel, exchange, subscriber, closed));
            }
            System.out.printf("%d subscribers have their filters after %.1f s, such as%n", count, seconds(begun));
            subscribers.stream().limit(3).forEach(subscriber -> System.out.println("    " + subscriber.filter()));

            begun = System.nanoTime();
            Channel publisher = connection.createChannel();
            publisher.confirmSelect();
            AMQP.BasicProperties.Builder properties =
                    new AMQP.BasicProperties.Builder().contentType("application/json");
            for (Trade trade : trades) {
                AMQP.BasicProperties numbered = properties.messageId(Integer.toString(trade.id())).build();
                publisher.basicPublish(exchange, "", numbered, trade.json().getBytes(StandardCharsets.UTF_8));
            }
            publisher.waitForConfirmsOrDie(60_000);
            // Straight to each queue, behind all that came for it.
            AMQP.BasicProperties bell = new AMQP.BasicProperties.Builder().type(BELL).build();
            for (String queue : queues) {
                publisher.basicPublish("", queue, bell, new byte[0]);
            }
            publisher.waitForConfirmsOrDie(60_000);
            boolean complete = closed.await(60, TimeUnit.SECONDS);
            int deliveries = subscribers.stream().mapToInt(subscriber -> subscriber.got.size()).sum();
            System.out.printf(
                    "%d trades published, %d deliveries after %.1f s%n", tradesCount, deliveries, seconds(begun));
            if (!complete) {
                System.out.println(closed.getCount() + " subscribers wait for the end after 60 s");
            }
            int wrong = 0;
            for (Map.Entry<Subscriber, List<Integer>> entry : expected(subscribers, trades).entrySet()) {
                if (!entry.getKey().got.equals(entry.getValue())) {
                    wrong++;
                    if (wrong <= 3) {
                        System.out.printf("`%s` got %s instead of %s%n",
                                entry.getKey().filter(), entry.getKey().got, entry.getValue());
                    }
                }
            }
            System.out.printf("market data: %d subscribers, %d trades, %d deliveries, %s%n", count, tradesCount, deliveries,
                    wrong == 0 ? "all as their filters say" : wrong + " of them WRONG");
            return complete && wrong == 0 && deliveries > 0;
        }
    }

    private static double seconds(long begun) {
        return (System.nanoTime() - begun) / 1e9;
    }

    /** Arguments: how many subscribers (10000), symbols (1000) and trades (5000). The broker is at LEPUS_URI. */
    public static void main(String[] arguments) {
        int[] numbers = {10_000, 1_000, 5_000};
        String uri = System.getenv().getOrDefault("LEPUS_URI", "amqp://guest:guest@localhost:5672/%2f");
        try {
            for (int at = 0; at < arguments.length; at++) {
                numbers[at] = Integer.parseInt(arguments[at]);
                if (numbers[at] < 1) {
                    throw new NumberFormatException();
                }
            }
        } catch (NumberFormatException | ArrayIndexOutOfBoundsException wrong) {
            System.err.println("usage: MarketData [SUBSCRIBERS [SYMBOLS [TRADES]]], numbers from 1 on");
            System.exit(2);
        }
        try {
            System.exit(run(uri, numbers[0], numbers[1], numbers[2]) ? 0 : 1);
        } catch (Exception failure) {
            Throwable cause = failure.getCause() instanceof ShutdownSignalException closed ? closed : failure;
            System.err.println("failed: " + cause.getMessage());
            System.exit(1);
        }
    }
}
