import { buildReceipt, type Receipt } from '../protocol/aep.js';
import { utf8 } from '../protocol/bytes.js';
import { hashHex, nobleSha256 } from '../protocol/hash.js';
import { parseStrict } from '../protocol/json.js';
import {
  type AgentEnvelope,
  agentEnvelopeSchema,
  type ExecuteRequest,
  executeRequestSchema,
} from '../protocol/schemas/admission.js';
import { bodyFaults, problemOf } from '../protocol/schemas/body-faults.js';
import { SCHEMA } from '../protocol/schemas/ids.js';
import { safeParse } from '../protocol/schemas/messages.js';
import type { Effect } from '../protocol/status.js';
import { formatTime } from '../protocol/time.js';
import { newUuid } from './engine/engine.js';
import type { EngineOptions } from './options.js';

/** A request that the fake engine received. An `outcome` and a `close` have no action. */
export type FakeRequest = (ExecuteRequest | AgentEnvelope) & { action?: string };

/** Effect of a request, and optionally the id of the rule that decides. */
export type FakeDecision = Effect | { effect: Effect; reason: string; sentence?: string };

/** An engine in the memory of a test. */
export interface FakeEngine {
  /** Options for the functions, the client and the adapters. */
  options: EngineOptions;
  /** The requests, each distinct body once, in the order of arrival. */
  requests: FakeRequest[];
  /** Whether every request gets 503. */
  unavailable: boolean;
}

/**
 * A fake engine for tests of programs that use this package: it answers single admissions with
 * receipts whose hashes are correct, without a network. The same body gets the same receipt. A fake engine signs
 * nothing, keeps no log and supports no other operation, so its receipts prove nothing.
 *
 * @param decide the effect of a request; default `ADMIT`
 */
export function fakeEngine(
  decide: (request: FakeRequest) => FakeDecision = () => 'ADMIT',
): FakeEngine {
  const answers = new Map<string, () => Response>();
  const engine: FakeEngine = {
    options: {
      engineUrl: 'http://fake.invalid',
      apiKey: 'fake-key',
      tenantId: 'fake-tenant',
      receiptEvidence: false,
      fetch: (input, init) => {
        const url = new URL(input instanceof Request ? input.url : input);
        return Promise.resolve(answer(url.pathname, (init ?? {}) as { body?: Uint8Array }));
      },
    },
    requests: [],
    unavailable: false,
  };
  return engine;

  function answer(path: string, { body }: { body?: Uint8Array }): Response {
    const endpoint = ENDPOINTS[path];
    if (engine.unavailable)
      return problem(503, 'database_unavailable', 'The fake engine is set to unavailable.');
    if (endpoint === undefined || body === undefined) {
      return problem(404, 'route_not_found', `The fake engine does not support ${path}.`);
    }
    const requestHash = hashHex(nobleSha256, body);
    const known = answers.get(requestHash);
    if (known !== undefined) return known();
    const value = parseStrict(body);
    const { schema, version } = endpoint;
    const read = safeParse<typeof schema>(schema, value);
    if (!read.success) {
      const { code, detail, errors } = problemOf(bodyFaults(read.error, value, version));
      return problem(400, code, detail, { errors });
    }
    engine.requests.push(read.data);
    const decided = decide(read.data);
    const {
      effect,
      reason = 'fake-rule',
      sentence = 'The test chose this decision.',
    } = typeof decided === 'string' ? { effect: decided } : decided;
    const receipt = buildReceipt(nobleSha256, {
      lane: 'kind' in read.data ? 'agent' : 'execute',
      proof_id: newUuid(),
      request_hash: requestHash,
      effect,
    });
    const decision = () => decisionOf(receipt, { reason, sentence });
    answers.set(requestHash, decision);
    return decision();
  }
}

const ENDPOINTS: Record<
  string,
  { schema: typeof executeRequestSchema | typeof agentEnvelopeSchema; version: string }
> = {
  '/v1/intents/execute': { schema: executeRequestSchema, version: SCHEMA.executeRequest },
  '/v1/agent/admissions': { schema: agentEnvelopeSchema, version: SCHEMA.agentEnvelope },
};

const HOUR_MS = 3_600_000;

function decisionOf(
  receipt: Receipt,
  { reason, sentence }: { reason: string; sentence: string },
): Response {
  const [reasons, sentences] = [[reason], { [reason]: sentence }];
  if (receipt.status === 'ADMITTED') return json(200, 'application/json', receipt);
  if (receipt.status === 'DENIED') {
    return problem(403, 'policy_denied', sentence, { receipt, reasons, sentences });
  }
  return json(202, 'application/json', {
    schema_version: SCHEMA.admissionStatus,
    proof_id: receipt.registry_proof_id,
    state: 'approval_required',
    receipt,
    reasons,
    sentences,
    expires_at: formatTime(Date.now() + HOUR_MS),
  });
}

function problem(status: number, code: string, detail: string, more: object = {}): Response {
  const type = `urn:svc:problem:${code}`;
  const document = { type, title: code, status, detail, code, request_id: 'fake', ...more };
  return json(status, 'application/problem+json', document);
}

function json(status: number, type: string, document: object): Response {
  const headers = { 'content-type': type, 'x-request-id': 'fake' };
  return new Response(utf8(JSON.stringify(document)) as BodyInit, { status, headers });
}
