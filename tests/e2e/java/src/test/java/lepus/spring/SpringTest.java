package lepus.spring;

import java.util.ArrayList;
import java.util.List;
import lepus.Broker;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.springframework.amqp.core.AcknowledgeMode;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.AbstractMessageListenerContainer;

/** What an application built with Spring has: a connection factory, an admin, a template, containers. */
abstract class SpringTest {

    private final List<AbstractMessageListenerContainer> containers = new ArrayList<>();
    private final List<CachingConnectionFactory> factories = new ArrayList<>();
    private final List<String> queues = new ArrayList<>();
    protected CachingConnectionFactory connections;
    protected RabbitAdmin admin;
    protected RabbitTemplate template;

    @BeforeEach
    void open() {
        connections = factory();
        admin = new RabbitAdmin(connections);
        template = new RabbitTemplate(connections);
        template.setReceiveTimeout(Broker.PATIENCE.toMillis());
        template.setReplyTimeout(Broker.PATIENCE.toMillis());
    }

    @AfterEach
    void close() {
        containers.forEach(AbstractMessageListenerContainer::destroy);
        queues.forEach(admin::deleteQueue);
        factories.forEach(CachingConnectionFactory::destroy);
    }

    /** A caching factory; it is closed after the test. */
    protected CachingConnectionFactory factory() {
        var factory = new CachingConnectionFactory(Broker.factory());
        factories.add(factory);
        return factory;
    }

    /** Declares a queue; it is deleted after the test. */
    protected String declare(Queue queue) {
        var name = admin.declareQueue(queue);
        queues.add(name);
        return name;
    }

    /** A fresh durable queue. */
    protected String queue() {
        return declare(QueueBuilder.durable(Broker.unique("queue")).build());
    }

    /** Starts a container; it is stopped after the test. */
    protected <C extends AbstractMessageListenerContainer> C start(C container, String queue, AcknowledgeMode mode) {
        containers.add(container);
        container.setQueueNames(queue);
        container.setAcknowledgeMode(mode);
        container.setShutdownTimeout(1000);
        container.afterPropertiesSet();
        container.start();
        return container;
    }
}
