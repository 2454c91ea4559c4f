import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.IOException;
import java.time.Instant;
import java.util.Locale;

/** The worker's side of the protocol, for peers in Java: every start in memory, told at the end. */
final class Peer {
    static final String WORK = System.getenv("PEER_WORK");
    static final int JOBS = Integer.parseInt(System.getenv("PEER_JOBS"));
    static final int RATE = Integer.parseInt(System.getenv("PEER_RATE"));
    static final int SCHEDULES = Integer.parseInt(System.getenv("PEER_SCHEDULES"));
    static final double START = Double.parseDouble(System.getenv("PEER_START"));
    static final boolean IS_STEADY = "steady".equals(WORK);

    private static double[] starts = new double[1 << 16];
    private static double[] dues = new double[1 << 16];
    private static int[] keys = new int[1 << 16];
    private static int count;

    private Peer() {}

    static String url() {
        return "jdbc:postgresql://%s:%s/%s".formatted(env("PGHOST"), env("PGPORT"), env("PGDATABASE"));
    }

    static String env(String name) {
        return System.getenv(name);
    }

    static HikariDataSource pool(int size) {
        var config = new HikariConfig();
        config.setJdbcUrl(url());
        config.setUsername(env("PGUSER"));
        config.setPassword(env("PGPASSWORD"));
        config.setMaximumPoolSize(size);
        return new HikariDataSource(config);
    }

    /** When a job of the steady rate is due; to the millisecond, which is what every store here keeps. */
    static Instant due(int number) {
        return Instant.ofEpochMilli((long) ((START + (double) number / RATE) * 1000));
    }

    static void started(Instant due, int key) {
        var now = Instant.now();
        synchronized (Peer.class) {
            if (count == starts.length) {
                starts = java.util.Arrays.copyOf(starts, count * 2);
                dues = java.util.Arrays.copyOf(dues, count * 2);
                keys = java.util.Arrays.copyOf(keys, count * 2);
            }
            starts[count] = seconds(now);
            dues[count] = seconds(due);
            keys[count++] = key;
        }
    }

    /** Say that jobs are taken from now on, tell how many started, and return when the runner closes the input. */
    static void watch() throws IOException {
        say("{\"ready\": true}");
        var telling = new Thread(Peer::tell);
        telling.setDaemon(true);
        telling.start();
        while (System.in.read() >= 0) {}
    }

    /** The last line: every start. */
    static synchronized void report() {
        var line = new StringBuilder("{\"starts\": [");
        for (int i = 0; i < count; i++) line.append(i == 0 ? "" : ",").append(number(starts[i]));
        line.append("], \"dues\": [");
        for (int i = 0; i < count; i++) line.append(i == 0 ? "" : ",").append(number(dues[i]));
        line.append("], \"keys\": [");
        for (int i = 0; i < count; i++) line.append(i == 0 ? "" : ",").append(keys[i]);
        say(line.append("]}").toString());
    }

    private static void tell() {
        int told = 0;
        while (true) {
            try {
                Thread.sleep(50);
            } catch (InterruptedException end) {
                return;
            }
            int now;
            synchronized (Peer.class) {
                now = count;
            }
            if (now != told) {
                told = now;
                say("{\"done\": " + told + "}");
            }
        }
    }

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    private static String number(double value) {
        return String.format(Locale.ROOT, "%.6f", value);
    }

    private static double seconds(Instant moment) {
        return moment.getEpochSecond() + moment.getNano() / 1e9;
    }
}
