package lepus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** What an operator does by rabbitmqctl: the tool that LEPUS_CTL names, or lepus in its role. */
public final class Operator {

    private static final String TOOL = System.getenv("LEPUS_CTL");

    private Operator() {}

    /** Runs a command that must succeed; its output. The test is skipped where no tool is named. */
    public static String ctl(String... words) throws IOException, InterruptedException {
        assumeTrue(TOOL != null && !TOOL.isEmpty(), "LEPUS_CTL names no tool");
        var command = new ArrayList<>(List.of(TOOL.split(" ")));
        if (!command.get(0).replaceAll(".*/", "").startsWith("rabbitmqctl")) {
            command.add("ctl");
        }
        command.addAll(List.of(words));
        var builder = new ProcessBuilder(command).redirectErrorStream(true);
        // lepus takes the variables that are meant for the tests for misspelt settings.
        builder.environment().keySet().removeIf(name -> name.startsWith("LEPUS_") && !name.equals("LEPUS_DATA_DIR"));
        var process = builder.start();
        var output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertTrue(process.waitFor(Broker.PATIENCE.toSeconds(), TimeUnit.SECONDS), String.join(" ", words));
        assertEquals(0, process.exitValue(), String.join(" ", words) + ": " + output);
        return output;
    }

    /** Raises the alarm of a resource, memory or disk, as if it were short. */
    public static void raise(String resource) throws Exception {
        ctl("eval", "rabbit_alarm:set_alarm({{resource_limit, " + resource + ", node()}, []}).");
    }

    /** Ends that alarm. */
    public static void clear(String resource) throws Exception {
        ctl("eval", "rabbit_alarm:clear_alarm({resource_limit, " + resource + ", node()}).");
    }
}
