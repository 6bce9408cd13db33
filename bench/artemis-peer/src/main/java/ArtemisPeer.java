import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import org.apache.activemq.artemis.core.config.Configuration;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;

/**
 * Apache Artemis as lepus-bench measures it beside lepus: its own protocol on a port of 127.0.0.1, no users, messages in
 * memory, everything else as it comes. It ends with the signal TERM.
 *
 * <pre>java -cp 'classes:jars/*' ArtemisPeer PORT DIRECTORY</pre>
 *
 * Says {@code ready VERSION} once it takes connections.
 */
public final class ArtemisPeer {
    private ArtemisPeer() {}

    public static void main(String[] words) throws Exception {
        if (words.length != 2) {
            System.err.println("artemis-peer: PORT DIRECTORY are needed, and nothing else");
            System.exit(1);
        }
        int port = Integer.parseUnsignedInt(words[0]);
        Path directory = Path.of(words[1]).toAbsolutePath();
        Configuration settings = new ConfigurationImpl()
            .setPersistenceEnabled(false)
            .setSecurityEnabled(false)
            .setJournalDirectory(directory.resolve("journal").toString())
            .setBindingsDirectory(directory.resolve("bindings").toString())
            .setLargeMessagesDirectory(directory.resolve("large").toString())
            .setPagingDirectory(directory.resolve("paging").toString())
            // Queues stay when their consumers leave: the load takes them away itself.
            .addAddressSetting("#", new AddressSettings().setAutoDeleteQueues(false).setAutoDeleteAddresses(false))
            .addAcceptorConfiguration("core", "tcp://127.0.0.1:" + port + "?protocols=CORE");
        EmbeddedActiveMQ broker = new EmbeddedActiveMQ().setConfiguration(settings);
        broker.start();
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                broker.stop();
            } catch (Exception error) {
                error.printStackTrace();
            }
            ended.countDown();
        }));
        System.out.println("ready Apache Artemis " + broker.getActiveMQServer().getVersion().getFullVersion());
        ended.await();
    }
}
