package lepus.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AuthenticationFailureException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import lepus.Broker;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Opening, tuning, using and closing connections and channels. */
class ConnectionTest extends ClientTest {

    @Test
    void theBrokerSaysWhatItCanDo() {
        var properties = connection.getServerProperties();
        assertTrue(properties.get("version").toString().matches("\\d+\\.\\d+\\.\\d+.*"));
        var capabilities = assertInstanceOf(Map.class, properties.get("capabilities"));
        for (String name : List.of("publisher_confirms", "exchange_exchange_bindings", "basic.nack",
                "consumer_cancel_notify", "connection.blocked", "consumer_priorities",
                "authentication_failure_close", "per_consumer_qos", "direct_reply_to")) {
            assertEquals(true, capabilities.get(name), name);
        }
    }

    @Test
    void aWrongPasswordIsAnAuthenticationFailure() {
        var error = assertThrows(AuthenticationFailureException.class,
                () -> connect(factory -> factory.setPassword("not the password")));
        assertTrue(error.getMessage().contains("ACCESS_REFUSED"), error.getMessage());
    }

    @Test
    void anUnknownVhostIsNotAllowed() {
        var error = assertThrows(IOException.class,
                () -> connect(factory -> factory.setVirtualHost(Broker.unique("vhost"))));
        var signal = assertInstanceOf(ShutdownSignalException.class, error.getCause());
        var close = assertInstanceOf(AMQP.Connection.Close.class, signal.getReason());
        assertEquals(530, close.getReplyCode());
        assertEquals("10/40", close.getClassId() + "/" + close.getMethodId());
    }

    @Test
    void aQuietConnectionWithOneSecondHeartbeatsStaysOpen() throws Exception {
        var quiet = connect(factory -> factory.setRequestedHeartbeat(1));
        assertEquals(1, quiet.getHeartbeat());
        Thread.sleep(4000);
        assertTrue(quiet.isOpen());
        assertNotNull(quiet.createChannel().queueDeclare().getQueue());
    }

    @Test
    void theClientMayAskForFewerChannels() throws Exception {
        var narrow = connect(factory -> factory.setRequestedChannelMax(3));
        assertEquals(3, narrow.getChannelMax());
        var channels = new ArrayList<Channel>();
        for (int count = 0; count < 3; count++) {
            channels.add(narrow.createChannel());
        }
        assertNull(narrow.createChannel());
        channels.get(1).close();
        assertEquals(channels.get(1).getChannelNumber(), narrow.createChannel().getChannelNumber());
    }

    @ParameterizedTest
    @ValueSource(ints = {4096, 70_000, 131_072})
    void largeBodiesPassWithAnyFrameMax(int frameMax) throws Exception {
        var tuned = connect(factory -> factory.setRequestedFrameMax(frameMax));
        assertEquals(frameMax, tuned.getFrameMax());
        roundTripLargeBody(tuned.createChannel());
    }

    @Test
    void theNettyTransportWorks() throws Exception {
        roundTripLargeBody(connect(factory -> factory.netty()).createChannel());
    }

    private static void roundTripLargeBody(Channel channel) throws Exception {
        var body = new byte[1_000_003];
        new Random(1).nextBytes(body);
        var queue = channel.queueDeclare().getQueue();
        var inbox = Inbox.of(channel, queue, true);
        channel.basicPublish("", queue, null, body);
        assertArrayEquals(body, inbox.next().getBody());
    }

    @Test
    void aThousandChannelsComeAndGo() throws Exception {
        for (int count = 0; count < 1000; count++) {
            connection.createChannel().close();
        }
        assertNotNull(queue());
    }

    @Test
    void manyChannelsWorkSideBySide() throws Exception {
        var inboxes = new ArrayList<Inbox>();
        for (int at = 0; at < 100; at++) {
            var own = connection.createChannel();
            var queue = own.queueDeclare().getQueue();
            inboxes.add(Inbox.of(own, queue, true));
            own.basicPublish("", queue, null, bytes("to " + at));
        }
        for (int at = 0; at < 100; at++) {
            assertEquals(List.of("to " + at), inboxes.get(at).next(1));
        }
    }

    @Test
    void closingAnswersAndNamesTheApplication() throws Exception {
        connection.close(200, "done");
        assertFalse(connection.isOpen());
        assertTrue(connection.getCloseReason().isInitiatedByApplication());
    }

    @Test
    void aChannelErrorLeavesTheConnectionAndItsOtherChannelsAlone() throws Exception {
        var other = connection.createChannel();
        closes(channel, 404, 50, 10, "no queue", () -> channel.queueDeclarePassive(Broker.unique("queue")));
        assertTrue(connection.isOpen());
        assertNotNull(other.queueDeclare().getQueue());
        assertNotNull(connection.createChannel().queueDeclare().getQueue());
    }

    @Test
    void aNamedConnectionOpens() throws Exception {
        try (var named = Broker.factory().newConnection("e2e named")) {
            assertEquals("e2e named", named.getClientProvidedName());
            assertNotNull(named.createChannel().queueDeclare().getQueue());
        }
    }
}
