package lepus.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import lepus.Broker;
import lepus.Relay;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.AcknowledgeMode;
import org.springframework.amqp.core.BatchMessageListener;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.MessageListener;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.rabbit.annotation.EnableRabbit;
import org.springframework.amqp.rabbit.annotation.Exchange;
import org.springframework.amqp.rabbit.annotation.Queue;
import org.springframework.amqp.rabbit.annotation.QueueBinding;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.SimpleRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.connection.ConnectionFactory;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.AbstractMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.DirectMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.api.ChannelAwareMessageListener;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** Spring's listener containers. */
class ListenerTest extends SpringTest {

    private final BlockingQueue<String> received = new LinkedBlockingQueue<>();

    private AbstractMessageListenerContainer container(boolean direct) {
        if (direct) {
            return new DirectMessageListenerContainer(connections);
        }
        var simple = new SimpleMessageListenerContainer(connections);
        simple.setReceiveTimeout(100);
        return simple;
    }

    private String next() throws InterruptedException {
        var text = received.poll(15, TimeUnit.SECONDS);
        assertNotNull(text, "nothing came");
        return text;
    }

    /** Waits for a message; before it, others may come again whose acknowledgement was lost. */
    private void handled(String text) throws InterruptedException {
        var came = next();
        while (!came.equals(text)) {
            came = next();
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void everythingIsHandledInOrderAndAcknowledged(boolean direct) throws Exception {
        var queue = queue();
        var container = container(direct);
        container.setPrefetchCount(10);
        container.setMessageListener(message -> received.add(new String(message.getBody())));
        start(container, queue, AcknowledgeMode.AUTO);
        for (int count = 0; count < 500; count++) {
            template.convertAndSend("", queue, Integer.toString(count));
        }
        for (int count = 0; count < 500; count++) {
            assertEquals(Integer.toString(count), next());
        }
        container.stop();
        assertEquals(0, admin.getQueueInfo(queue).getMessageCount());
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aFailingListenerGetsTheMessageAgain(boolean direct) throws Exception {
        var queue = queue();
        var container = container(direct);
        var attempts = new AtomicInteger();
        container.setMessageListener((MessageListener) message -> {
            received.add(new String(message.getBody()) + " " + message.getMessageProperties().isRedelivered());
            if (attempts.incrementAndGet() == 1) {
                throw new IllegalStateException("at first it fails");
            }
        });
        start(container, queue, AcknowledgeMode.AUTO);
        template.convertAndSend("", queue, "x");
        assertEquals("x false", next());
        assertEquals("x true", next());
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aRefusedMessageIsDeadLettered(boolean direct) {
        var dead = queue();
        var queue = declare(QueueBuilder.durable(Broker.unique("queue")).deadLetterExchange("").deadLetterRoutingKey(dead).build());
        var container = container(direct);
        container.setMessageListener(message -> {
            throw new AmqpRejectAndDontRequeueException("no");
        });
        start(container, queue, AcknowledgeMode.AUTO);
        template.convertAndSend("", queue, "poison");
        var message = template.receive(dead);
        assertNotNull(message);
        assertEquals("poison", new String(message.getBody()));
        var death = message.getMessageProperties().getXDeathHeader().get(0);
        assertEquals(List.of("rejected", queue, 1L), List.of(death.get("reason"), death.get("queue"), death.get("count")));
    }

    @Test
    void manualAcknowledgement() throws Exception {
        var queue = queue();
        var container = container(true);
        container.setMessageListener((ChannelAwareMessageListener) (message, channel) -> {
            received.add(new String(message.getBody()));
            channel.basicAck(message.getMessageProperties().getDeliveryTag(), false);
        });
        start(container, queue, AcknowledgeMode.MANUAL);
        template.convertAndSend("", queue, "mine");
        assertEquals("mine", next());
        container.stop();
        assertEquals(0, admin.getQueueInfo(queue).getMessageCount());
    }

    @Test
    void concurrentConsumersShareTheWork() throws Exception {
        var queue = queue();
        var threads = Collections.synchronizedSet(new HashSet<String>());
        var container = new SimpleMessageListenerContainer(connections);
        container.setConcurrentConsumers(4);
        container.setPrefetchCount(1);
        container.setReceiveTimeout(100);
        container.setMessageListener(message -> {
            threads.add(Thread.currentThread().getName());
            received.add(new String(message.getBody()));
        });
        start(container, queue, AcknowledgeMode.AUTO);
        Broker.until("four consumers", () -> admin.getQueueInfo(queue).getConsumerCount() == 4);
        var bodies = new ArrayList<String>();
        for (int count = 0; count < 200; count++) {
            template.convertAndSend("", queue, Integer.toString(count));
        }
        for (int count = 0; count < 200; count++) {
            bodies.add(next());
        }
        assertEquals(200, new HashSet<>(bodies).size());
        assertTrue(threads.size() > 1, threads.toString());
    }

    @Test
    void batchesAreCollected() throws Exception {
        var queue = queue();
        for (int count = 0; count < 10; count++) {
            template.convertAndSend("", queue, Integer.toString(count));
        }
        var container = new SimpleMessageListenerContainer(connections);
        container.setConsumerBatchEnabled(true);
        container.setBatchSize(5);
        container.setReceiveTimeout(1000);
        container.setMessageListener((BatchMessageListener) messages ->
            received.add(messages.stream().map(Message::getBody).map(String::new).toList().toString()));
        start(container, queue, AcknowledgeMode.AUTO);
        assertEquals("[0, 1, 2, 3, 4]", next());
        assertEquals("[5, 6, 7, 8, 9]", next());
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void aContainerComesBackAfterTheNetworkBroke(boolean direct) throws Exception {
        var queue = queue();
        try (var relay = new Relay()) {
            var fragile = factory();
            fragile.setHost("127.0.0.1");
            fragile.setPort(relay.port());
            var container = container(direct);
            container.setConnectionFactory(fragile);
            container.setRecoveryInterval(100);
            if (container instanceof DirectMessageListenerContainer monitored) {
                monitored.setMonitorInterval(200);
                monitored.setFailedDeclarationRetryInterval(200);
            }
            container.setMessageListener(message -> received.add(new String(message.getBody())));
            start(container, queue, AcknowledgeMode.AUTO);
            for (int round = 0; round < 2; round++) {
                template.convertAndSend("", queue, "round " + round);
                handled("round " + round);
                relay.cut();
            }
            template.convertAndSend("", queue, "last");
            handled("last");
        }
    }

    @Test
    void aContainerNoticesThatItsQueueIsGoneAndComesBackToANewOne() throws Exception {
        var name = queue();
        var container = container(false);
        container.setMissingQueuesFatal(false);
        container.setRecoveryInterval(100);
        container.setFailedDeclarationRetryInterval(100);
        container.setMessageListener(message -> received.add(new String(message.getBody())));
        start(container, name, AcknowledgeMode.AUTO);
        Broker.until("a consumer", () -> admin.getQueueInfo(name).getConsumerCount() == 1);
        admin.deleteQueue(name);
        admin.declareQueue(QueueBuilder.durable(name).build());
        template.convertAndSend("", name, "new queue");
        assertEquals("new queue", next());
    }

    @Test
    void annotatedListenersDeclareTheirTopology() throws Exception {
        System.setProperty("e2e.exchange", Broker.unique("exchange"));
        try (var context = new AnnotationConfigApplicationContext(Application.class)) {
            var application = context.getBean(Application.class);
            var sending = context.getBean(RabbitTemplate.class);
            sending.convertAndSend(System.getProperty("e2e.exchange"), "orders.new", "order", message -> {
                message.getMessageProperties().setHeader("customer", 42);
                return message;
            });
            assertEquals("order of 42 by orders.new", application.received.poll(15, TimeUnit.SECONDS));
        }
    }

    /** An application as it stands in Spring's guides. */
    @Configuration
    @EnableRabbit
    static class Application {

        final BlockingQueue<String> received = new LinkedBlockingQueue<>();

        @Bean
        CachingConnectionFactory connectionFactory() {
            return new CachingConnectionFactory(Broker.factory());
        }

        @Bean
        RabbitAdmin rabbitAdmin(ConnectionFactory connections) {
            return new RabbitAdmin(connections);
        }

        @Bean
        RabbitTemplate rabbitTemplate(ConnectionFactory connections) {
            return new RabbitTemplate(connections);
        }

        @Bean
        SimpleRabbitListenerContainerFactory rabbitListenerContainerFactory(ConnectionFactory connections) {
            var factory = new SimpleRabbitListenerContainerFactory();
            factory.setConnectionFactory(connections);
            factory.setReceiveTimeout(100L);
            return factory;
        }

        @RabbitListener(bindings = @QueueBinding(value = @Queue(exclusive = "true", autoDelete = "true"),
            exchange = @Exchange(name = "#{systemProperties['e2e.exchange']}", type = "topic", durable = "false",
                autoDelete = "true"),
            key = "orders.#"))
        void receive(Message message) {
            Map<String, Object> headers = message.getMessageProperties().getHeaders();
            received.add(new String(message.getBody()) + " of " + headers.get("customer") + " by "
                + message.getMessageProperties().getReceivedRoutingKey());
        }
    }
}
