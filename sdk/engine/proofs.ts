import * as z from 'zod';
import { fromUtf8, fromUtf8Lossy } from '../../protocol/bytes.js';
import { REQUEST_HASH } from '../../protocol/commitments.js';
import { nobleSha256 } from '../../protocol/hash.js';
import { readSigned } from '../../protocol/offline/read.js';
import { aepSchema, type Aep } from '../../protocol/schemas/aep.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import {
  type ProofExport,
  type Replay,
  replayBodySchema,
  replaySchema,
  verifyBodySchema,
  type VerifyRequest,
  type InclusionResponse,
  inclusionResponseSchema,
  proofExportSchema,
} from '../../protocol/schemas/proof-export.js';
import {
  type ListedProof,
  type ProofList,
  proofListSchema,
  type ProofView,
  proofViewSchema,
} from '../../protocol/schemas/proof-view.js';
import { runIdSchema, textSchema } from '../../protocol/schemas/primitives.js';
import {
  type RunPackage,
  runPackageSchema,
  type RunStateDocument,
  runStateSchema,
} from '../../protocol/schemas/run.js';
import type { Effect } from '../../protocol/status.js';
import { verdictSchema, type Verdict } from '../../protocol/schemas/verdict.js';
import { parseTlogProof } from '../../protocol/checkpoint.js';
import { canonicalBody } from '../canonical.js';
import { SdkError } from '../errors.js';
import { readAbout, readDocument, unexpected, validInput, requireType } from '../http/answers.js';
import type { Answer } from '../http/attempt.js';
import { type EngineOptions, invalidInput } from '../options.js';
import { openEngine, requestEnvelope, requireProofId, type RequestHashEnvelope } from './engine.js';
import { itemsOf, type PageInput, readPage } from './pages.js';

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
  return requestEnvelope(engine, request, (answer) =>
    readAbout(answer, proofViewSchema, 'proof', { proof_id: proofId }),
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
  const proof_id = document.proof_id ?? document.aep?.proof_id;
  const request = { method: 'POST', path: '/v1/proofs/verify', body } as const;
  return requestEnvelope(engine, request, (answer) =>
    readAbout(answer, verdictSchema, 'proof', { proof_id }),
  );
}

/** A proof by id or as an export; `policy_digest` names a second policy set to evaluate. */
export type ReplayInput = ProofExport | { proof_id: string; policy_digest?: string };

/**
 * `POST /v1/proofs/replay`: makes the decision again from its pinned inputs. Only the
 * `response.result` `match` means an equal result; `differences` lists the members that differ.
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
  const policyDigest = 'policy_digest' in document ? document.policy_digest : undefined;
  return requestEnvelope(engine, request, (answer) => {
    const replay = readAbout(answer, replaySchema, 'proof', { proof_id: document.proof_id });
    if (replay.counterfactual?.policy_digest === policyDigest) return replay;
    throw unexpected(answer, 'the response is not about the requested policy set');
  });
}

/** Optional conditions, joined by "and". */
export interface ProofFilter {
  action?: string;
  status?: 'VALID' | 'REVOKED' | 'EXPIRED' | 'BACKEND_LOOKUP_REQUIRED';
  effect?: Effect;
  /** The request type. */
  lane?: 'execute' | 'agent';
  intent_id?: string;
  /** The agent id. */
  agent?: string;
  tool?: string;
  /** The id of a run of `agent`. */
  run?: string;
  /** The proof id of the parent, such as the admission whose outcomes to list. */
  parent?: string;
  batch?: string;
  /** Whether the API key was restricted to the agent. */
  bound?: boolean;
  /** Accepted at this time or later; RFC 3339 UTC with milliseconds. */
  from?: string;
  /** Accepted before this time. */
  to?: string;
}

/** One page of the list of proofs; `next_cursor` is null on the last page. */
export type ProofPage = Omit<ProofList, 'schema_version'>;

