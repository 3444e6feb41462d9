import {
  buildProofRecord,
  buildReceipt,
  requestTypeOf,
  proofRecordHash,
  type ReceiptFacts,
} from '#protocol/aep';
import { equalBytes, toHex, utf8 } from '#protocol/bytes';
import { disclosuresOf, saltsFrom } from '#protocol/commitments';
import { isAepKeyEntry, proofEntryText } from '#protocol/entries';
import { attempt } from '#protocol/errors';
import { hashHex } from '#protocol/hash';
import {
  effectiveVerdicts,
  type RevocationInHistory,
  type VerdictInHistory,
} from '#protocol/history';
import { isProofId } from '#protocol/ids';
import { parseStrict } from '#protocol/json';
import type { KeyedEntry } from '#protocol/keys';
import { leafHash } from '#protocol/merkle';
import type { ExecuteRequest } from '#protocol/schemas/admission';
import { type Aep, aepSchema, isReport } from '#protocol/schemas/aep';
import { SCHEMA } from '#protocol/schemas/ids';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import type { VerdictKey, VerdictStatement } from '#protocol/schemas/verdict';
import { KeyStates } from '#protocol/state/log-keys';
import {
  canAssertValidity,
  verificationStatus,
  type ArtifactKind,
  type Decided,
  type Outcome,
} from '#protocol/status';
import { formatTime } from '#protocol/time';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import type { Db, Pool } from '#sql/db/transaction';
import { knownOrigins } from '#sql/log/log';
import { validUntil } from '#sql/proofs/rebuild-aep';
import { isAdopted, readProof, type StoredProof, type ProofHistory } from '#sql/proofs/read';
import { Problem } from '../http/problem.js';

