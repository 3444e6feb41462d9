import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { startConfig } from '#runtime/config';
import { runProgram } from '#runtime/process/lifecycle';
import { writePrivateFile } from '#runtime/process/files';
import { startStack, type Stack } from './stack.js';

/**
 * Shorter than the drain times of five programs and the database together, because each rarely
 * needs all of its time.
 */
const DRAIN_MS = 120_000;
const PROGRAMS = 5;
const DATABASE_MS = 30_000;

const code = await runProgram(
  'start',
  async (ctx) => {
    const config = startConfig();
    const { delayMs, deadlineMs } = config.drain;
    ctx.drainAs({
      // Twice the delay, because engine and public API wait for load balancers one after the other.
      delayMs: 2 * delayMs,
      deadlineMs: deadlineMs && Math.max(DRAIN_MS, PROGRAMS * deadlineMs + DATABASE_MS),
    });
    const readyFile = join(config.dataDir, 'ready.json');
    const stack = await startStack(config, ctx);
    // The shutdown first removes `ready.json`, because its addresses are about to become invalid.
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

/** Quotes a text for a POSIX shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Admits an action and saves the receipt; a repeated request returns the same receipt. */
function executeLine(stack: Stack, receiptFile: string): string {
  const body = {
    schema_version: 'svc.runtime.intent_execute.request/1.0',
    intent_id: 'first-look',
    tenant_id: stack.tenantId,
    action: 'SEND_REPORT',
    idempotency_key: 'first-look',
    proof_chain_fixture_ref: 'fixture-first-look',
  };
  return [
    'curl -sS -X POST',
    quoted(`${stack.engineUrl}/v1/intents/execute`),
    `-H ${quoted(`X-Svc-Api-Key: ${stack.apiKey}`)}`,
    `-H ${quoted(`X-Svc-Tenant-Id: ${stack.tenantId}`)}`,
    // Unique per call: an edited body is a new admission, which needs another idempotency key.
    '-H "X-Svc-Idempotency-Key: $(date +%s)-$$-$RANDOM"',
    `-H 'svc-api-version: v1' -H 'Content-Type: application/json'`,
    `-d ${quoted(JSON.stringify(body))}`,
    `| tee ${quoted(receiptFile)}`,
  ].join(' ');
}

function banner(stack: Stack, dataDir: string): string {
  const receiptFile = join(dataDir, 'last-receipt.json');
  // Sleeps 3 s, in which the proof is usually published.
  const id = `$(sleep 3; sed -n 's/.*"registry_proof_id":"\\([0-9a-f]*\\)".*/\\1/p' ${quoted(receiptFile)})`;
  return `
Ready.

  engine API   ${stack.engineUrl}   (tenant ${stack.tenantId}; the key is in ${join(dataDir, 'ready.json')})
  public API   ${stack.publicUrl}   (no key; in a browser, a page)

Admit an action and get its receipt:

${executeLine(stack, receiptFile)}

Look the proof up, as anyone can:

curl -sS "${stack.publicUrl}/api/public/verify/proof/${id}"

Ctrl-C stops everything; the data stays in ${dataDir}.
`;
}
