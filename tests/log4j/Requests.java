import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.apache.logging.log4j.ThreadContext;

/** Logs each line of standard input, `method TAB path TAB status TAB message`, as a request to the host it is given. */
class Requests {
    public static void main(String[] arguments) throws IOException {
        Logger logger = LogManager.getLogger("edge");
        ThreadContext.put("host", arguments[0]);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", 4);
            ThreadContext.put("method", parts[0]);
            ThreadContext.put("path", parts[1]);
            ThreadContext.put("status", parts[2]);
            logger.info(parts[3]);
        }
        LogManager.shutdown();
    }
}
