import type * as z from 'zod';
import { hashHex, nobleSha256 } from '../../protocol/hash.js';
import { withDeadline } from '../http/deadline.js';
import type { EngineOptions } from '../options.js';
import { openEngine } from './engine.js';
import { canonicalBody } from './envelope.js';
import { settle } from './follow.js';
import type { Admitted, Receipt } from './receipt.js';

/** Where the admission lanes differ. */
export interface AdmissionLane<R extends Receipt> {
  path: '/v1/intents/execute' | '/v1/agent/admissions';
  receipt: z.ZodType<R>;
}

/** Sends a body over its lane, under the hash of its canonical form, and follows it to its receipt. */
export async function submit<R extends Receipt>(
  options: EngineOptions,
  { path, receipt: schema }: AdmissionLane<R>,
  bodyFor: (tenantId: string) => object,
): Promise<Admitted<R>> {
  const engine = openEngine(options);
  const body = canonicalBody(bodyFor(engine.tenantId));
  const requestHash = hashHex(nobleSha256, body);
  return withDeadline(options, async (deadline) => {
    const request = { method: 'POST', path, body, idempotencyKey: requestHash } as const;
    const answer = await engine.ask(request, deadline);
    return settle(engine, answer, { schema, requestHash }, deadline);
  });
}
