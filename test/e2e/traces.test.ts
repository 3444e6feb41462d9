import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type RunningStack, startStack } from '../fixtures/stack.js';

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
const collector = createServer((req, res) => {
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
let stack: RunningStack;

beforeAll(async () => {
  await new Promise<void>((resolve) => collector.listen(0, '127.0.0.1', resolve));
  const { port } = collector.address() as { port: number };
  stack = await startStack({ OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` });
}, 120_000);
afterAll(async () => {
  await stack.stop();
  collector.close();
}, 60_000);

const intent = (id: string) => ({
  schema_version: 'svc.runtime.intent_execute.request/1.0',
  intent_id: id,
  tenant_id: stack.tenantId,
  action: 'BOOK_RESERVATION',
});

const post = (path: string, traceparent: string, body: unknown) =>
  fetch(stack.engineUrl + path, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      'X-Svc-Api-Key': stack.apiKey,
      'X-Svc-Tenant-Id': stack.tenantId,
      traceparent,
    },
    body: JSON.stringify(body),
  });

const execute = (intentId: string, traceparent: string) =>
  post('/v1/intents/execute', traceparent, intent(intentId));

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

it('an admission is one trace from the request to the public verdict, sampled by its parent', async () => {
  const [traceId, unsampled] = [newTrace(), newTrace()];
  expect((await execute('untraced-secret', `00-${unsampled}-${caller}-00`)).status).toBe(200);
  const answer = await execute('traced-secret', `00-${traceId}-${caller}-01`);
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

it('a batch is one trace too, with the spans of each item', async () => {
  const traceId = newTrace();
  const items = [intent('first-secret'), intent('second-secret')];
  const answer = await post('/v1/batches', `00-${traceId}-${caller}-01`, items);
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
