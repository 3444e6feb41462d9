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

const execute = (intentId: string, traceparent: string) =>
  fetch(`${stack.engineUrl}/v1/intents/execute`, {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json',
      'X-Svc-Api-Key': stack.apiKey,
      'X-Svc-Tenant-Id': stack.tenantId,
      traceparent,
    },
    body: JSON.stringify({
      schema_version: 'svc.runtime.intent_execute.request/1.0',
      intent_id: intentId,
      tenant_id: stack.tenantId,
      action: 'BOOK_RESERVATION',
    }),
  });

it('an admission is one trace from the request to the public verdict, sampled by its parent', async () => {
  const [traceId, caller, unsampled] = [16, 8, 16].map((n) => randomBytes(n).toString('hex'));
  expect((await execute('untraced-secret', `00-${unsampled}-${caller}-00`)).status).toBe(200);
  const answer = await execute('traced-secret', `00-${traceId}-${caller}-01`);
  const receipt = await answer.text();
  const found = () => spans.filter((span) => span.traceId === traceId);
  const names = ['POST /v1/intents/execute', 'decide', 'publish', 'queue', 'verify'];
  await expect
    .poll(
      () =>
        found()
          .map(({ name }) => name)
          .sort(),
      { timeout: 60_000 },
    )
    .toEqual(names);
  const ids = new Set(found().map(({ attributes }) => attributeOf(attributes, 'proof_id')));
  expect(ids.size).toBe(1);
  expect(receipt).toContain([...ids][0]);
  const [request] = found().filter(({ service }) => service === 'svc-engine');
  expect(request).toMatchObject({ name: names[0], parentSpanId: caller });
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
