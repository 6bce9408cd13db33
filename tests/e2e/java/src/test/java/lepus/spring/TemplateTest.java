package lepus.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import lepus.Broker;
import org.junit.jupiter.api.Test;
import org.springframework.amqp.AmqpIOException;
import org.springframework.amqp.core.AcknowledgeMode;
import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.DirectExchange;
import org.springframework.amqp.core.FanoutExchange;
import org.springframework.amqp.core.HeadersExchange;
import org.springframework.amqp.core.MessageBuilder;
import org.springframework.amqp.core.MessageDeliveryMode;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.core.TopicExchange;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory.ConfirmType;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.adapter.MessageListenerAdapter;
import org.springframework.amqp.rabbit.transaction.RabbitTransactionManager;
import org.springframework.transaction.support.TransactionTemplate;

/** Spring's template and admin: declaring, sending, receiving, confirms, transactions, requests. */
class TemplateTest extends SpringTest {

    @Test
    void theAdminDeclaresAndTellsAboutQueues() throws Exception {
        var queue = declare(QueueBuilder.nonDurable(Broker.unique("queue")).ttl(60_000).maxLength(10L).build());
        template.convertAndSend("", queue, "one");
        template.convertAndSend("", queue, "two");
        assertEquals("one", template.receiveAndConvert(queue));
        Broker.until("one message is left", () -> admin.getQueueInfo(queue).getMessageCount() == 1);
        var information = admin.getQueueInfo(queue);
        assertNotNull(information);
        assertEquals(queue, information.getName());
        assertEquals(1, information.getMessageCount());
        assertEquals(0, information.getConsumerCount());
        assertEquals(1, admin.purgeQueue(queue));
        assertTrue(admin.deleteQueue(queue));
        assertNull(admin.getQueueInfo(queue));
    }

    @Test
    void exchangesOfAllTypesRoute() {
        var exchanges = List.of(new DirectExchange(Broker.unique("exchange"), false, true),
            new TopicExchange(Broker.unique("exchange"), false, true),
            new FanoutExchange(Broker.unique("exchange"), false, true),
            new HeadersExchange(Broker.unique("exchange"), false, true));
        for (var exchange : exchanges) {
            admin.declareExchange(exchange);
            var queue = queue();
            admin.declareBinding(new Binding(queue, Binding.DestinationType.QUEUE, exchange.getName(), "key",
                Map.of("x-match", "all", "kind", "wanted")));
            template.convertAndSend(exchange.getName(), "key", exchange.getType(), message -> {
                message.getMessageProperties().setHeader("kind", "wanted");
                return message;
            });
            assertEquals(exchange.getType(), template.receiveAndConvert(queue));
        }
    }

    @Test
    void exchangesBindToExchanges() {
        var outer = new TopicExchange(Broker.unique("exchange"), false, true);
        var inner = new FanoutExchange(Broker.unique("exchange"), false, true);
        admin.declareExchange(outer);
        admin.declareExchange(inner);
        var queue = new Queue(queue());
        admin.declareBinding(BindingBuilder.bind(inner).to(outer).with("a.*"));
        admin.declareBinding(BindingBuilder.bind(queue).to(inner));
        template.convertAndSend(outer.getName(), "a.b", "through");
        template.convertAndSend(outer.getName(), "b.b", "nowhere");
        assertEquals("through", template.receiveAndConvert(queue.getName()));
        template.setReceiveTimeout(0);
        assertNull(template.receiveAndConvert(queue.getName()));
    }

    @Test
    void declaringOtherwiseFails() {
        var name = Broker.unique("queue");
        declare(QueueBuilder.durable(name).build());
        var error = assertThrows(AmqpIOException.class,
            () -> admin.declareQueue(QueueBuilder.durable(name).ttl(5).build()));
        assertTrue(error.getCause().getCause().getMessage().contains("PRECONDITION_FAILED"), () -> error.getCause().toString());
        assertNotNull(admin.getQueueInfo(name));
    }

    @Test
    void messagesKeepTheirProperties() {
        var queue = queue();
        var sent = MessageBuilder.withBody("hällo".getBytes()).setContentType("text/plain").setContentEncoding("utf-8")
            .setPriority(3).setMessageId("m").setCorrelationId("c").setType("t").setAppId("a").setReplyTo("r")
            .setDeliveryMode(MessageDeliveryMode.PERSISTENT).setHeader("text", "x").setHeader("number", 7L)
            .setHeader("list", List.of(1, 2)).build();
        template.send("", queue, sent);
        var got = template.receive(queue);
        assertNotNull(got);
        assertEquals("hällo", new String(got.getBody()));
        var properties = got.getMessageProperties();
        assertEquals(List.of("text/plain", "utf-8", 3, "m", "c", "t", "a", "r"),
            List.of(properties.getContentType(), properties.getContentEncoding(), properties.getPriority(),
                properties.getMessageId(), properties.getCorrelationId(), properties.getType(),
                properties.getAppId(), properties.getReplyTo()));
        assertEquals(MessageDeliveryMode.PERSISTENT, properties.getReceivedDeliveryMode());
        assertEquals(Map.of("text", "x", "number", 7L, "list", List.of(1, 2)), properties.getHeaders());
    }

