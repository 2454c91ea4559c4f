// graphile-worker's part of the comparison.

import { Logger, makeWorkerUtils, parseCronItems, run } from "graphile-worker";
import * as peer from "./peer.mjs";

const CHUNK = 5000;
const preset = {
  worker: {
    connectionString: peer.DATABASE_URL,
    concurrentJobs: 24,
    maxPoolSize: 26,
    pollInterval: peer.WORK === "drain" ? 1000 : 10,
    ...(peer.WORK === "drain" && {
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    }),
    logger: new Logger(() => (level, message) => {
      if (level === "error") console.error(message);
    }),
  },
};

async function prepare() {
  const utils = await makeWorkerUtils({ preset });
  await utils.migrate();
  for (const numbers of peer.chunks(CHUNK)) {
    await utils.addJobs(
      numbers.map((number) => ({
        identifier: "noop",
        payload: { number },
        ...(peer.WORK === "steady" && { runAt: new Date(peer.due(number) * 1000) }),
      })),
    );
  }
  await utils.withPgClient((client) => client.query("vacuum analyze"));
  await utils.release();
}

async function work() {
  const taskList = {
    noop({ number }) {
      // A moment is kept in whole milliseconds; so is the one that it is measured against.
      peer.started(peer.WORK === "steady" ? Math.floor(peer.due(number) * 1000) / 1000 : null, number);
    },
    fire({ number, _cron }) {
      peer.started(new Date(_cron.ts).getTime() / 1000, number);
    },
  };
  const items = Array.from({ length: peer.SCHEDULES }, (_, number) => ({
    task: "fire",
    match: "* * * * *",
    identifier: `schedule_${number}`,
    payload: { number },
  }));
  const runner = await run({ preset, taskList, parsedCronItems: parseCronItems(items), noHandleSignals: true });
  await peer.watch();
  await runner.stop();
  peer.report();
}

await (process.argv[2] === "prepare" ? prepare() : work());
