import static org.quartz.SimpleScheduleBuilder.simpleSchedule;

import java.nio.charset.StandardCharsets;
import java.sql.DriverManager;
import java.time.Instant;
import java.util.Date;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.HashSet;
import org.quartz.Job;
import org.quartz.JobBuilder;
import org.quartz.JobExecutionContext;
import org.quartz.Scheduler;
import org.quartz.Trigger;
import org.quartz.TriggerBuilder;
import org.quartz.impl.StdSchedulerFactory;

/** Quartz's part of the comparison. */
public final class Work {
    private static final int CHUNK = 1000;
    private static final int THREADS = 50;

    /** Keeps when it started. */
    public static final class Noop implements Job {
        @Override
        public void execute(JobExecutionContext context) {
            var key = Integer.parseInt(context.getTrigger().getKey().getName());
            Peer.started(context.getScheduledFireTime().toInstant(), key);
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("prepare")) prepare();
        else work();
        System.exit(0);
    }

    private static void prepare() throws Exception {
        execute(new String(
                Scheduler.class
                        .getResourceAsStream("/org/quartz/impl/jdbcjobstore/tables_postgres.sql")
                        .readAllBytes(),
                StandardCharsets.UTF_8));
        var scheduler = scheduler();
        var job = JobBuilder.newJob(Noop.class).withIdentity("noop").storeDurably().build();
        var isRecurring = Peer.SCHEDULES > 0;
        var count = isRecurring ? Peer.SCHEDULES : Peer.JOBS;
        scheduler.addJob(job, true);
        for (int first = 0; first < count; first += CHUNK) {
            Set<Trigger> triggers = new HashSet<>();
            for (int number = first; number < Math.min(first + CHUNK, count); number++) {
                triggers.add(trigger(number, isRecurring));
            }
            scheduler.scheduleJobs(Map.of(job, triggers), true);
        }
        scheduler.shutdown();
        execute("vacuum analyze");
    }

    private static Trigger trigger(int number, boolean isRecurring) {
        var schedule = simpleSchedule().withMisfireHandlingInstructionIgnoreMisfires();
        if (isRecurring) schedule.withIntervalInSeconds(1).repeatForever();
        var start = isRecurring
                ? Instant.ofEpochSecond((long) Peer.START)
                : Peer.IS_STEADY ? Peer.due(number) : Instant.now();
        return TriggerBuilder.newTrigger()
                .withIdentity(String.valueOf(number))
                .forJob("noop")
                .startAt(Date.from(start))
                .withSchedule(schedule)
                .build();
    }

    private static void work() throws Exception {
        var scheduler = scheduler();
        scheduler.start();
        Peer.watch();
        scheduler.shutdown(true);
        Peer.report();
    }

    private static Scheduler scheduler() throws Exception {
        var settings = new Properties();
        settings.put("org.quartz.scheduler.instanceName", "peer");
        settings.put("org.quartz.scheduler.instanceId", "AUTO");
        settings.put("org.quartz.scheduler.skipUpdateCheck", "true");
        settings.put("org.quartz.scheduler.batchTriggerAcquisitionMaxCount", "500");
        settings.put(
                "org.quartz.scheduler.batchTriggerAcquisitionFireAheadTimeWindow", "drain".equals(Peer.WORK) ? "0" : "50");
        settings.put("org.quartz.threadPool.threadCount", String.valueOf(THREADS));
        settings.put("org.quartz.jobStore.class", "org.quartz.impl.jdbcjobstore.JobStoreTX");
        settings.put("org.quartz.jobStore.driverDelegateClass", "org.quartz.impl.jdbcjobstore.PostgreSQLDelegate");
        settings.put("org.quartz.jobStore.isClustered", "false");
        settings.put("org.quartz.jobStore.acquireTriggersWithinLock", "true");
        settings.put("org.quartz.jobStore.dataSource", "peer");
        settings.put("org.quartz.dataSource.peer.provider", "hikaricp");
        settings.put("org.quartz.dataSource.peer.driver", "org.postgresql.Driver");
        settings.put("org.quartz.dataSource.peer.URL", Peer.url());
        settings.put("org.quartz.dataSource.peer.user", Peer.env("PGUSER"));
        settings.put("org.quartz.dataSource.peer.password", Peer.env("PGPASSWORD"));
        settings.put("org.quartz.dataSource.peer.maxConnections", String.valueOf(THREADS + 4));
        return new StdSchedulerFactory(settings).getScheduler();
    }

    private static void execute(String sql) throws Exception {
        try (var connection = DriverManager.getConnection(Peer.url(), Peer.env("PGUSER"), Peer.env("PGPASSWORD"));
                var statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }
}
