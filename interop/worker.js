// Takes and gives back locks with the npm packages redlock and ioredis, as it is
// told.
//
// USAGE    node worker.js HOST:PORT[,HOST:PORT…]
// INPUT    one JSON object a line: {id, op, name, ttl, handle, value}
//            op  try      one attempt at name for ttl milliseconds
//                wait     attempts until one succeeds or a line says so
//                stop     ends the wait whose id is handle
//                extend   the lock with that handle, by ttl milliseconds
//                release  the lock with that handle
// OUTPUT   one JSON object a line, in any order: {id, …}
//            try, wait  {handle, at, until}: the lock, when it was had and when it
//                       ends, or {refused: true} if others have the name
//            extend     {until}
//            release    {at}: when it was asked for, also with an error
//            {error}    what went wrong
//          Times are strings of nanoseconds on the host's monotonic clock.
// ENDS     when its input does.
'use strict';

const readline = require('readline');
const Redis = require('ioredis');
const { default: Redlock, ResourceLockedError } = require('redlock');

// A node that is away counts as a no after this long, in milliseconds; both
// packages would wait for it for ever.
const nodeTimeout = 1000;

const clients = process.argv[2].split(',').map((address) => {
  const [host, port] = address.split(':');
  const client = new Redis({ host, port: Number(port), commandTimeout: nodeTimeout, maxRetriesPerRequest: 1 });
  client.on('error', () => {}); // it votes against, which is all that matters
  return client;
});

// One attempt a call. Between attempts of one call redlock keeps the nodes that
// it got, under the value that it tries again with: after a split vote it would
// wait for itself.
const redlock = new Redlock(clients, { retryCount: 0, driftFactor: 0.01 });

const locks = new Map();
const stopped = new Set();

const now = () => process.hrtime.bigint();
const until = (lock) => String(now() + BigInt(Math.max(0, lock.expiration - Date.now())) * 1000000n);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// taken tells whether a quorum said no because the name is taken.
async function taken(error) {
  for (const attempt of error.attempts || []) {
    const stats = await attempt;
    const votes = [...stats.votesAgainst.values()].filter((e) => e instanceof ResourceLockedError);
    if (votes.length >= stats.quorumSize) return true;
  }
  return false;
}

async function attempt(name, ttl) {
  const lock = await redlock.acquire([name], ttl);
  const at = String(now());
  const handle = lock.value;
  locks.set(handle, lock);
  return { handle, at, until: until(lock) };
}

const operations = {
  async try({ name, ttl }) {
    try {
      return await attempt(name, ttl);
    } catch (error) {
      if (await taken(error)) return { refused: true };
      throw error;
    }
  },
  async wait({ id, name, ttl }) {
    while (!stopped.has(id)) {
      try {
        return await attempt(name, ttl);
      } catch (error) {
        await pause(5 + Math.random() * 10);
      }
    }
    return { refused: true };
  },
  async stop({ handle }) {
    stopped.add(Number(handle));
    return {};
  },
  async extend({ handle, ttl }) {
    const lock = await locks.get(handle).extend(ttl);
    locks.set(handle, lock);
    return { until: until(lock) };
  },
  async release({ handle }) {
    const at = String(now());
    try {
      await locks.get(handle).release();
      return { at };
    } catch (error) {
      return { at, error: String(error.message) };
    }
  },
};

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', async (line) => {
  const request = JSON.parse(line);
  let reply;
  try {
    reply = await operations[request.op](request);
  } catch (error) {
    reply = { error: String(error.message) };
  }
  process.stdout.write(JSON.stringify({ id: request.id, ...reply }) + '\n');
});
lines.on('close', () => process.exit(0));