    @Test
    void correlatedConfirmsComeAndReturnsComeFirst() throws Exception {
        var factory = factory();
        factory.setPublisherConfirmType(ConfirmType.CORRELATED);
        factory.setPublisherReturns(true);
        var confirming = new RabbitTemplate(factory);
        confirming.setMandatory(true);
        var queue = queue();
        var all = new ArrayList<CorrelationData>();
        for (int count = 0; count < 200; count++) {
            var routable = count % 10 != 0;
            var correlation = new CorrelationData((routable ? "kept " : "returned ") + count);
            confirming.convertAndSend("", routable ? queue : Broker.unique("nowhere"), "body " + count, correlation);
            all.add(correlation);
        }
        for (CorrelationData correlation : all) {
            assertTrue(correlation.getFuture().get(15, TimeUnit.SECONDS).isAck());
            var returned = correlation.getReturned();
            assertEquals(correlation.getId().startsWith("returned"), returned != null, correlation.getId());
            if (returned != null) {
                assertEquals(List.of(312, "NO_ROUTE"), List.of(returned.getReplyCode(), returned.getReplyText()));
            }
        }
        assertEquals(180, admin.getQueueInfo(queue).getMessageCount());
    }

    @Test
    void aRefusedPublishIsToldToItsSender() throws Exception {
        var factory = factory();
        factory.setPublisherConfirmType(ConfirmType.CORRELATED);
        var confirming = new RabbitTemplate(factory);
        var queue = declare(QueueBuilder.durable(Broker.unique("queue")).maxLength(1L)
            .overflow(QueueBuilder.Overflow.rejectPublish).build());
        for (boolean accepted : new boolean[] {true, false}) {
            var correlation = new CorrelationData();
            confirming.convertAndSend("", queue, "x", correlation);
            assertEquals(accepted, correlation.getFuture().get(15, TimeUnit.SECONDS).isAck());
        }
    }

    @Test
    void simpleConfirmsOfABatch() {
        var factory = factory();
        factory.setPublisherConfirmType(ConfirmType.SIMPLE);
        var confirming = new RabbitTemplate(factory);
        var queue = queue();
        assertEquals(Boolean.TRUE, confirming.invoke(operations -> {
            for (int count = 0; count < 100; count++) {
                operations.convertAndSend("", queue, Integer.toString(count));
            }
            return operations.waitForConfirms(Broker.PATIENCE.toMillis());
        }));
        for (int count = 0; count < 100; count++) {
            assertEquals(Integer.toString(count), template.receiveAndConvert(queue));
        }
    }

    @Test
    void transactionsCommitAndRollBack() {
        var queue = queue();
        var transacted = new RabbitTemplate(connections);
        transacted.setChannelTransacted(true);
        transacted.setReceiveTimeout(Broker.PATIENCE.toMillis());
        var transaction = new TransactionTemplate(new RabbitTransactionManager(connections));
        transaction.executeWithoutResult(status -> {
            transacted.convertAndSend("", queue, "forgotten");
            status.setRollbackOnly();
        });
        transaction.executeWithoutResult(status -> transacted.convertAndSend("", queue, "kept"));
        assertEquals("kept", template.receiveAndConvert(queue));
        assertEquals(0, admin.getQueueInfo(queue).getMessageCount());
        template.convertAndSend("", queue, "given back");
        transaction.executeWithoutResult(status -> {
            assertEquals("given back", transacted.receiveAndConvert(queue));
            status.setRollbackOnly();
        });
        assertEquals("given back", template.receiveAndConvert(queue));
    }

    @Test
    void requestsAreAnsweredOverTheDirectReplyAddress() {
        answer("direct", false);
    }

    @Test
    void requestsAreAnsweredOverTemporaryQueues() {
        answer("temporary", true);
    }

    private void answer(String word, boolean temporaryQueues) {
        var queue = queue();
        var serving = new SimpleMessageListenerContainer(connections);
        serving.setMessageListener(new MessageListenerAdapter(new Echo(), "answer"));
        start(serving, queue, AcknowledgeMode.AUTO);
        template.setUseTemporaryReplyQueues(temporaryQueues);
        for (int count = 0; count < 20; count++) {
            assertEquals(word + count + "!", template.convertSendAndReceive("", queue, word + count));
        }
    }

    /** Answers requests. */
    public static final class Echo {
        /** The request and an exclamation mark. */
        public String answer(String request) {
            return request + "!";
        }
    }
}
