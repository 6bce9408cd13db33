package spring;

import broker.Broker;
import broker.Relay;
import com.rabbitmq.client.ConnectionFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.amqp.AmqpIOException;
import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.AcknowledgeMode;
import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.DirectExchange;
import org.springframework.amqp.core.ExchangeBuilder;
import org.springframework.amqp.core.FanoutExchange;
import org.springframework.amqp.core.HeadersExchange;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.MessageBuilder;
import org.springframework.amqp.core.MessageDeliveryMode;
import org.springframework.amqp.core.MessageListener;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.core.TopicExchange;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.AbstractMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.DirectMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;
import org.springframework.amqp.rabbit.transaction.RabbitTransactionManager;
import org.springframework.transaction.support.TransactionTemplate;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

/** Spring AMQP: templates, the administrator, listener containers, recovery. */
@Timeout(60)
class SpringTest {
    private CachingConnectionFactory connections;
    private RabbitTemplate template;
    private RabbitAdmin admin;
    private final List<AbstractMessageListenerContainer> containers = new ArrayList<>();

    @BeforeEach
    void open() {
        connections = new CachingConnectionFactory(Broker.factory());
        connections.setPublisherConfirmType(CachingConnectionFactory.ConfirmType.CORRELATED);
        connections.setPublisherReturns(true);
        template = new RabbitTemplate(connections);
        template.setReceiveTimeout(Broker.PATIENCE);
        admin = new RabbitAdmin(connections);
    }

    @AfterEach
    void close() {
        containers.forEach(AbstractMessageListenerContainer::stop);
        connections.destroy();
    }

    private Queue queue(QueueBuilder builder) {
        Queue queue = builder.build();
        admin.declareQueue(queue);
        return queue;
    }

    private Queue queue() {
        return queue(QueueBuilder.nonDurable(Broker.unique("queue")).autoDelete());
    }

    private <C extends AbstractMessageListenerContainer> C listen(C container, String queue, MessageListener listener) {
        container.setQueueNames(queue);
        container.setMessageListener(listener);
        container.afterPropertiesSet();
        container.start();
        containers.add(container);
        return container;
    }

    @Test
    void convertSendAndReceive() {
        Queue queue = queue();
        template.convertAndSend(queue.getName(), "hello");
        assertEquals("hello", template.receiveAndConvert(queue.getName()));
        assertNull(template.receive(queue.getName(), 0));
    }

    @Test
    void confirmsAndReturnsCorrelate() throws Exception {
        Queue queue = queue();
        CorrelationData routed = new CorrelationData("routed");
        template.convertAndSend("", queue.getName(), (Object) "x", routed);
        assertTrue(routed.getFuture().get(15, TimeUnit.SECONDS).isAck());
        assertNull(routed.getReturned());
        template.setMandatory(true);
        CorrelationData lost = new CorrelationData("lost");
        template.convertAndSend("", Broker.unique("nowhere"), (Object) "x", lost);
        assertTrue(lost.getFuture().get(15, TimeUnit.SECONDS).isAck());
        assertEquals(312, lost.getReturned().getReplyCode(), "the return was there before the confirm");
        CorrelationData missing = new CorrelationData("missing");
        template.convertAndSend(Broker.unique("exchange"), "", (Object) "x", missing);
        assertFalse(missing.getFuture().get(15, TimeUnit.SECONDS).isAck());
    }

    @Test
    void templatesWaitForConfirms() {
        CachingConnectionFactory simple = new CachingConnectionFactory(Broker.factory());
        simple.setPublisherConfirmType(CachingConnectionFactory.ConfirmType.SIMPLE);
        Queue queue = queue();
        RabbitTemplate confirming = new RabbitTemplate(simple);
        assertTrue(confirming.<Boolean>invoke(operations -> {
            for (int at = 0; at < 200; at++) {
                operations.convertAndSend(queue.getName(), at);
            }
            return operations.waitForConfirms(Broker.PATIENCE);
        }));
        assertEquals(200, admin.getQueueInfo(queue.getName()).getMessageCount());
        simple.destroy();
    }

