import { randomBytes } from 'node:crypto';
import { readdirSync, statSync } from 'node:fs';
import { cp, mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engineHeaders } from '#bench/harness/engine-api';
import { toBase64 } from '#protocol/bytes';
import { formatVkey, parseVkey } from '#protocol/note';
import { facadeSchema } from '#protocol/schemas/facade';
import { executeReceiptSchema } from '#protocol/schemas/admission';
import { createSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { adminWith, type AdminLine } from '../fixtures/admin.js';
import { serveLocally } from '../fixtures/local-server.js';
import { publishedLog } from '../fixtures/published-log.js';
import { startProgram } from '../fixtures/program.js';
import { eventually, startStack, type RunningStack } from '../fixtures/stack.js';
import { pinning } from '../fixtures/pins.js';

interface Action {
  intent_id: string;
  action: string;
}

interface PublishedKeys {
  aep: { kid: string }[];
  log: { origin: string; vkey: string; retired: unknown[] };
}

async function keysOf({ publicUrl }: RunningStack): Promise<PublishedKeys> {
  return (await (await fetch(`${publicUrl}/api/public/keys`)).json()) as PublishedKeys;
}

/** The admin command on the embedded database. */
async function adminOf(stack: RunningStack): Promise<AdminLine> {
  const sql = stack.superuser();
  await sql`alter role svc_admin login password 'admin'`;
  const [row] = await sql<[{ port: number }]>`select inet_server_port() as port`;
  return adminWith({ DATABASE_URL: `postgres://svc_admin:admin@127.0.0.1:${row.port}/svc` });
}

interface Attribute {
  key: string;
  value: { stringValue?: string };
}
interface ExportedSpan {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  attributes: Attribute[];
}
/** The fields of an OTLP/JSON request that the test reads. */
interface ExportRequest {
  resourceSpans: {
    resource: { attributes: Attribute[] };
    scopeSpans: { spans: ExportedSpan[] }[];
  }[];
}

const attributeOf = (attributes: Attribute[], name: string) =>
  attributes.find(({ key }) => key === name)?.value.stringValue;

let bodies = '';
const spans: (ExportedSpan & { service: string | undefined })[] = [];
const collector = await serveLocally((req, res) => {
  const chunks: Buffer[] = [];
  req.on('data', (chunk: Buffer) => chunks.push(chunk));
  req.on('end', () => {
    const text = Buffer.concat(chunks).toString();
    bodies += text;
    for (const { resource, scopeSpans } of (JSON.parse(text) as ExportRequest).resourceSpans) {
      const service = attributeOf(resource.attributes, 'service.name');
      for (const scope of scopeSpans)
        spans.push(...scope.spans.map((span) => ({ ...span, service })));
    }
    res.setHeader('content-type', 'application/json').end('{}');
  });
});
const newTrace = () => randomBytes(16).toString('hex');
const caller = randomBytes(8).toString('hex');
const spansOf = (traceId: string) => spans.filter((span) => span.traceId === traceId);
/** Waits until the trace has these spans. */
const untilTraced = (traceId: string, names: readonly string[]) =>
  expect
    .poll(
      () =>
        spansOf(traceId)
          .map(({ name }) => name)
          .sort(),
      { timeout: 60_000 },
    )
    .toEqual(names.toSorted());
const DECIDED = ['queue', 'decide', 'verify', 'publish'];

describe('admissions in a running stack', () => {
  let stack: RunningStack;
  let actions: Action[];
  const receipts = new Map<string, string>();
  const ids: string[] = [];

  beforeAll(async () => {
    const text = await readFile(join(packageRoot, 'examples', 'agent-actions.ndjson'), 'utf8');
    const lines = text.trim().split('\n');
    actions = lines.map((line) => JSON.parse(line) as Action);
    // A strict umask must not hide the snapshot from a public API server of another account.
    const umask = process.umask(0o077);
    stack = await startStack({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    process.umask(umask);
  }, 90_000);
  afterAll(async () => {
    await stack.destroy();
    await collector.close();
  });

  it('answer each allowed action with a receipt, and a denied action with 403 and its receipt', async () => {
    expect(actions.length).toBeGreaterThan(10);
    await Promise.all(
      actions.map(async (action) => {
        const response = await stack.execute(action);
        const text = await response.text();
        receipts.set(action.intent_id, text);
        const body = JSON.parse(text) as { receipt?: unknown; code?: string };
        const denied = action.action === 'DELETE_AUDIT_LOG';
        expect(response.status).toBe(denied ? 403 : 200);
        if (denied) expect(body.code).toBe('policy_denied');
        const receipt = executeReceiptSchema.parse(denied ? body.receipt : body);
        expect(receipt.status).toBe(denied ? 'DENIED' : 'ADMITTED');
        ids.push(receipt.registry_proof_id);
      }),
    );
    expect(new Set(ids).size).toBe(actions.length);
  });

  it('have public verdicts within three seconds', async () => {
    for (const id of ids) {
      const body = await eventually(
        async () => {
          const response = await stack.lookUp(id);
          return response.status === 200 ? facadeSchema.parse(await response.json()) : null;
        },
        3_000,
        `the verdict of ${id}`,
      );
      expect(body).toMatchObject({
        artifact_kind: 'proof',
        identifier: id,
        verification: {
          verification_status: 'VALID',
          can_assert_validity: true,
          frontend_recomputed: false,
        },
      });
    }
  });

  it('are served by a public API server with only the snapshot and one public key', async () => {
    const copy = await mkdtemp(join(tmpdir(), 'svc-mirror-'));
    await cp(join(stack.dataDir, 'public'), copy, { recursive: true });
    const keys = await keysOf(stack);
    const facade = await startProgram('facade', {
      SNAPSHOT_DIR: copy,
      ...pinning(keys.log.vkey),
      PUBLIC_PORT: '0',
    });
    try {
      for (const id of ids) {
        const [one, other] = await Promise.all([
          fetch(`${facade.url}/api/public/verify/proof/${id}`),
          stack.lookUp(id),
        ]);
        expect(one.status).toBe(200);
        expect(await one.text()).toBe(await other.text());
      }
    } finally {
      await facade.stop();
    }
  });

  it('run under umask 077 with secrets that only their owner can read, and a snapshot that all users can read', () => {
    const modeOf = (path: string): string => {
      const stats = statSync(join(stack.dataDir, path));
      return `${stats.isDirectory() ? 'folder' : 'file'} ${(stats.mode & 0o777).toString(8)}`;
    };
    const isPrivate = (name: string): boolean =>
      /\.pem$|^(ready\.json|api-key|postgres-password)$/.test(name);
    const secrets = readdirSync(stack.dataDir).filter(isPrivate);
    expect(secrets).toHaveLength(6);
    expect(new Set(secrets.map(modeOf))).toEqual(new Set(['file 600']));
    const published = readdirSync(join(stack.dataDir, 'public'), {
      recursive: true,
      encoding: 'utf8',
    });
    expect(published).toContain('lookup/snapshot');
    const modes = ['', ...published.filter((path) => !path.startsWith('.'))].map((path) =>
      modeOf(join('public', path)),
    );
    expect(new Set(modes)).toEqual(new Set(['folder 755', 'file 644']));
  });

  it('form one trace each, from the request to the public verdict, if the parent span is sampled', async () => {
    const [traceId, unsampled] = [newTrace(), newTrace()];
    const execute = (intent_id: string, trace: string, flags: string) => {
      const traceparent = `00-${trace}-${caller}-${flags}`;
      return stack.execute({ intent_id, action: 'BOOK_RESERVATION' }, { traceparent });
    };
    expect((await execute('untraced-secret', unsampled, '00')).status).toBe(200);
    const answer = await execute('traced-secret', traceId, '01');
    const receipt = await answer.text();
    const name = 'POST /v1/intents/execute';
    await untilTraced(traceId, [name, ...DECIDED]);
    const found = () => spansOf(traceId);
    const ids = new Set(found().map(({ attributes }) => attributeOf(attributes, 'proof_id')));
    expect(ids.size).toBe(1);
    expect(receipt).toContain([...ids][0]);
    const [request] = found().filter(({ service }) => service === 'svc-engine');
    expect(request).toMatchObject({ name, parentSpanId: caller });
    for (const { name, service, parentSpanId } of found()) {
      if (service !== 'svc-engine') expect([name, parentSpanId]).toEqual([name, request!.spanId]);
    }
    expect(new Set(found().map(({ service }) => service))).toEqual(
      new Set(['svc-engine', 'svc-worker', 'svc-verifier', 'svc-publisher']),
    );
    expect(spans.filter(({ traceId: id }) => id === unsampled)).toEqual([]);
    expect(bodies).not.toMatch(/secret|BOOK_RESERVATION/);
    expect(bodies).not.toContain(stack.apiKey);
  }, 90_000);

  it('share one trace in a batch, with the spans of each item', async () => {
    const traceId = newTrace();
    const { tenantId: tenant_id, apiKey } = stack;
    const schema_version = 'svc.runtime.intent_execute.request/1.0';
    const items = ['first-secret', 'second-secret'].map((intent_id) => {
      return { schema_version, tenant_id, intent_id, action: 'BOOK_RESERVATION' };
    });
    const headers = {
      ...engineHeaders({ apiKey, tenantId: tenant_id }),
      'content-type': 'application/json',
      traceparent: `00-${traceId}-${caller}-01`,
    };
    const body = JSON.stringify(items);
    const answer = await fetch(`${stack.engineUrl}/v1/batches`, { method: 'POST', headers, body });
    const { batch_id } = (await answer.json()) as { batch_id: string };
    await untilTraced(traceId, ['POST /v1/batches', ...DECIDED, ...DECIDED]);
    const [request] = spansOf(traceId).filter(({ service }) => service === 'svc-engine');
    expect(attributeOf(request!.attributes, 'batch_id')).toBe(batch_id);
    const others = spansOf(traceId).filter((span) => span !== request);
    const proofIds = others.map(({ attributes }) => attributeOf(attributes, 'proof_id'));
    expect(new Set(proofIds).size).toBe(2);
    const pairs = others.map(({ name }, at) => `${name} ${proofIds[at]}`);
    expect(new Set(pairs).size).toBe(2 * DECIDED.length);
    expect(new Set(others.map(({ parentSpanId }) => parentSpanId))).toEqual(
      new Set([request!.spanId]),
    );
    expect(bodies).not.toMatch(/secret|BOOK_RESERVATION/);
  }, 90_000);

  const expectValid = async (id: string): Promise<void> => {
    const response = await stack.lookUp(id);
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({ verification: { verification_status: 'VALID' } });
  };

  it('continue after the embedded database, a worker and the engine crash', async () => {
    const [action] = actions;
    const receiptOf = (fields: Action): Promise<string> =>
      eventually(
        async () => {
          const response = await stack.execute(fields).catch(() => null);
          return response?.status === 200 ? response.text() : null;
        },
        30_000,
        'a receipt',
      );
    for (const name of ['postgres', 'worker', 'engine'] as const) {
      const crashed = stack.pid(name);
      stack.kill(name);
      await expect.poll(() => stack.pid(name), { timeout: 30_000 }).not.toBe(crashed);
      expect(await receiptOf(action!)).toBe(receipts.get(action!.intent_id));
      const receipt = await receiptOf({ ...action!, intent_id: `after ${name}` });
      const { registry_proof_id: id } = executeReceiptSchema.parse(JSON.parse(receipt));
      await expect.poll(async () => (await stack.lookUp(id)).status, { timeout: 30_000 }).toBe(200);
    }
  }, 120_000);

  it('stay valid after a restart with new log and verifier keys', async () => {
    const { apiKey } = stack;
    const before = await keysOf(stack);
    expect(before).toMatchObject({ log: { retired: [] } });
    // The worker keeps its key.
    const [log, verifier] = ['LOG', 'VERIFIER'].map((name) => {
      const file = join(stack.dataDir, `new-${name}.pem`);
      return { publicKey: createSigningKey(file).publicKey, env: { [`${name}_KEY_FILE`]: file } };
    });
    const vkey = formatVkey(nativeSha256, before.log.origin, log!.publicKey);
    const activated = await (await adminOf(stack))('log-key', 'activate', vkey, '--actor', 'ada');
    const { leaf_index: at } = activated.json as { leaf_index: number };
    await expect.poll(async () => (await publishedLog(stack)).size).toBeGreaterThan(at);
    expect(await stack.stop()).toBe(0);
    const note = await readFile(join(stack.dataDir, 'public', 'checkpoint'), 'utf8');
    const lastSize = Number(note.split('\n')[1]);
    stack = await startStack({ ...log!.env, ...verifier!.env }, stack.dataDir);
    expect(stack.apiKey).toBe(apiKey);
    for (const id of ids) await expectValid(id);
    const again = await stack.execute(actions[0]!);
    expect(await again.text()).toBe(receipts.get(actions[0]!.intent_id));
    const executed = await stack.execute({ intent_id: 'new-keys', action: 'BOOK_RESERVATION' });
    const { registry_proof_id: id } = executeReceiptSchema.parse(await executed.json());
    await expect.poll(async () => (await stack.lookUp(id)).status).toBe(200);
    await expectValid(id);
    const after = await keysOf(stack);
    expect(after.log.vkey).not.toBe(before.log.vkey);
    const former = before.log.vkey;
    const retire = ['log-key', 'retire', former, '--confirm', former, '--actor', 'ada'];
    const retired = await (await adminOf(stack))(...retire);
    expect(retired.json).toMatchObject({ vkey: former, from_size: lastSize });
    const { name, keyHash } = parseVkey(before.log.vkey, nativeSha256);
    const line = `\n\u2014 ${name} ${toBase64(keyHash).slice(0, 5)}`;
    expect(
      await stack.superuser()`
        select max(tree_size) as size from svc.checkpoint where strpos(note, ${line}) > 0`,
    ).toEqual([{ size: lastSize }]);
    expect(after.aep.map(({ kid }) => kid)).toEqual(before.aep.map(({ kid }) => kid));
    const { proofs } = await publishedLog(stack);
    expect(ids.filter((old) => !proofs.has(old))).toEqual([]);

    const records = await stack.superuser()<{ actor: string; object: string }[]>`
      select distinct actor, object from svc.audit where actor is not null order by object, actor`;
    expect(records.map(({ actor, object }) => `${actor} ${object}`)).toEqual([
      'bootstrap api_key',
      'bootstrap lane',
      'ada log_entry',
      'bootstrap log_entry',
      'bootstrap policy_activation',
      'bootstrap policy_set',
      'bootstrap tenant',
    ]);
  }, 90_000);
});
