import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { openCheckpoint } from '#protocol/checkpoint';
import { documentHash } from '#protocol/hash';
import { type JsonValue, canonicalBytes } from '#protocol/json';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import { verifyOffline } from '#protocol/offline';
import type { AgentReceipt, ExecuteReceipt } from '#protocol/schemas/admission';
import type { BatchResult, BatchResults } from '#protocol/schemas/batch';
import type { ProofExport } from '#protocol/schemas/proof-export';
import type { Effect } from '#protocol/status';
import { inclusionFromTiles, tilePath } from '#protocol/tiles';
import { loadSigningKey, nativeSha256, nativeVerify } from '#runtime/crypto/node';
import {
  exportProofHttp,
  waitForVerdictHttp,
  type EngineOptions,
  type PublicOptions,
} from '#sdk/index';
import type { SentBatch } from '../harness/batch-client.js';
import { engineHeaders } from '../harness/engine-api.js';
import { isDenied, type ItemSource, requestAt } from '../harness/items.js';
import type { BenchStack } from '../harness/stack.js';

export interface CheckedReceipts {
  checked: number;
  denied: number;
  /** One line for each receipt that has faults or could not be checked. */
  wrong: string[];
}

/** The means of an outside client: two URLs, an API key and two pinned public keys. */
export interface Outsider {
  engine: EngineOptions;
  registry: PublicOptions;
  trust: PinnedKeys;
}

export function outsiderOf({ engineUrl, publicUrl, registry }: BenchStack): Outsider {
  const { apiKey, tenantId, keyFiles, logVkey, origin } = registry;
  const aepKey = loadSigningKey(keyFiles.aep).publicKey;
  return {
    engine: { engineUrl, apiKey, tenantId },
    registry: { publicUrl },
    trust: { aepKey, logVkey, logOrigin: origin },
  };
}

/** A request and its receipt; `effect` is the policy's decision for that request. */
export type Admission = Pick<ReceiptEvidence, 'receipt' | 'request' | 'effect'>;

/** Checks receipts as an outside client, each against its request, and adds to `found`. */
export async function checkReceipts(
  outsider: Outsider,
  sent: readonly Admission[],
  publicWithinMs: number,
  found: CheckedReceipts = { checked: 0, denied: 0, wrong: [] },
): Promise<CheckedReceipts> {
  for (const admission of sent) {
    const proofId = admission.receipt.registry_proof_id;
    const faults = await gatherEvidence(outsider, proofId, publicWithinMs).then(
      (evidence) => receiptFaults({ ...evidence, ...admission }, outsider.trust),
      (error: unknown) => [String(error)],
    );
    found.checked += 1;
    if (admission.effect === 'DENY') found.denied += 1;
    if (faults.length > 0) found.wrong.push(`${proofId}: ${faults.join(', ')}`);
  }
  return found;
}

interface ReceiptChecker {
  add(batch: SentBatch): void;
  stop(): Promise<CheckedReceipts>;
}

/**
 * Checks random receipts of batches, as an outside client, while batches are processed.
 *
 * @param everyMs pause between checks, so that the checker causes little load
 */
export function startReceiptChecker(
  outsider: Outsider,
  source: ItemSource,
  { everyMs, publicWithinMs }: { everyMs: number; publicWithinMs: number },
): ReceiptChecker {
  const sent: SentBatch[] = [];
  const found: CheckedReceipts = { checked: 0, denied: 0, wrong: [] };
  const stopping = new AbortController();
  const { signal } = stopping;
  const check = async (batch: SentBatch): Promise<void> => {
    const page = await randomPage(outsider, batch);
    const sample = sampleOf(page.filter(({ state }) => state !== 'pending'));
    const admissions = sample.map((result) => admissionOf(source, batch, result));
    await checkReceipts(outsider, admissions, publicWithinMs, found);
  };
  const checkUntilStopped = async (): Promise<void> => {
    while (!signal.aborted) {
      const batch = sent[randomInt(Math.max(1, sent.length))];
      if (batch !== undefined) {
        await check(batch).catch((error: unknown) =>
          found.wrong.push(`${batch.batchId}: ${String(error)}`),
        );
      }
      await sleep(everyMs, undefined, { signal }).catch(() => undefined);
    }
  };
  const checking = checkUntilStopped();
  return {
    add: (batch) => void sent.push(batch),
    stop: async () => {
      stopping.abort();
      await checking;
      return found;
    },
  };
}