    @Test
    void theAdministratorDeclaresEveryKindOfExchangeAndBinding() {
        Queue queue = queue();
        DirectExchange direct = ExchangeBuilder.directExchange(Broker.unique("exchange")).autoDelete().durable(false).build();
        TopicExchange topic = ExchangeBuilder.topicExchange(Broker.unique("exchange")).autoDelete().durable(false)
                .alternate(direct.getName()).build();
        FanoutExchange fanout = ExchangeBuilder.fanoutExchange(Broker.unique("exchange")).autoDelete().durable(false).internal().build();
        HeadersExchange headers = ExchangeBuilder.headersExchange(Broker.unique("exchange")).autoDelete().durable(false).build();
        for (var exchange : List.of(direct, topic, fanout, headers)) {
            admin.declareExchange(exchange);
            admin.declareExchange(exchange);
        }
        List<Binding> bindings = List.of(
                BindingBuilder.bind(queue).to(direct).with("spilled"),
                BindingBuilder.bind(fanout).to(topic).with("a.#"),
                BindingBuilder.bind(queue).to(fanout),
                BindingBuilder.bind(queue).to(headers).whereAll(Map.of("colour", "red")).match());
        bindings.forEach(admin::declareBinding);
        template.convertAndSend(topic.getName(), "a.b.c", "by topic and fanout");
        assertEquals("by topic and fanout", template.receiveAndConvert(queue.getName()));
        template.convertAndSend(topic.getName(), "spilled", "by alternate");
        assertEquals("by alternate", template.receiveAndConvert(queue.getName()));
        template.convertAndSend(headers.getName(), "", "by headers", message -> {
            message.getMessageProperties().setHeader("colour", "red");
            return message;
        });
        assertEquals("by headers", template.receiveAndConvert(queue.getName()));
        bindings.forEach(admin::removeBinding);
        assertTrue(admin.deleteExchange(fanout.getName()));
    }

    @Test
    void aMismatchedRedeclareFails() {
        Queue queue = queue();
        assertThrows(AmqpIOException.class,
                () -> admin.declareQueue(QueueBuilder.nonDurable(queue.getName()).autoDelete().ttl(1000).build()));
        assertNull(admin.getQueueProperties(Broker.unique("queue")));
        assertTrue(admin.deleteQueue(queue.getName()));
    }

    @Test
    void propertiesAndLargeBodiesRoundTrip() {
        Queue queue = queue();
        byte[] body = new byte[4_000_000];
        body[3_999_999] = 1;
        Message sent = MessageBuilder.withBody(body).setDeliveryMode(MessageDeliveryMode.PERSISTENT).setPriority(3).setMessageId("m")
                .setHeader("number", 7L).setHeader("nested", Map.of("list", List.of(1, "two"))).setExpiration("60000").build();
        template.send(queue.getName(), sent);
        Message got = template.receive(queue.getName());
        assertNotNull(got);
        assertArrayEquals(body, got.getBody());
        assertEquals(7L, got.getMessageProperties().<Long>getHeader("number"));
        assertEquals(Map.of("list", List.of(1, "two")), got.getMessageProperties().getHeader("nested"));
        assertEquals(MessageDeliveryMode.PERSISTENT, got.getMessageProperties().getReceivedDeliveryMode());
        assertEquals("m", got.getMessageProperties().getMessageId());
    }

    @Test
    void aSimpleContainerConsumesWithSeveralThreads() throws Exception {
        Queue queue = queue();
        CountDownLatch done = new CountDownLatch(300);
        SimpleMessageListenerContainer container = new SimpleMessageListenerContainer(connections);
        container.setConcurrentConsumers(3);
        container.setPrefetchCount(20);
        listen(container, queue.getName(), message -> done.countDown());
        for (int at = 0; at < 300; at++) {
            template.convertAndSend(queue.getName(), at);
        }
        assertTrue(done.await(15, TimeUnit.SECONDS));
        Broker.eventually(() -> admin.getQueueInfo(queue.getName()).getMessageCount() == 0);
    }

    @Test
    void aFailingListenerIsRetriedThenDeadLettered() {
        Queue grave = queue();
        Queue queue = queue(QueueBuilder.nonDurable(Broker.unique("queue")).autoDelete()
                .deadLetterExchange("").deadLetterRoutingKey(grave.getName()));
        AtomicInteger attempts = new AtomicInteger();
        listen(new DirectMessageListenerContainer(connections), queue.getName(), message -> {
            if (attempts.incrementAndGet() < 3) {
                throw new IllegalStateException("requeue me");
            }
            throw new AmqpRejectAndDontRequeueException("enough");
        });
        template.convertAndSend(queue.getName(), "poison");
        Message dead = template.receive(grave.getName());
        assertNotNull(dead);
        Map<String, ?> death = dead.getMessageProperties().getXDeathHeader().get(0);
        assertEquals("rejected", death.get("reason").toString());
        assertEquals(queue.getName(), death.get("queue").toString());
        assertEquals(3, attempts.get());
    }

