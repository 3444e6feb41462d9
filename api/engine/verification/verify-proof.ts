import { SCHEMA } from '#protocol/schemas/ids';
import {
  verdictSchema,
  type Check,
  type Verdict,
  type VerifyCheck,
} from '#protocol/schemas/verdict';
import { verifyBodySchema } from '#protocol/schemas/proof-export';
import { decidedIn } from '#protocol/aep';
import { approvalAt, approverActivationOf } from '#protocol/approvals';
import { fromHex, toHex } from '#protocol/bytes';
import { disclosedIn } from '#protocol/commitments';
import { isUsablePublicKey, smallOrderPublicKeys } from '#protocol/ed25519';
import { attempt, ProtocolError } from '#protocol/errors';
import { hashHex } from '#protocol/hash';
import { parseStrict, type JsonValue } from '#protocol/json';
import { jwkThumbprint, type KeyedEntry, type KeyState } from '#protocol/keys';
import { aepSchema, type Aep } from '#protocol/schemas/aep';
import { canAssertValidity } from '#protocol/status';
import { inclusionFromTiles } from '#protocol/tiles';
import { verifyProof, type ProofEvidence } from '#protocol/verify';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import type { Db, Pool } from '#sql/db/transaction';
import { keysInLog } from '#sql/log/keys';
import { readTile, treeSize, checkpointAt } from '#sql/log/log';
import { proofHistory, readProof, type StoredProof } from '#sql/proofs/read';
import { verifiedPrefix } from '#sql/log/verdicts';
import { EXAMPLE_PROOF_ID, exampleExport } from '../../openapi/example-export.js';
import { addLogFields, sendJson } from '../http/respond.js';
import { json } from '../operation.js';
import { documentOperation } from '../http/request.js';
import type { EngineContext } from '../context.js';
import {
  entryBytesOf,
  isLogged,
  isRowOf,
  keyOf,
  keyStatesOf,
  statementOf,
  statementsOf,
} from '../proofs/stored-proof.js';
import { activationOf, vkeyFor } from '../proofs/inclusion.js';
import {
  causeOf,
  completed,
  passOr,
  statusChecks,
  submissionOf,
  submittedChecks,
  type Submission,
  verdictStatus,
} from './submission.js';

/** Limit in bytes. An export, with three copies of its AEP, has about 6 KiB, but far more with long names. */
export const SUBMISSION_LIMIT = 256 * 1024;

export const verifyOperation = documentOperation(
  {
    id: 'verifyProof',
    method: 'post',
    path: '/v1/proofs/verify',
    tag: 'Verification',
    summary: 'Verify a proof',
    description:
      'Takes an unchanged JSON export (such as the file attached to a PDF), an AEP with its envelope, ' +
      'or a proof id. The response lists every check by name. A proof of another tenant is ' +
      'NOT_FOUND, like a proof that does not exist.',
    scopes: ['verify'],
    body: {
      schema: verifyBodySchema,
      examples: {
        by_id: { schema_version: SCHEMA.verifyRequest, proof_id: EXAMPLE_PROOF_ID },
        by_aep: {
          schema_version: SCHEMA.verifyRequest,
          aep: exampleExport.aep,
          envelope: exampleExport.envelope,
        },
        export: exampleExport,
      },
      limit: SUBMISSION_LIMIT,
    },
    responses: {
      200: json('The verdict, positive or negative: check `can_assert_validity`.', verdictSchema),
    },
  },
  async ({ ctx, inTenant, res }, document) => {
    const submission = submissionOf(document);
    addLogFields(res, { proof_id: submission.proofId });
    const verdict = await inTenant((sql, tenantNo) => verification(ctx, sql, tenantNo, submission));
    sendJson(res, 200, verdict as unknown as JsonValue);
  },
);

/** Ids of small-order keys, under which anyone can produce signatures that verify. */
const SMALL_ORDER = new Set(smallOrderPublicKeys().map((key) => jwkThumbprint(nativeSha256, key)));

