import { join } from 'node:path';
import { executeRows } from './execute-rows.js';
import { runExecutes } from '../singles/execute-run.js';
import { UNLIMITED } from '../service/limits.js';
import type { BenchContext, Measurement, Row } from '../row.js';
import { startStack } from '../service/stack.js';
import { tellProfile } from '../figures/tell-profile.js';

/** As many as the claim is about. */
const CONNECTIONS = 64;
/** Seconds. */
const QUICK = { rounds: 1, seconds: 2, warmUpSeconds: 1, halfSeconds: 1, receipts: 5 };
const WHOLE = { rounds: 5, seconds: 8, warmUpSeconds: 8, halfSeconds: 10, receipts: 30 };

/** Functions of each program that a profile tells of. */
const TOLD = 15;
const PROFILED = ['engine', 'worker'] as const;

/** Single executes as fast as they are answered, and the same of an Express app that echoes. */
async function measure(context: BenchContext): Promise<Row[]> {
  const { dir, redisUrl, quick, profile } = context;
  const profileDir = join(dir, 'profiles');
  const stack = await startStack(dir, {
    redisUrl,
    workers: 1,
    recentLookupLimit: 100_000,
    env: { engine: UNLIMITED },
    ...(profile && { profileDir }),
  });
  let rows: Row[];
  try {
    const plan = { connections: CONNECTIONS, ...(quick ? QUICK : WHOLE) };
    rows = executeRows(await runExecutes(stack, plan, context));
  } finally {
    await stack.close();
  }
  if (profile) for (const name of PROFILED) await tellProfile(name, join(profileDir, name), TOLD);
  return rows;
}

export const execute: Measurement = { name: 'execute', needs: ['wrk'], measure };
