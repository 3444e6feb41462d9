import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { startConfig } from '#runtime/config';
import { runProgram } from '#runtime/process/lifecycle';
import { writePrivateFile } from '#runtime/process/files';
import { banner } from './banner.js';
import { startStack } from './stack.js';

/** Five programs and the database drain one after the other; few of them use their full time. */
const DRAIN_MS = 120_000;
const PROGRAMS = 5;
const DATABASE_MS = 30_000;

const code = await runProgram(
  'start',
  async (ctx) => {
    const config = startConfig();
    const { delayMs, deadlineMs } = config.drain;
    ctx.drainAs({
      // Only engine and public API wait for load balancers.
      delayMs: 2 * delayMs,
      deadlineMs: deadlineMs && Math.max(DRAIN_MS, PROGRAMS * deadlineMs + DATABASE_MS),
    });
    const readyFile = join(config.dataDir, 'ready.json');
    const stack = await startStack(config, ctx);
    // Removed first: its content is about to become invalid.
    ctx.onStop(() => rmSync(readyFile, { force: true }));
    const ready = {
      engine_url: stack.engineUrl,
      public_url: stack.publicUrl,
      tenant_id: stack.tenantId,
      api_key: stack.apiKey,
    };
    writePrivateFile(readyFile, `${JSON.stringify(ready, null, 2)}\n`);
    console.log(banner(stack, config.dataDir));
  },
  { drainMs: DRAIN_MS },
);
process.exit(code);
