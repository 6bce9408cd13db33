import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.apache.qpid.server.SystemLauncher;
import org.apache.qpid.server.SystemLauncherListener;

/**
 * Apache Qpid Broker-J as lepus-bench measures it beside lepus: AMQP 0-9-1 on a port of 127.0.0.1, the user guest, messages
 * in memory, everything else as it comes. It ends with the signal TERM.
 *
 * <pre>java -cp 'classes:jars/*' QpidPeer PORT DIRECTORY</pre>
 *
 * DIRECTORY is there and gets the settings.
 */
public final class QpidPeer {
    private static final String SETTINGS = """
        {
          "name": "qpid-peer",
          "modelVersion": "9.1",
          "authenticationproviders": [{
            "name": "plain",
            "type": "Plain",
            "secureOnlyMechanisms": [],
            "users": [{"name": "guest", "type": "managed", "password": "guest"}]
          }],
          "ports": [{
            "name": "amqp",
            "type": "AMQP",
            "port": %d,
            "bindingAddress": "127.0.0.1",
            "protocols": ["AMQP_0_9_1"],
            "authenticationProvider": "plain",
            "virtualhostaliases": [{"name": "default", "type": "defaultAlias"}]
          }],
          "virtualhostnodes": [{
            "name": "default",
            "type": "Memory",
            "defaultVirtualHostNode": "true",
            "virtualHostInitialConfiguration": "{\\"type\\": \\"Memory\\"}"
          }]
        }
        """;

    private QpidPeer() {}

    public static void main(String[] words) throws Exception {
        if (words.length != 2) {
            System.err.println("qpid-peer: PORT DIRECTORY are needed, and nothing else");
            System.exit(1);
        }
        Path directory = Path.of(words[1]).toAbsolutePath();
        Path settings = directory.resolve("settings.json");
        write(settings, SETTINGS.formatted(Integer.parseUnsignedInt(words[0])));
        SystemLauncher launcher = new SystemLauncher(new SystemLauncherListener.DefaultSystemLauncherListener() {
            @Override
            public void onShutdown(int exitCode) {
                Runtime.getRuntime().halt(exitCode);
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(launcher::shutdown));
        launcher.startup(Map.of(
            "type", "Memory",
            "initialConfigurationLocation", settings.toUri().toString(),
            "context", Map.of(
                "qpid.work_dir", directory.toString(),
                // A broker whose port is taken ends.
                "broker.failStartupWithErroredChild", "true"),
            "startupLoggedToSystemOut", "true"));
    }

    private static void write(Path file, String text) throws IOException {
        Files.write(file, text.getBytes(StandardCharsets.UTF_8));
    }
}