/**
 * `GET /v1/proofs`: one page of the tenant's proofs, the newest first. A page before the last may be
 * short or empty: only `next_cursor` marks the end.
 */
export const listProofPageHttp = (
  options: EngineOptions,
  input: ProofFilter & PageInput = {},
): Promise<ProofPage> => readPage(options, '/v1/proofs', proofListSchema, input);

/**
 * All proofs of the tenant, the newest first. Requests each page on demand, with the timeout of the
 * options per page. Omits proofs that are appended meanwhile.
 */
export function listProofsHttp(
  options: EngineOptions,
  filter: ProofFilter = {},
): AsyncGenerator<ListedProof, void, undefined> {
  return itemsOf(options, '/v1/proofs', proofListSchema, (page) => page.proofs, filter);
}

type Formats<All> = {
  [F in keyof All]: { accept: string; read: (answer: Answer, proofId: string) => All[F] };
};

const jsonOf = <T extends { proof_id: string }>(schema: z.ZodType<T>) => ({
  accept: 'application/json',
  read: (answer: Answer, proof_id: string) => readAbout(answer, schema, 'proof', { proof_id }),
});

/** `json`: all inputs of offline verification; `aep-json`: only the signed AEP. */
export interface ExportFormats {
  json: ProofExport;
  'aep-json': Aep;
  /** The bytes of a PDF, with the JSON export attached. */
  pdf: Uint8Array;
}
/** One of the keys of {@link ExportFormats}. */
export type ExportFormat = keyof ExportFormats;

const EXPORT_FORMATS: Formats<ExportFormats> = {
  json: jsonOf(proofExportSchema),
  'aep-json': jsonOf(aepSchema),
  pdf: {
    accept: 'application/pdf',
    read: (answer) => {
      if (fromUtf8Lossy(answer.bytes.subarray(0, 5)) === '%PDF-') return answer.bytes;
      throw unexpected(answer, 'the response is not a PDF');
    },
  },
};

/**
 * `GET /v1/proofs/{proof_id}/export`: a proof to keep, by default as `json`. Throws `not_ready` until the proof is
 * verified and a signed checkpoint covers it. The public verdict appears only after that: wait for the verdict first.
 * `canonicalJson` of a JSON response is the file, byte for byte.
 *
 * @param input `disclose`: the names of the values to disclose (facts, `budget.<counter>`, `arguments_hash`,
 *   `result_hash`, `request_hash`); by default only the hash of the request
 */
export async function exportProofHttp<F extends ExportFormat = 'json'>(
  options: EngineOptions,
  input: { proof_id: string; format?: F; disclose?: readonly string[] },
): Promise<RequestHashEnvelope<ExportFormats[F]>> {
  const { disclose } = input;
  const exported = await readInFormat(options, EXPORT_FORMATS, input, 'export', {
    format: input.format ?? 'json',
    ...(disclose !== undefined && { disclose: disclose.join(',') }),
  });
  requireWithheld(exported.response, disclose ?? [REQUEST_HASH]);
  return exported;
}

/** Rejects an export that discloses a value that was not requested: the caller may pass the file on unread. */
function requireWithheld(
  response: ExportFormats[ExportFormat],
  disclosed: readonly string[],
): void {
  if (!('disclosures' in response)) return;
  const other = response.disclosures.find(
    ([, name]) => !disclosed.some((one) => name === one || name === `fact.${one}`),
  );
  if (other === undefined) return;
  throw new SdkError(
    'unexpected_response',
    `the export discloses ${other[1]}, which is not requested`,
  );
}

/** `json`: may have the `state` `pending_checkpoint`; `tlog-proof`: a C2SP `.tlog-proof`. */
export interface InclusionFormats {
  json: InclusionResponse;
  'tlog-proof': string;
}
/** One of the keys of {@link InclusionFormats}. */
export type InclusionFormat = keyof InclusionFormats;