const PAGE = 50;
const CHECKED_PER_PAGE = 4;

/** Random results, including a denial if the page has one, because denials are rare. */
function sampleOf(results: readonly BatchResult[]): BatchResult[] {
  const start = randomInt(Math.max(1, results.length - CHECKED_PER_PAGE));
  const sample = results.slice(start, start + CHECKED_PER_PAGE);
  const denied = results.find(({ state }) => state === 'denied');
  return denied === undefined || sample.includes(denied) ? sample : [denied, ...sample.slice(1)];
}

/** @throws Error for a result without a receipt */
function admissionOf(source: ItemSource, batch: SentBatch, result: BatchResult): Admission {
  const n = batch.first + result.index;
  // The receipt of a denial is in the problem document.
  const denied = result.problem as { receipt?: Admission['receipt'] } | undefined;
  const receipt = result.receipt ?? denied?.receipt;
  if (receipt === undefined) throw new Error(`${result.state} without a receipt`);
  const request = requestAt(source, n) as unknown as JsonValue;
  return { receipt, request, effect: isDenied(n) ? 'DENY' : 'ADMIT' };
}

const LONGEST_PAGE = 1_000;

/** A random page of results, reached from page to page as clients do. */
async function randomPage({ engine }: Outsider, batch: SentBatch): Promise<BatchResult[]> {
  const start = randomInt(Math.max(1, batch.items - PAGE));
  let cursor = '';
  for (let from = 0; ;) {
    const limit = from === start ? PAGE : Math.min(LONGEST_PAGE, start - from);
    const url = `${engine.engineUrl}/v1/batches/${batch.batchId}/results?limit=${String(limit)}`;
    const response = await fetch(url + cursor, { headers: engineHeaders(engine) });
    if (response.status !== 200) throw new Error(`results are answered ${String(response.status)}`);
    const page = (await response.json()) as BatchResults;
    if (from === start) return page.results;
    if (page.next_cursor === null) throw new Error(`results end before ${String(start)}`);
    cursor = `&cursor=${page.next_cursor}`;
    from += limit;
  }
}

/**
 * Fetches everything that engine and public API return about a proof.
 *
 * @throws Error when the proof is not public within `publicWithinMs`, or cannot be exported
 */
export async function gatherEvidence(
  { engine, registry, trust }: Outsider,
  proofId: string,
  publicWithinMs: number,
): Promise<Omit<ReceiptEvidence, keyof Admission>> {
  const proof = { proof_id: proofId };
  const { record } = await waitForVerdictHttp({ ...registry, timeoutMs: publicWithinMs }, proof);
  const verdict = record as unknown as PublicVerdict;
  // No wait is needed: a checkpoint, which an export needs, precedes the public verdict.
  const { response: exported } = await exportProofHttp(engine, proof);
  const log = `${registry.publicUrl}/log`;
  const checkpoint = Buffer.from(await bytesAt(`${log}/checkpoint`)).toString();
  const { logVkey, logOrigin } = trust;
  const { size } = openCheckpoint(checkpoint, logVkey, logOrigin, nativeVerify, nativeSha256);
  const leafIndex = verdict.integrity.leaf_index;
  const path = await inclusionFromTiles(nativeSha256, leafIndex, size, (level, index, width) =>
    bytesAt(`${log}/${tilePath(level, index, width)}`),
  );
  return { verdict, exported, checkpoint, path };
}

