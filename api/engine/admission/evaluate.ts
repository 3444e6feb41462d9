import * as z from 'zod';
import type { DeclaredFacts } from '#policy/cedar-context';
import { actionOf } from '#protocol/actions';
import { hashHex } from '#protocol/hash';
import { canonicalBytes, pointerStep, type JsonValue } from '#protocol/json';
import { factsSchema } from '#protocol/schemas/facts';
import { SCHEMA } from '#protocol/schemas/ids';
import { effectSchema, proofIdSchema, textSchema, timeSchema } from '#protocol/schemas/primitives';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { parseDocument } from '../http/request.js';
import { at, Problem } from '../http/problem.js';
import { newUuidHex } from '#sql/db/columns';
import { json, specOf, WITH_BODY } from '../operation.js';
import { admissionOperation, AGENT, POST_PROBLEMS, type AdmissionApi } from './admit.js';
import { sendDecision } from './outcome.js';

const properties = z.record(z.string(), z.unknown()).exactOptional();
const entitySchema = z.looseObject({ type: textSchema, id: textSchema, properties });

/** The Access Evaluation request of AuthZEN (OpenID Authorization API 1.0), which may have unknown members. */
const evaluationSchema = z.looseObject({
  subject: entitySchema.meta({ description: 'The acting party: its `id` is the agent id.' }),
  action: z.looseObject({
    name: textSchema.meta({
      description: 'Policies name the action in upper case: `can_read` is `CAN_READ`.',
    }),
    properties,
  }),
  resource: entitySchema,
  context: z
    .looseObject({
      facts: factsSchema
        .meta({
          description: 'Facts as in an agent envelope; the policy set must declare each of them.',
        })
        .exactOptional(),
    })
    .exactOptional(),
});
type Evaluation = z.infer<typeof evaluationSchema>;

const decisionSchema = z.strictObject({
  decision: z.boolean().meta({ description: 'True only for an admitted action.' }),
  context: z.strictObject({
    proof_id: proofIdSchema,
    effect: effectSchema,
    reasons: z.array(z.string()).exactOptional(),
    sentences: z.record(z.string(), z.string()).exactOptional(),
    expires_at: timeSchema
      .meta({
        description:
          'When the required approval expires: an approval at this time or later has no effect.',
      })
      .exactOptional(),
  }),
});

/** A fact that the request states outside of `context.facts`, and the pointer to its value. */
interface Derived {
  value: unknown;
  pointer: string;
}

/** The declared facts among the members and properties of the request, such as `resource_id` and `subject_role`. */
function derivedFacts(
  { subject, action, resource, context: { facts: _facts, ...context } = {} }: Evaluation,
  declared: Pick<DeclaredFacts, 'has'> | null,
): Map<string, Derived> {
  const members = [
    ['subject', '/subject/properties', subject.properties],
    ['action', '/action/properties', action.properties],
    ['resource', '/resource/properties', resource.properties],
    ['context', '/context', context],
    // `id`, `type` and `name` come after the properties, so that no property of that name replaces these members.
    ['subject', '/subject', { type: subject.type, id: subject.id }],
    ['action', '/action', { name: action.name }],
    ['resource', '/resource', { type: resource.type, id: resource.id }],
  ] as const;
  return new Map(
    members.flatMap(([entity, place, values = {}]) =>
      Object.entries(values).flatMap(([name, value]): [string, Derived][] => {
        const fact = `${entity}_${name}`;
        if (declared?.has(fact) !== true) return [];
        return [[fact, { value, pointer: place + pointerStep(name) }]];
      }),
    ),
  );
}