/** A proof of another tenant takes the same queries and gets the same response as an unknown proof. */
export async function verification(
  ctx: EngineContext,
  sql: Pool,
  tenantNo: number,
  submission: Submission,
): Promise<Verdict> {
  const stored = await readProof(sql, tenantNo, submission.proofId);
  const findings =
    stored === null
      ? await verifyAbsent(sql, submission)
      : await verifyStored(ctx, sql, submission, stored);
  const { checks, effect, key, verdict, logSize } = findings;
  const smallOrder = key !== null && (SMALL_ORDER.has(key.key_id) || findings.unusableKey);
  const keyFound = { state: key?.state ?? 'unknown', smallOrder } as const;
  const cause = causeOf(checks, keyFound, stored?.isErased ?? false);
  const status = verdictStatus(cause, verdict);
  const isAltered = checks.some(
    ({ name, result }) => name.startsWith('submitted_') && result === 'fail',
  );
  return {
    schema_version: SCHEMA.verdict,
    proof_id: submission.proofId,
    effect,
    status,
    can_assert_validity: canAssertValidity(status),
    cause,
    checks,
    key,
    ...(stored !== null && !isAltered && submission.exported !== null
      ? disclosedIn(submission.exported)
      : { disclosed: null, withheld: null }),
    verdict,
    log_size: logSize,
  };
}

interface Findings extends Pick<Verdict, 'checks' | 'effect' | 'key' | 'verdict'> {
  logSize: number;
  /** True when the logged key is not a usable Ed25519 key: its signatures prove nothing. */
  unusableKey: boolean;
}

const NOT_REGISTERED = 'the registry has no such proof of this tenant';

async function verifyAbsent(sql: Db, { signed }: Submission): Promise<Findings> {
  const keyId = signed?.aep.key_id ?? null;
  const [logSize, keys] = await Promise.all([
    treeSize(sql),
    keysInLog(sql, keyId === null ? [] : [keyId]),
  ]);
  const states = await keyStatesOf(sql, keys ?? []);
  const key = keyId === null ? null : keyOf(states, keys ?? [], keyId, logSize);
  const made = [passOr('registered', false, NOT_REGISTERED)];
  if (key !== null) {
    const why = `the state of the key in the log is ${key.state}`;
    made.push(passOr('signing_key', key.state === 'active', why));
  }
  return {
    checks: completed(made, NOT_REGISTERED),
    effect: null,
    key,
    verdict: null,
    logSize,
    unusableKey: false,
  };
}

async function verifyStored(
  ctx: EngineContext,
  sql: Pool,
  submission: Submission,
  stored: StoredProof,
): Promise<Findings> {
  const { signed, exported } = submission;
  const { leafIndex } = stored;
  const rebuilt = loggedAep(stored.aep, stored);
  const logged = loggedAep(signed?.open.payload ?? null, stored) ?? rebuilt;
  // Derives the statement from the signed AEP where possible, because columns may be altered.
  const decided = logged === null ? stored : decidedIn(logged);
  const signedBy = logged?.key_id ?? stored.keyId;
  const history = await proofHistory(sql, { ...stored, keyId: signedBy });
  const keys = history.keys ?? [];
  const [inclusion, checkpoint] = await Promise.all([
    inclusionOf(sql, leafIndex),
    exported === null ? null : checkpointAt(sql, exported.inclusion.tree_size),
  ]);
  const logSize = Math.max(history.logSize, ...keys.map((entry) => entry.leafIndex + 1));
  const keyId = signed?.aep.key_id ?? stored.keyId;
  const states = await keyStatesOf(sql, keys);
  const known = states.at(keyId, leafIndex);
  // If the stored AEP is not the logged one, the columns assert nothing.
  const isDamaged = history.isDamaged === true || (logged === null && !stored.isErased);
  const verdict = statementOf(decided, { ...history, isDamaged });
  const made: VerifyCheck[] = [
    passOr('registered', true, NOT_REGISTERED),
    ...proofChecks(submission, stored, { key: known, keys, inclusion }),
    ...rowChecks(stored, logged, rebuilt),
    ...submittedChecks(submission, {
      stored,
      entry: entryBytesOf(stored),
      activation: activationOf(keys, keyId),
      approverActivation: approverActivationOf(
        keys,
        stored.approval?.stored.envelope.statement.registration_hash ?? '',
      ),
      statements: statementsOf(decided, history),
      checkpoint,
      logVkey: checkpoint === null ? ctx.logVkey : vkeyFor(checkpoint.note, ctx),
    }),
    ...statusChecks(history),
  ];
  return {
    checks: completed(made, 'the check was not possible'),
    effect: decided.effect,
    key: keyOf(states, keys, keyId, leafIndex),
    verdict,
    logSize,
    unusableKey: known.publicKey !== null && !isUsablePublicKey(known.publicKey),
  };
}