const INCLUSION_FORMATS: Formats<InclusionFormats> = {
  json: jsonOf(inclusionResponseSchema),
  'tlog-proof': {
    accept: 'text/plain',
    read: (answer) => {
      try {
        const text = fromUtf8(answer.bytes);
        parseTlogProof(text);
        return text;
      } catch (cause) {
        throw unexpected(answer, 'the response is not a tlog-proof', cause);
      }
    },
  },
};

/**
 * `GET /v1/proofs/{proof_id}/inclusion`: the position of a proof in the log, and the signed checkpoint
 * over it. This call verifies neither the position nor the checkpoint: pass a `tlog-proof` to
 * `verifyTlogProof`. A `tlog-proof` is `not_ready` before a checkpoint covers the proof.
 */
export async function getProofInclusionHttp<F extends InclusionFormat = 'json'>(
  options: EngineOptions,
  input: { proof_id: string; format?: F },
): Promise<RequestHashEnvelope<InclusionFormats[F]>> {
  // Only the Accept header selects the format of an inclusion.
  return readInFormat(options, INCLUSION_FORMATS, input, 'inclusion');
}

async function readInFormat<All, F extends keyof All & string>(
  options: EngineOptions,
  formats: Formats<All>,
  { proof_id, format = 'json' as F }: { proof_id: string; format?: F },
  resource: 'export' | 'inclusion',
  query: Record<string, string> = {},
): Promise<RequestHashEnvelope<All[F]>> {
  const engine = openEngine(options);
  const proofId = requireProofId(proof_id);
  if (!Object.hasOwn(formats, format)) {
    const message = `the format must be one of ${Object.keys(formats).join(', ')}`;
    throw invalidInput('/format', message);
  }
  const { accept, read } = formats[format];
  const path = `/v1/proofs/${proofId}/${resource}`;
  return requestEnvelope(engine, { method: 'GET', path, query, accept }, (answer) => {
    requireType(answer, accept);
    return read(answer, proofId);
  });
}

/** A run belongs to one agent id of the tenant. */
export interface RunInput {
  run: string;
  agent: string;
}

/** `GET /v1/runs/{run}`: the requests of a run, and whether it is closed. */
export function readRunHttp(
  options: EngineOptions,
  input: RunInput,
): Promise<RequestHashEnvelope<RunStateDocument>> {
  return readOfRun(options, input, '', (answer, requested) =>
    readAbout(answer, runStateSchema, 'run', requested),
  );
}

/**
 * `GET /v1/runs/{run}/package`: every proof of a closed run, for `verifyRun`. Throws `not_ready` before
 * the close is decided, and before a checkpoint covers the close. `canonicalJson` of the response is the
 * file.
 */
export function exportRunHttp(
  options: EngineOptions,
  input: RunInput,
): Promise<RequestHashEnvelope<RunPackage>> {
  return readOfRun(options, input, '/package', (answer, { agent, run }) => {
    const document = readDocument(answer, runPackageSchema);
    const close = readSigned(document.close, nobleSha256);
    const subject = 'fault' in close ? null : close.document.aep.subject;
    const isOwn = subject?.kind === 'close' && subject.run.id === run && subject.agent.id === agent;
    if (isOwn) return document;
    throw unexpected(answer, 'the response is not about the requested run');
  });
}

/** Limit of a response, larger than the package of a run of 10,000 requests. */
const MAX_PACKAGE_BYTES = 128 * 1024 * 1024;

const runInputSchema = z.strictObject({ run: runIdSchema, agent: textSchema });

async function readOfRun<T>(
  options: EngineOptions,
  input: RunInput,
  resource: string,
  read: (answer: Answer, input: RunInput) => T,
): Promise<RequestHashEnvelope<T>> {
  const engine = openEngine(options, MAX_PACKAGE_BYTES);
  const requested = validInput(runInputSchema, input);
  const { agent, run } = requested;
  const request = { method: 'GET', path: `/v1/runs/${run}${resource}`, query: { agent } } as const;
  return requestEnvelope(engine, request, (answer) => read(answer, requested));
}
