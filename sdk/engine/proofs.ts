import { SCHEMA } from '../../protocol/schemas/ids.js';
import {
  type ProofExport,
  type Replay,
  replayBodySchema,
  replaySchema,
  verifyBodySchema,
  type VerifyRequest,
} from '../../protocol/schemas/proof-export.js';
import {
  type ListedProof,
  proofListSchema,
  type ProofView,
  proofViewSchema,
} from '../../protocol/schemas/proof-view.js';
import { verdictSchema, type Verdict } from '../../protocol/schemas/verdict.js';
import { canonicalBody } from '../canonical.js';
import { readDocument, readProofDocument, unexpected, validInput } from '../http/answers.js';
import { withDeadline } from '../http/deadline.js';
import type { EngineOptions } from '../options.js';
import { openEngine, requestEnvelope, requireProofId, type RequestHashEnvelope } from './engine.js';

/**
 * `GET /v1/proofs/{proof_id}`: a proof of the tenant with its record, current verdict and history.
 * Throws `not_found` for a proof of another tenant too.
 */
export async function readProofHttp(
  options: EngineOptions,
  input: { proof_id: string },
): Promise<RequestHashEnvelope<ProofView>> {
  const engine = openEngine(options);
  const proofId = requireProofId(input.proof_id);
  const request = { method: 'GET', path: `/v1/proofs/${proofId}` } as const;
  return requestEnvelope(engine, options, request, (answer) =>
    readProofDocument(answer, proofViewSchema, proofId),
  );
}

/** A proof id, an AEP with its envelope, or an unchanged export. */
export type VerifyInput =
  | ProofExport
  | (Omit<VerifyRequest, 'schema_version'> & Partial<Pick<VerifyRequest, 'schema_version'>>);

/**
 * `POST /v1/proofs/verify`: the verification system's verdict on a proof, check by check. A verdict
 * without validity is a response, not an error: read `response.can_assert_validity`, and the reason
 * in `response.cause`.
 */
export async function verifyProofHttp(
  options: EngineOptions,
  input: VerifyInput,
): Promise<RequestHashEnvelope<Verdict>> {
  const engine = openEngine(options);
  const versioned = { schema_version: SCHEMA.verifyRequest, ...input };
  const document = validInput(verifyBodySchema, versioned);
  const body = canonicalBody(document);
  const proofId = document.proof_id ?? document.aep?.proof_id;
  const request = { method: 'POST', path: '/v1/proofs/verify', body } as const;
  return requestEnvelope(engine, options, request, (answer) =>
    readProofDocument(answer, verdictSchema, proofId),
  );
}

/** A proof by id or as an export. `policy_digest` also evaluates another policy set. */
export type ReplayInput = ProofExport | { proof_id: string; policy_digest?: string };

/**
 * `POST /v1/proofs/replay`: the decision, made again from its pinned inputs. Only `response.result`
 * `match` means the same result; `differences` has the places of others.
 */
export async function replayProofHttp(
  options: EngineOptions,
  input: ReplayInput,
): Promise<RequestHashEnvelope<Replay>> {
  const engine = openEngine(options);
  const versioned = { schema_version: SCHEMA.replayRequest, ...input };
  const document = validInput(replayBodySchema, versioned);
  const body = canonicalBody(document);
  const request = { method: 'POST', path: '/v1/proofs/replay', body } as const;
  return requestEnvelope(engine, options, request, (answer) =>
    readProofDocument(answer, replaySchema, document.proof_id),
  );
}

/** Optional conditions, joined by "and". */
export interface ProofFilter {
  action?: string;
  status?: 'VALID' | 'REVOKED' | 'EXPIRED' | 'BACKEND_LOOKUP_REQUIRED';
  effect?: 'ADMIT' | 'DENY';
  /** The request type. */
  lane?: 'execute' | 'agent';
  intent_id?: string;
  /** Accepted at this time or later; RFC 3339 UTC with milliseconds. */
  from?: string;
  /** Accepted before this time. */
  to?: string;
}

/** One page of the list of proofs. */
export interface ProofPage {
  proofs: ListedProof[];
  /** The `cursor` of the next page; null on the last. */
  next_cursor: string | null;
}

const PAGE_SIZE = 200;

/**
 * `GET /v1/proofs`: one page of the tenant's proofs, the newest first. A page before the last may be
 * short or empty: only `next_cursor` marks the end.
 */
export async function listProofPageHttp(
  options: EngineOptions,
  input: ProofFilter & { cursor?: string; limit?: number } = {},
): Promise<ProofPage> {
  const engine = openEngine(options);
  const given = Object.entries(input).filter(([, value]) => value !== undefined);
  const query = Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
  return withDeadline(options, async (deadline) => {
    const answer = await engine.read({ method: 'GET', path: '/v1/proofs', query }, deadline);
    const { proofs, next_cursor } = readDocument(answer, proofListSchema);
    if (next_cursor !== null && next_cursor === input.cursor) {
      throw unexpected(answer, 'the next page of the list is the same page');
    }
    return { proofs, next_cursor };
  });
}

/**
 * All proofs of the tenant, the newest first. Requests each page on demand, with the timeout of the
 * options per page. Omits proofs that are appended meanwhile.
 */
export async function* listProofsHttp(
  options: EngineOptions,
  filter: ProofFilter = {},
): AsyncGenerator<ListedProof, void, undefined> {
  let cursor: string | null = null;
  do {
    const page: ProofPage = await listProofPageHttp(options, {
      ...filter,
      limit: PAGE_SIZE,
      ...(cursor !== null && { cursor }),
    });
    yield* page.proofs;
    cursor = page.next_cursor;
  } while (cursor !== null);
}