async function bytesAt(url: string): Promise<Uint8Array> {
  const response = await fetch(url);
  if (response.status !== 200) {
    throw new Error(`${new URL(url).pathname} is answered ${String(response.status)}`);
  }
  return new Uint8Array(await response.arrayBuffer());
}

/** Keys that a client pins; never taken from the service's answers. */
interface PinnedKeys {
  /** AEP public key, 32 bytes. */
  aepKey: Uint8Array;
  logVkey: string;
  logOrigin: string;
}

/** Every answer of the service about one admission. */
export interface ReceiptEvidence {
  request: JsonValue;
  /** The policy's decision for that request. */
  effect: Effect;
  receipt: ExecuteReceipt | AgentReceipt;
  /** The response of the public lookup. */
  verdict: PublicVerdict;
  /** The export from the engine. */
  exported: ProofExport;
  /** The public log's signed checkpoint, and the inclusion path of the proof's leaf. */
  checkpoint: string;
  path: readonly Uint8Array[];
}

/** The checked part of a public lookup. */
interface PublicVerdict {
  identifier: string;
  verification: { verification_status: string; can_assert_validity: boolean };
  artifact: { aep_hash: string; proof_record_hash: string; effect: string };
  integrity: { leaf_index: number };
}

/** All faults of a receipt, found by a client that trusts only its two pinned keys. */
export function receiptFaults(evidence: ReceiptEvidence, trust: PinnedKeys): string[] {
  const { receipt, verdict, exported, effect } = evidence;
  const { response_hash: responseHash, ...hashed } = receipt;
  const proofId = receipt.registry_proof_id;
  const status = effect === 'ADMIT' ? 'ADMITTED' : 'DENIED';
  const effects = [verdict.artifact.effect, exported.aep.decision.effect];
  const checks = {
    receipt_of_another_request:
      receipt.request_hash === documentHash(nativeSha256, evidence.request),
    wrong_response_hash: responseHash === documentHash(nativeSha256, hashed),
    wrong_effect: receipt.status === status && effects.every((one) => one === effect),
    not_valid_in_public:
      verdict.verification.verification_status === 'VALID' &&
      verdict.verification.can_assert_validity,
    public_of_another_proof:
      verdict.identifier === proofId &&
      verdict.artifact.aep_hash === exported.entry.aep_hash &&
      verdict.artifact.proof_record_hash === exported.entry.proof_record_hash,
    export_does_not_verify: verifiesOffline(exported, trust),
    export_of_another_proof:
      exported.proof_id === proofId &&
      exported.request_hash === receipt.request_hash &&
      exported.response_hash === responseHash,
    not_under_the_public_checkpoint: isIncluded(evidence, trust),
  };
  return Object.entries(checks).flatMap(([fault, passed]) => (passed ? [] : [fault]));
}

function verifiesOffline(
  exported: ProofExport,
  { aepKey, logVkey, logOrigin }: PinnedKeys,
): boolean {
  const result = verifyOffline(
    exported,
    { aepKeys: [aepKey], log: { vkey: logVkey, origin: logOrigin } },
    { sha256: nativeSha256, verify: nativeVerify },
  );
  return result.decidable && result.authentic && result.included === true;
}

/** Whether the public tree has the exported entry at the index of the public verdict. */
function isIncluded(
  { checkpoint, path, exported, verdict }: ReceiptEvidence,
  { logVkey, logOrigin }: PinnedKeys,
): boolean {
  try {
    const { size, root } = openCheckpoint(checkpoint, logVkey, logOrigin, nativeVerify);
    return verifyInclusion(nativeSha256, {
      index: verdict.integrity.leaf_index,
      size,
      leafHash: leafHash(nativeSha256, canonicalBytes(exported.entry)),
      path,
      root,
    });
  } catch {
    return false;
  }
}
