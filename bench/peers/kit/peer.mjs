// The worker's side of the protocol, for peers in Node: every start in memory, told at the end.

const { env } = process;

export const WORK = env.PEER_WORK;
export const JOBS = Number(env.PEER_JOBS);
export const RATE = Number(env.PEER_RATE);
export const SCHEDULES = Number(env.PEER_SCHEDULES);
export const START = Number(env.PEER_START);
export const CORES = Number(env.PEER_CORES);
export const DATABASE_URL = env.PEER_DATABASE_URL;

const starts = [];
const dues = [];
const keys = [];

/** Seconds since 1970. */
export const now = () => (performance.timeOrigin + performance.now()) / 1000;

/** When a job of the steady rate is due. */
export const due = (number) => START + number / RATE;

/** Keep that a job has started: the moment that it was due, and its number. */
export function started(moment, key) {
  starts.push(now());
  if (moment != null) dues.push(moment);
  keys.push(key);
}

function say(words) {
  process.stdout.write(`${JSON.stringify(words)}\n`);
}

/** Say that jobs are taken from now on, tell how many started, and resolve when the runner closes the input. */
export async function watch() {
  say({ ready: true });
  let told = 0;
  const telling = setInterval(() => {
    if (starts.length !== told) {
      told = starts.length;
      say({ done: told });
    }
  }, 50);
  await new Promise((resolve) => {
    process.stdin.resume();
    process.stdin.on("end", resolve);
  });
  clearInterval(telling);
}

/** The last line, every start; then the end. */
export function report() {
  const line = { starts, dues: dues.length === starts.length ? dues : null, keys };
  process.stdout.write(`${JSON.stringify(line)}\n`, () => process.exit(0));
}

/** Numbers of jobs in chunks. */
export function* chunks(size) {
  for (let first = 0; first < JOBS; first += size) {
    yield Array.from({ length: Math.min(size, JOBS - first) }, (_, i) => first + i);
  }
}
