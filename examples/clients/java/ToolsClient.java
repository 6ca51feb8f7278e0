// Calls the tools of examples/tools.py, with nothing but Java's standard library (Java 17 or later).
//
//   ropewalk serve examples/tools.py
//   java ToolsClient.java

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

public final class ToolsClient {
    /** Why a call has no result. */
    static final class CallFailed extends RuntimeException {
        final String code;
        /** The fields of wrong arguments. */
        final List<String> fields;

        private CallFailed(String code, List<String> fields, String document) {
            super(document);
            this.code = code;
            this.fields = fields;
        }

        /** Java has no reader of JSON of its own. A program with one takes the message and the descriptions, too. */
        static CallFailed of(String document) {
            var code = Pattern.compile("\"code\":\"([A-Z_]+)\"").matcher(document);
            var fields = Pattern.compile("\"field\":\"([^\"]*)\"").matcher(document).results();
            return new CallFailed(
                    code.find() ? code.group(1) : "UNKNOWN",
                    fields.map((MatchResult found) -> found.group(1)).toList(),
                    document);
        }
    }

    /** The items of a tool that streams, as JSON. Closing it before its end cancels the call. */
    static final class Items implements AutoCloseable {
        private final InputStream body;
        private final BufferedReader lines;

        Items(InputStream body) {
            this.body = body;
            this.lines = new BufferedReader(new InputStreamReader(body, StandardCharsets.UTF_8));
        }

        /** The next item, or null at the end. */
        String next() throws IOException {
            boolean isError = false;
            for (String line; (line = lines.readLine()) != null; ) {
                if (line.startsWith("event: ")) {
                    isError = line.equals("event: error");
                } else if (line.startsWith("data: ")) {
                    String text = line.substring("data: ".length());
                    if (isError) throw CallFailed.of(text);
                    return text;
                }
            }
            return null;
        }

        @Override
        public void close() throws IOException {
            // Not the reader, which would wait for a line that is being read.
            body.close();
        }
    }

    private final HttpClient http =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final String url;
    private final String token;

    ToolsClient(String url, String token) {
        this.url = url;
        this.token = token;
    }

    private HttpRequest request(
            String tool, String arguments, String accept, Duration timeout, Map<String, String> metadata) {
        var request = HttpRequest.newBuilder(URI.create(url + "/v1/tools/" + tool))
                .header("Content-Type", "application/json")
                .header("Accept", accept)
                .POST(HttpRequest.BodyPublishers.ofString(arguments));
        if (token != null) request.header("Authorization", "Bearer " + token);
        if (timeout != null) {
            // The server stops the tool then. The client waits a little longer, for the server's own answer.
            request.header("X-Ropewalk-Timeout", String.valueOf(timeout.toMillis() / 1000.0));
            request.timeout(timeout.plusSeconds(1));
        }
        metadata.forEach((name, text) -> request.header("X-Ropewalk-Meta-" + name, text));
        return request.build();
    }

    /** Begins a call; its result is JSON. Cancelling the future cancels the call. */
    CompletableFuture<String> begin(
            String tool, String arguments, Duration timeout, Map<String, String> metadata) {
        var request = request(tool, arguments, "application/json", timeout, metadata);
        return http.sendAsync(request, BodyHandlers.ofString()).thenApply(response -> {
            if (response.statusCode() != 200) throw CallFailed.of(response.body());
            return response.body();
        });
    }

    /** Calls a tool. */
    String call(String tool, String arguments, Duration timeout, Map<String, String> metadata) {
        try {
            return begin(tool, arguments, timeout, metadata).join();
        } catch (CompletionException error) {
            if (error.getCause() instanceof CallFailed failed) throw failed;
            throw error;
        }
    }

    String call(String tool, String arguments) {
        return call(tool, arguments, null, Map.of());
    }

    /** Calls a tool that streams. */
    Items stream(String tool, String arguments) throws IOException, InterruptedException {
        var request = request(tool, arguments, "text/event-stream", null, Map.of());
        HttpResponse<InputStream> response = http.send(request, BodyHandlers.ofInputStream());
        if (response.statusCode() == 200) return new Items(response.body());
        try (InputStream body = response.body()) {
            throw CallFailed.of(new String(body.readAllBytes(), StandardCharsets.UTF_8));
        }
    }

    /** The status of a call that fails, and the fields that are wrong. */
    static String refusal(Runnable call) {
        try {
            call.run();
            return "no failure";
        } catch (CallFailed failed) {
            return failed.fields.isEmpty() ? failed.code : failed.code + " " + String.join(" ", failed.fields);
        } catch (CompletionException error) {
            boolean isLate = error.getCause() instanceof HttpTimeoutException;
            return isLate ? "DEADLINE_EXCEEDED" : error.getCause().toString();
        }
    }

    public static void main(String[] arguments) throws Exception {
        String url = System.getenv().getOrDefault("ROPEWALK_URL", "http://127.0.0.1:8080");
        var client = new ToolsClient(url, System.getenv("ROPEWALK_TOKEN"));

        System.out.println("add: " + client.call("add", "{\"a\": 2, \"b\": 3}"));
        String greeting = client.call("greet", "{}", null, Map.of("name", "Java"));
        System.out.println("greet: " + greeting.substring(1, greeting.length() - 1));

        String wrong = refusal(() -> client.call("add", "{\"a\": \"two\", \"c\": 3}"));
        System.out.println("wrong arguments: " + wrong);
        var stranger = new ToolsClient(url, null);
        System.out.println("without a token: " + refusal(() -> stranger.call("add", "{\"a\": 2}")));

        List<String> last = new ArrayList<>();
        try (Items items = client.stream("primes", "{\"above\": 99950}")) {
            for (String item; (item = items.next()) != null; ) last.add(item);
        }
        System.out.println("stream: " + last.stream().collect(Collectors.joining(" ")));

        List<String> first = new ArrayList<>();
        try (Items items = client.stream("primes", "{}")) {
            while (first.size() < 3) first.add(items.next());
        }
        System.out.println("left stream: " + String.join(" ", first));

        Duration timeout = Duration.ofMillis(200);
        String late = refusal(() -> client.call("wait", "{\"seconds\": 600}", timeout, Map.of()));
        System.out.println("deadline: " + late);

        var call = client.begin("wait", "{\"seconds\": 600}", null, Map.of());
        CompletableFuture.delayedExecutor(200, TimeUnit.MILLISECONDS).execute(() -> call.cancel(true));
        try {
            System.out.println("cancelled: " + call.join());
        } catch (CancellationException | CompletionException error) {
            System.out.println("cancelled: " + (call.isCancelled() || error.getCause() instanceof CancellationException ? "yes" : "no"));
        }
        System.out.println("add again: " + client.call("add", "{\"a\": 2}"));
    }
}
