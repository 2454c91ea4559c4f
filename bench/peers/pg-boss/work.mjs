// pg-boss's part of the comparison.

import { PgBoss } from "pg-boss";
import * as peer from "./peer.mjs";

const CHUNK = 5000;

async function connect(options) {
  const boss = new PgBoss({ connectionString: peer.DATABASE_URL, max: 10, ...options });
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

async function prepare() {
  const boss = await connect({ supervise: false, schedule: false });
  for (const queue of ["noop", "fire"]) await boss.createQueue(queue);
  for (const numbers of peer.chunks(CHUNK)) {
    await boss.insert(
      "noop",
      numbers.map((number) => ({
        data: { number },
        ...(peer.WORK === "steady" && { startAfter: new Date(peer.due(number) * 1000) }),
      })),
    );
  }
  for (let number = 0; number < peer.SCHEDULES; number++) {
    await boss.schedule("fire", "* * * * *", { number }, { key: `schedule-${number}` });
  }
  await boss.getDb().executeSql("vacuum analyze");
  await boss.stop({ graceful: false });
  process.exit(0);
}

async function work() {
  const isRecurring = peer.WORK === "recurring";
  const boss = await connect({
    schedule: isRecurring,
    cronMonitorIntervalSeconds: 1,
    cronWorkerIntervalSeconds: 1,
  });
  const options = {
    batchSize: peer.WORK === "steady" ? 100 : 1000,
    localConcurrency: 2,
    pollingIntervalSeconds: 0.5,
    burstWhenBatchFull: true,
  };
  await boss.work("noop", options, async (jobs) => {
    for (const { data } of jobs) {
      // A moment is kept in whole milliseconds; so is the one that it is measured against.
      peer.started(peer.WORK === "steady" ? Math.floor(peer.due(data.number) * 1000) / 1000 : null, data.number);
    }
  });
  await boss.work("fire", options, async (jobs) => {
    for (const { data } of jobs) peer.started(Math.floor(peer.now() / 60) * 60, data.number);
  });
  await peer.watch();
  await boss.stop({ graceful: true, timeout: 10_000 });
  peer.report();
}

await (process.argv[2] === "prepare" ? prepare() : work());