    @Test
    void manualAcknowledgementAndPrefetch() throws Exception {
        Queue queue = queue();
        BlockingQueue<Long> tags = new LinkedBlockingQueue<>();
        CompletableFuture<com.rabbitmq.client.Channel> channel = new CompletableFuture<>();
        DirectMessageListenerContainer container = new DirectMessageListenerContainer(connections);
        container.setAcknowledgeMode(AcknowledgeMode.MANUAL);
        container.setPrefetchCount(2);
        container.setupMessageListener((org.springframework.amqp.rabbit.listener.api.ChannelAwareMessageListener) (message, own) -> {
            channel.complete(own);
            tags.add(message.getMessageProperties().getDeliveryTag());
        });
        container.setQueueNames(queue.getName());
        container.afterPropertiesSet();
        container.start();
        containers.add(container);
        for (int at = 0; at < 5; at++) {
            template.convertAndSend(queue.getName(), at);
        }
        assertEquals(1L, tags.poll(15, TimeUnit.SECONDS));
        assertEquals(2L, tags.poll(15, TimeUnit.SECONDS));
        Broker.eventually(() -> admin.getQueueInfo(queue.getName()).getMessageCount() == 3);
        assertTrue(tags.isEmpty());
        channel.get().basicAck(2, true);
        assertEquals(3L, tags.poll(15, TimeUnit.SECONDS));
    }

    @Test
    void priorityQueuesAndLimitsByBuilder() {
        Queue queue = queue(QueueBuilder.nonDurable(Broker.unique("queue")).autoDelete().maxPriority(5).maxLength(3L));
        for (int priority : new int[] {1, 5, 3}) {
            template.convertAndSend(queue.getName(), (Object) priority, message -> {
                message.getMessageProperties().setPriority(priority);
                return message;
            });
        }
        for (int priority : new int[] {5, 3, 1}) {
            assertEquals(priority, template.receiveAndConvert(queue.getName()));
        }
    }

    @Test
    void requestAndReplyOverDirectReplyTo() {
        Queue queue = queue();
        listen(new DirectMessageListenerContainer(connections), queue.getName(), message -> template.send(
                message.getMessageProperties().getReplyTo(), MessageBuilder.withBody(Broker.bytes(Broker.text(message.getBody()).toUpperCase()))
                        .setContentType("text/plain").setCorrelationId(message.getMessageProperties().getCorrelationId()).build()));
        template.setReplyTimeout(Broker.PATIENCE);
        for (int at = 0; at < 20; at++) {
            assertEquals("CALL " + at, template.convertSendAndReceive(queue.getName(), (Object) ("call " + at)));
        }
    }

    @Test
    void transactionsOfTheTransactionManager() {
        CachingConnectionFactory plain = new CachingConnectionFactory(Broker.factory());
        RabbitTemplate transacted = new RabbitTemplate(plain);
        transacted.setChannelTransacted(true);
        TransactionTemplate transaction = new TransactionTemplate(new RabbitTransactionManager(plain));
        Queue queue = queue();
        transaction.executeWithoutResult(status -> transacted.convertAndSend(queue.getName(), "kept"));
        transaction.executeWithoutResult(status -> {
            transacted.convertAndSend(queue.getName(), "dropped");
            status.setRollbackOnly();
        });
        assertEquals("kept", template.receiveAndConvert(queue.getName()));
        assertNull(template.receive(queue.getName(), 0));
        plain.destroy();
    }

    @Test
    void containersComeBackAfterALostConnection() throws Exception {
        ConnectionFactory factory = Broker.factory();
        try (Relay relay = new Relay(factory.getHost(), factory.getPort())) {
            factory.setHost("127.0.0.1");
            factory.setPort(relay.port());
            CachingConnectionFactory relayed = new CachingConnectionFactory(factory);
            Queue queue = queue(QueueBuilder.nonDurable(Broker.unique("queue")).expires(60_000));
            BlockingQueue<String> got = new LinkedBlockingQueue<>();
            SimpleMessageListenerContainer container = new SimpleMessageListenerContainer(relayed);
            container.setRecoveryInterval(100);
            listen(container, queue.getName(), message -> got.add(Broker.text(message.getBody())));
            template.convertAndSend(queue.getName(), "before");
            assertEquals("before", got.poll(15, TimeUnit.SECONDS));
            relay.cut();
            template.convertAndSend(queue.getName(), "after");
            assertEquals("after", got.poll(15, TimeUnit.SECONDS));
            container.stop();
            relayed.destroy();
            admin.deleteQueue(queue.getName());
        }
    }
}