/** Checks the submitted AEP, or else the stored AEP, against the stored rows and the log. */
function proofChecks(
  { signed }: Submission,
  stored: StoredProof,
  log: {
    key: KeyState;
    keys: readonly KeyedEntry[];
    inclusion: ProofEvidence['inclusion'] | null;
  },
): VerifyCheck[] {
  const { leafIndex } = stored;
  const aep = signed?.open.payload ?? stored.aep;
  const signature = signed?.open.signature ?? stored.signature;
  if (aep === null || signature === null) return [withoutPayload(stored)];
  const checks = verifyProof(nativeCrypto, {
    proof_id: stored.proofId,
    // For a request or seed that was lost rather than erased, empty bytes make the check `request_hash` fail.
    request: stored.request ?? (stored.isErased ? null : new Uint8Array()),
    seed: stored.seed ?? (stored.isErased ? null : new Uint8Array()),
    aep,
    signature,
    entry: entryBytesOf(stored),
    leafIndex,
    key: log.key,
    approval: approvalAt(leafIndex, log.keys, stored.approval),
    inclusion: log.inclusion ?? { leafHashInTree: new Uint8Array() },
  });
  return checks.map((check) => withoutTree(check, log.inclusion));
}

/** A recorded erasure makes the check inapplicable; without an erasure a missing AEP is a loss. */
function withoutPayload({ isErased }: StoredProof): Check {
  return isErased
    ? { name: 'aep_hash', result: 'not_applicable', detail: 'the payload has been erased' }
    : { name: 'aep_hash', result: 'fail', detail: 'the stored AEP is missing' };
}

/**
 * Inclusion in the root that the verification system computed; null while the verified prefix does
 * not cover the leaf. A damaged tile fails the check.
 */
async function inclusionOf(sql: Db, leafIndex: number): Promise<ProofEvidence['inclusion'] | null> {
  const prefix = await verifiedPrefix(sql);
  if (prefix === null || leafIndex >= prefix.treeSize) return null;
  const { treeSize: size, root } = prefix;
  try {
    const path = await inclusionFromTiles(
      nativeSha256,
      leafIndex,
      size,
      async (level, index) => (await readTile(sql, level, index)) ?? new Uint8Array(),
    );
    return { size, path, root };
  } catch (error) {
    if (error instanceof ProtocolError) return { leafHashInTree: fromHex('') };
    throw error;
  }
}

/** Parses the AEP if the log commits to these bytes. */
function loggedAep(bytes: Uint8Array | null, { aepHash }: StoredProof): Aep | null {
  if (bytes === null || hashHex(nativeSha256, bytes) !== toHex(aepHash)) return null;
  return attempt(() => aepSchema.parse(parseStrict(bytes))) ?? null;
}

/** Compares the columns with the logged AEP. No check if the row has no AEP and its other columns match the log. */
function rowChecks(stored: StoredProof, logged: Aep | null, rebuilt: Aep | null): VerifyCheck[] {
  const isAltered = !isLogged(stored) || (stored.aep !== null && rebuilt === null);
  if (logged === null && !isAltered) return [];
  const fits = !isAltered && logged !== null && isRowOf(stored, logged);
  return [passOr('published_columns', fits, 'the stored columns differ from the logged proof')];
}

function withoutTree(check: Check, inclusion: ProofEvidence['inclusion'] | null): VerifyCheck {
  const { name, ...found } = check;
  if (name !== 'inclusion' || inclusion !== null) return { name, ...found };
  const detail = 'the verification system has not verified this leaf yet';
  return { name, result: 'not_applicable', detail };
}