/** The action as an agent envelope, whose arguments are the whole request. */
export function envelopeOf(
  sent: JsonValue,
  declared: Pick<DeclaredFacts, 'has'> | null,
  { now, tenantId }: { now: number; tenantId: string },
) {
  const evaluation = parseDocument(evaluationSchema, sent);
  const { action, context, subject } = evaluation;
  const named = actionOf(action.name);
  if (named === null) {
    throw new Problem(
      'invalid_field',
      'The name of the action has no letter A-Z and no digit, so no policy can name the action.',
      at('/action/name', 'must have a letter A-Z or a digit'),
    );
  }
  const derived = derivedFacts(evaluation, declared);
  const stated = context?.facts ?? {};
  const twice = [...derived.keys()].find((name) => Object.hasOwn(stated, name));
  if (twice !== undefined) {
    const { pointer } = derived.get(twice)!;
    throw new Problem(
      'invalid_field',
      'The request states a fact twice. Remove the fact listed in errors from context.facts.',
      at(`/context/facts/${twice}`, `states the same fact as ${pointer}`),
    );
  }
  const values = [...derived].map(([name, { value }]) => [name, value as JsonValue] as const);
  const facts = { ...stated, ...Object.fromEntries(values) };
  const value = {
    schema_version: SCHEMA.agentEnvelope,
    kind: 'admission',
    tenant_id: tenantId,
    agent: { id: subject.id, framework: 'authzen' },
    requested_at: formatTime(now),
    nonce: newUuidHex(),
    action: named,
    tool: action.name,
    arguments_hash: hashHex(nativeSha256, canonicalBytes(sent)),
    ...(Object.keys(facts).length > 0 && { facts }),
  };
  return { value, pointerOf: (pointer: string) => pointerInto(derived, pointer) };
}

const AUTHZEN: AdmissionApi = {
  async translate({ ctx, readDeclaredFacts }, { tenantId }, sent) {
    const active = await readDeclaredFacts();
    const now = ctx.clock.now();
    const translated = envelopeOf(sent, active?.facts ?? null, { now, tenantId });
    if (active === null) throw new Problem('policy_missing');
    return { ...translated, policyDigest: active.digest };
  },

  async respond(ctx, res, { id, tenantNo }, outcome) {
    if (outcome !== null) return sendDecision(ctx, res, tenantNo, outcome);
    const headers = { Location: `/v1/admissions/${id}` };
    throw new Problem('decision_pending', { headers });
  },
};

const POINTERS: Record<string, string> = {
  '/agent/id': '/subject/id',
  '/action': '/action/name',
  '/tool': '/action/name',
};

function pointerInto(derived: ReadonlyMap<string, Derived>, pointer: string): string {
  const [, fact, rest = ''] = /^\/facts\/(\w+)(.*)$/.exec(pointer) ?? [];
  const source = fact === undefined ? undefined : derived.get(fact);
  if (source !== undefined) return source.pointer + rest;
  return pointer.startsWith('/facts') ? `/context${pointer}` : (POINTERS[pointer] ?? pointer);
}

export const evaluationOperation = admissionOperation(
  specOf({
    method: 'post',
    tag: 'Admission',
    scopes: ['admit'],
    acceptsBearer: true,
    headers: {
      'X-Svc-Idempotency-Key':
        'Optional. The engine rejects every further evaluation with the same key.',
    },
    id: 'evaluateAccess',
    path: '/access/v1/evaluation',
    summary: 'Evaluate access (AuthZEN)',
    description:
      'The Access Evaluation API of the OpenID Authorization API 1.0 (AuthZEN). Each request is an agent admission: its decision is signed and in the log, and `context.proof_id` names the proof. `decision` is `true` only for an admitted action; an evaluation without a decision is an error. The subject is the agent, and `can_read` is the action `CAN_READ` and the tool `can_read`. Members and properties are facts if the active policy set declares them: `resource_type`, `resource_id`, `subject_type`, `subject_<property>`, `context_<member>` and so on. The proof commits to the hash of the whole request as `arguments_hash`. A repeated request is a new evaluation, with its own proof.',
    body: {
      schema: evaluationSchema,
      examples: {
        evaluation: {
          subject: { type: 'user', id: 'alice@example.com' },
          resource: { type: 'account', id: '123' },
          action: { name: 'can_read', properties: { method: 'GET' } },
          context: { time: '1985-10-26T01:22-07:00' },
        },
      },
      problems: WITH_BODY.filter(
        (code) => code !== 'unsupported_schema_version' && code !== 'unknown_field',
      ),
    },
    responses: { 200: json('Decided: signed and in the log.', decisionSchema) },
    problems: [
      ...POST_PROBLEMS.filter(
        (code) => code !== 'policy_denied' && code !== 'tenant_body_mismatch',
      ),
      'invalid_fact',
      'decision_pending',
    ],
  }),
  AGENT,
  AUTHZEN,
);
