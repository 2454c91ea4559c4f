import com.github.kagkarlsson.scheduler.Scheduler;
import com.github.kagkarlsson.scheduler.task.SchedulableInstance;
import com.github.kagkarlsson.scheduler.task.helper.OneTimeTask;
import com.github.kagkarlsson.scheduler.task.helper.RecurringTask;
import com.github.kagkarlsson.scheduler.task.helper.Tasks;
import com.github.kagkarlsson.scheduler.task.schedule.Schedules;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;

/** db-scheduler's part of the comparison. */
public final class Work {
    private static final int CHUNK = 5000;
    private static final int THREADS = 50;
    private static final String SCHEMA =
            """
            create table scheduled_tasks (
                task_name text, task_instance text, task_data bytea, execution_time timestamptz,
                picked boolean not null, picked_by text, last_success timestamptz, last_failure timestamptz,
                consecutive_failures int, last_heartbeat timestamptz, version bigint not null, priority smallint,
                state text, primary key (task_name, task_instance)
            );
            create index on scheduled_tasks (execution_time);
            create index on scheduled_tasks (last_heartbeat);
            """;

    private static final OneTimeTask<Void> NOOP = Tasks.oneTime("noop")
            .execute((instance, context) ->
                    Peer.started(context.getExecution().executionTime, Integer.parseInt(instance.getId())));

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("prepare")) prepare();
        else work();
        System.exit(0);
    }

    private static void prepare() throws Exception {
        var pool = Peer.pool(4);
        try (var connection = pool.getConnection();
                var statement = connection.createStatement()) {
            statement.execute(SCHEMA);
        }
        var client = Scheduler.create(pool, NOOP).build();
        var now = Instant.now();
        for (int first = 0; first < Peer.JOBS; first += CHUNK) {
            List<SchedulableInstance<?>> batch = new ArrayList<>();
            for (int number = first; number < Math.min(first + CHUNK, Peer.JOBS); number++) {
                var due = Peer.IS_STEADY ? Peer.due(number) : now;
                batch.add(SchedulableInstance.of(NOOP.instance(String.valueOf(number)), due));
            }
            client.scheduleBatch(batch);
        }
        try (var connection = pool.getConnection();
                var statement = connection.createStatement()) {
            statement.execute("vacuum analyze");
        }
    }

    private static void work() throws Exception {
        List<RecurringTask<Void>> recurring = new ArrayList<>();
        for (int i = 0; i < Peer.SCHEDULES; i++) {
            int number = i;
            recurring.add(Tasks.recurring("schedule_" + number, Schedules.cron("* * * * * *"))
                    .execute((instance, context) ->
                            Peer.started(context.getExecution().executionTime, number)));
        }
        var scheduler = Scheduler.create(Peer.pool(THREADS + 4), NOOP)
                .startTasks(recurring)
                .threads(THREADS)
                .pollUsingLockAndFetch(4.0, 20.0)
                .pollingInterval(Duration.ofMillis(10))
                .build();
        scheduler.start();
        Peer.watch();
        scheduler.stop();
        Peer.report();
    }
}
