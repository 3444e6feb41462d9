import { facadeSchema, type Facade } from '../../protocol/schemas/facade.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import {
  LOOKUP_FIELDS,
  lookupRequestSchema,
  notFoundSchema,
  type LookupField,
  type NotFound,
} from '../../protocol/schemas/lookup.js';
import type { VerificationStatus } from '../../protocol/status.js';
import { canonicalBody } from '../engine/envelope.js';
import { SdkError } from '../errors.js';
import type { Answer } from '../http/attempt.js';
import { withDeadline, type Deadline } from '../http/deadline.js';
import { checkedInput, readDocument, unexpected } from '../http/documents.js';
import { refusal } from '../http/refusal.js';
import type { PublicOptions } from '../options.js';
import { openRegistry, snapshotOf, type PublicAnswer, type PublicRegistry } from './registry.js';

/** A verdict as the verification system gave it: nothing of it was computed here. */
export interface Lookup extends PublicAnswer<Facade | NotFound> {
  verification_status: VerificationStatus;
  /** True for PASS, VALID, VERIFIED and TRUST_ESTABLISHED, and for nothing else. */
  can_assert_validity: boolean;
}

/** What can be looked up, over the whole history; `identifier` is any of them, of late only. */
export const LOOKUP_KINDS = [
  'proof',
  'certificate',
  'passport',
  'trust',
  'trust-asset',
  'share',
  'package',
  'identifier',
] as const;
/** One of {@link LOOKUP_KINDS}. */
export type LookupKind = (typeof LOOKUP_KINDS)[number];

/** What to look up, and as what. */
export interface LookupQuery {
  kind: LookupKind;
  identifier: string;
}

/**
 * `GET /api/public/verify/…`: the public verdict on an artifact. An unknown proof is an answer too,
 * with the not-found record and NOT_FOUND; what else does not resolve is BACKEND_LOOKUP_REQUIRED.
 * While the registry can say nothing, `unavailable` is thrown: that is never a NOT_FOUND.
 */
export async function lookupHttp(options: PublicOptions, input: LookupQuery): Promise<Lookup> {
  const registry = openRegistry(options);
  return withDeadline(options, (deadline) => lookUp(registry, input, deadline));
}

/** The same within the time of a larger call. */
export async function lookUp(
  registry: PublicRegistry,
  { kind, identifier }: LookupQuery,
  deadline: Deadline,
): Promise<Lookup> {
  if (!LOOKUP_KINDS.includes(kind)) {
    throw new SdkError('invalid_input', `no such kind: ${LOOKUP_KINDS.join(', ')}`, {
      pointer: '/kind',
    });
  }
  const request =
    kind === 'identifier'
      ? { path: '/api/public/verify', query: { identifier } }
      : { path: `/api/public/verify/${kind}/${segment(identifier)}` };
  return lookupOf(await registry.ask(request, deadline), identifier);
}

/** One identifier, under the name of what it is. */
export type LookupInput = { [F in LookupField]: Record<F, string> }[LookupField];

/** `POST /api/public/verify`: the same by a body, which no log of addresses has. Recent proofs only. */
export async function lookupByBodyHttp(
  options: PublicOptions,
  input: LookupInput,
): Promise<Lookup> {
  const registry = openRegistry(options);
  const document = checkedInput(lookupRequestSchema, {
    schema_version: SCHEMA.lookupRequest,
    ...input,
  });
  const body = canonicalBody(document);
  const field = LOOKUP_FIELDS.find((name) => document[name] !== undefined)!;
  return withDeadline(options, async (deadline) =>
    lookupOf(await registry.ask({ path: '/api/public/verify', body }, deadline), document[field]!),
  );
}

/** `.` and `..` would be taken for steps of the path, an empty one for none. */
export function segment(identifier: string): string {
  if (/^\.{0,2}$/.test(identifier)) {
    throw new SdkError('invalid_input', 'there is nothing to look up', { pointer: '/identifier' });
  }
  try {
    return encodeURIComponent(identifier);
  } catch (cause) {
    throw new SdkError('invalid_input', 'the identifier has half of a surrogate pair', {
      pointer: '/identifier',
      cause,
    });
  }
}

function lookupOf(answer: Answer, identifier: string): Lookup {
  switch (answer.status) {
    case 200: {
      const record = readDocument(answer, facadeSchema);
      if (record.identifier !== identifier) {
        throw unexpected(answer, 'the answer is about another identifier');
      }
      const { verification_status, can_assert_validity } = record.verification;
      return { record, verification_status, can_assert_validity, snapshot: snapshotOf(answer) };
    }
    case 404: {
      // A missing route is a problem document, and no word on a proof.
      if (answer.headers.get('content-type')?.startsWith('application/problem+json') === true) {
        throw refusal(answer);
      }
      const record = readDocument(answer, notFoundSchema);
      const { verification_status, can_assert_validity } = record;
      return { record, verification_status, can_assert_validity, snapshot: snapshotOf(answer) };
    }
    default:
      throw refusal(answer);
  }
}