/** Throws the same 404 for another tenant's proof as for a proof that does not exist. */
export async function findProof(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<StoredProof> {
  const stored = isProofId(proofId) ? await readProof(sql, tenantNo, proofId) : null;
  if (stored === null) throw new Problem('proof_not_found');
  return stored;
}

/**
 * Finds a proof whose payload is needed. After a data loss, `admin log adopt` may append a published leaf
 * without its tenant. The proof of such a leaf counts as erased, because anyone can read in the log that the proof
 * exists.
 */
export async function findWithPayload(
  sql: Pool,
  tenantNo: number,
  proofId: string,
): Promise<StoredProof> {
  if (isProofId(proofId) && (await isAdopted(sql, tenantNo, proofId))) {
    throw new Problem('payload_erased');
  }
  return findProof(sql, tenantNo, proofId);
}

/** Checks the rows against the hashes in the log, so that altered rows are never served as signed. */
export function documentsOf(stored: StoredProof) {
  if (!isLogged(stored)) throw altered(stored, 'the log entry');
  return { entry: entryOf(stored), payload: payloadOf(stored) };
}

function entryOf(stored: StoredProof): ProofEntry {
  return {
    schema_version: SCHEMA.logEntry,
    type: 'proof',
    proof_id: stored.proofId,
    aep_hash: toHex(stored.aepHash),
    proof_record_hash: toHex(stored.proofRecordHash),
    effect: stored.effect,
    environment: stored.environment,
    key_id: stored.keyId,
    valid_until: validUntil(stored.acceptedAt, stored.entryValidity, stored),
    time: formatTime(stored.acceptedAt),
  };
}

/** The bytes of the entry, built from unchecked fields: if the row is damaged, they differ from the leaf. */
export const entryBytesOf = (stored: StoredProof): Uint8Array =>
  attempt(() => utf8(proofEntryText(entryOf(stored)))) ?? new Uint8Array();

/**
 * Whether the log has this row's leaf at this index: with a wrong index the row would get the verdict of a different
 * proof.
 */
export function isLogged(stored: StoredProof): boolean {
  const { hasIntakeTime, leafHash: inTree } = stored;
  const hash = leafHash(nativeSha256, entryBytesOf(stored));
  return hasIntakeTime && inTree !== null && equalBytes(hash, inTree);
}

/** Returns null after erasure: only the commitments in the log remain. */
function payloadOf(stored: StoredProof) {
  const { aep, keyId, proofId, request, requestHash, seed, signature } = stored;
  if (!aep || !signature || !request || !requestHash || !seed) {
    // A missing payload without a recorded erasure is a loss, not an erasure.
    if (!stored.isErased) throw altered(stored, 'the missing payload');
    return null;
  }
  const facts: ReceiptFacts = {
    lane: stored.lane === 1 ? 'execute' : 'agent',
    proof_id: proofId,
    request_hash: toHex(requestHash),
    effect: stored.effect,
  };
  if (hashHex(nativeSha256, aep) !== toHex(stored.aepHash)) throw altered(stored, 'aep_hash');
  const record = buildProofRecord(nativeSha256, {
    proof_id: proofId,
    aep,
    signature,
    key_id: keyId,
  });
  if (proofRecordHash(nativeSha256, record) !== toHex(stored.proofRecordHash)) {
    throw altered(stored, 'proof_record_hash');
  }
  const document = aepSchema.parse(parseStrict(aep));
  if (!isRowOf(stored, document)) throw altered(stored, 'a column');
  return {
    aep: document,
    record,
    // Computed on access, because the package of a run needs neither receipts nor disclosures of its thousands of
    // proofs.
    get receipt() {
      return buildReceipt(nativeSha256, facts);
    },
    get disclosures() {
      return disclosuresOf(
        saltsFrom(nativeSha256, seed),
        parseStrict(request) as unknown as ExecuteRequest,
        facts.request_hash,
        stored.budgets ?? {},
      );
    },
  };
}

export function isRowOf(stored: StoredProof, { subject, ...aep }: Aep): boolean {
  return (
    stored.tenantId === aep.tenant_id &&
    stored.effect === aep.decision.effect &&
    stored.isOutcome === isReport(subject) &&
    stored.environment === aep.environment &&
    stored.lane === (requestTypeOf(subject) === 'execute' ? 1 : 2) &&
    stored.keyId === aep.key_id &&
    (stored.isErased || stored.requestHash !== null) &&
    formatTime(stored.acceptedAt) === aep.accepted_at
  );
}

/** The problem when stored rows differ from the log. `cause` names what differs, for operators. */
export function altered(stored: StoredProof, what: string, cause?: Error): Problem {
  const fault = `proof ${stored.proofId} at leaf ${stored.leafIndex}: ${what} does not match the log`;
  return new Problem(
    'integrity_failure',
    'The stored proof differs from the commitments in the log, so it is not served. Contact the operator.',
    { cause: new Error(fault, { cause }) },
  );
}

/**
 * The states of AEP keys. A tenant reads only its own proofs, so it cannot count all proofs of a delegated
 * key: the state of such a key is `unknown` if the count would matter.
 */
export async function keyStatesOf(sql: Db, entries: readonly KeyedEntry[]): Promise<KeyStates> {
  const origins = await knownOrigins(sql);
  return new KeyStates({ ...nativeCrypto, origins }, entries);
}

export function keyOf(
  states: KeyStates,
  entries: readonly KeyedEntry[],
  keyId: string,
  leafIndex: number,
): VerdictKey {
  const changeAt = (change: 'activate' | 'retire') =>
    entries.find(
      ({ entry }) => isAepKeyEntry(entry) && entry.key_id === keyId && entry.change === change,
    )?.leafIndex ?? null;
  return {
    key_id: keyId,
    source: 'log',
    state: states.at(keyId, leafIndex).state,
    activated_at_index: changeAt('activate'),
    retired_at_index: changeAt('retire'),
    compromised_from_index: states.keyOf(keyId)?.compromisedFrom ?? null,
  };
}

type StatusHistory = Pick<
  ProofHistory,
  'verdicts' | 'revocations' | 'isDamaged' | 'isErased' | 'voidedAt'
>;

/**
 * Current statement about a proof, from the latest verdict, all logged revocations and the key compromise that voids
 * it. Asserts nothing when a stored revocation is damaged, the payload is erased or the proof is voided, even before
 * the verification system records this.
 */
export function statementOf(decided: Decided, history: StatusHistory): VerdictStatement {
  const { isDamaged = false, isErased = false, voidedAt = null, revocations, verdicts } = history;
  const last = verdicts.at(-1);
  const override: Outcome | null = isDamaged ? 'fail' : isErased ? 'erased' : null;
  const verdict = last === undefined || override === null ? last : { ...last, outcome: override };
  return statement(decided, verdict, {
    revocations: firstOfEachKind(revocations),
    // Ignores a compromise if a revocation is damaged: then not even REVOKED is certain.
    voidedAt: isDamaged ? null : voidedAt,
  });
}

/**
 * Every statement that the registry can have made about a verified proof: each effective verdict,
 * combined with the revocations and compromise in each log prefix from its tree size on. An exported
 * statement is genuine if and only if it is one of these.
 */
export function statementsOf(decided: Decided, history: StatusHistory): VerdictStatement[] {
  const { voidedAt = null } = history;
  const revocations = firstOfEachKind(history.revocations);
  const changes = revocations.map(({ leafIndex }) => leafIndex);
  if (voidedAt !== null) changes.push(voidedAt);
  changes.sort((a, b) => a - b);
  return effectiveVerdicts(history.verdicts).flatMap((verdict) => {
    const later = changes.filter((leafIndex) => leafIndex >= verdict.treeSize);
    return [verdict.treeSize, ...later.map((leafIndex) => leafIndex + 1)].map((size) =>
      statement(decided, verdict, {
        revocations: revocations.filter(({ leafIndex }) => leafIndex < size),
        voidedAt: voidedAt !== null && voidedAt < size ? voidedAt : null,
      }),
    );
  });
}

function statement(
  { effect, isOutcome }: Decided,
  verdict: VerdictInHistory | undefined,
  {
    revocations,
    voidedAt,
  }: { revocations: readonly RevocationInHistory[]; voidedAt: number | null },
): VerdictStatement {
  const revoked = revocations.map(({ kind }) => kind);
  const statusOf = (kind: ArtifactKind) =>
    verificationStatus({
      kind,
      effect,
      isOutcome,
      verdict: verdict?.outcome ?? 'none',
      isVoided: voidedAt !== null,
      revoked,
      expired: verdict?.expired ?? [],
    });
  const proof = statusOf('proof');
  const lastChange = Math.max(revocations.at(-1)?.leafIndex ?? -1, voidedAt ?? -1);
  return {
    verification_status: proof,
    can_assert_validity: canAssertValidity(proof),
    artifacts: {
      proof,
      passport: statusOf('passport'),
      certificate: statusOf('certificate'),
      trust: statusOf('trust'),
    },
    verified_at: verdict === undefined ? null : formatTime(verdict.verifiedAt),
    log_size: Math.max(verdict?.treeSize ?? 0, lastChange + 1),
  };
}

/** Keeps the first revocation of each artifact kind: later revocations have no effect. */
function firstOfEachKind(revocations: readonly RevocationInHistory[]): RevocationInHistory[] {
  const kinds = new Set<ArtifactKind>();
  return revocations.filter(({ kind }) => !kinds.has(kind) && kinds.add(kind));
}
